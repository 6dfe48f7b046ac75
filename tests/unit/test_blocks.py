"""Blocks: who is built where, and what worlds and storages cannot do to each other."""

from __future__ import annotations

import numpy as np
import pytest

from hts.config import Experiment, Machine
from hts.determinism.keys import Purpose, key
from hts.errors import WorldFailed
from hts.machine import Sizes
from hts.memory.storage import Storage
from hts.models.bounds import as_drawn
from hts.roles.blocks import Block
from hts.roles.local import BatchedBlock, WorldsBlock
from hts.runtime.crew import crew_for, make_blocks
from hts_envs.adapter import GymWorld
from hts_envs.contract import (
    SEED_LIMIT,
    Array,
    BatchedStep,
    BatchedWorld,
    Box,
    Observation,
    Place,
    Spaces,
    Step,
    Traits,
    World,
)
from hts_envs.registry import make, parse
from tests.fakes.runs import experiment


def built(asked: Experiment, parts: list[range]) -> list[Block]:
    spec = parse(asked.env)
    spaces = make(spec, Place(0, 1, 0)).spaces
    return make_blocks(asked, spec, spaces, parts)


def test_every_world_knows_its_place_and_its_seed_when_it_is_built() -> None:
    """Rules 15 and 17: a seed of its own, which is neither the run's nor any episode's; for these
    replicas and no others, the same in whatever block they are."""
    asked = experiment("python:tests.fakes.factories:placed", replicas=6, seed=5)
    told = {}
    for parts in ([range(2, 4)], [range(2, 3), range(3, 4)]):
        worlds = []
        for block in built(asked, parts):
            assert isinstance(block, WorldsBlock)
            worlds += block.worlds
        found = []
        for world in worlds:
            assert isinstance(world, GymWorld)
            found.append(world._env.told)
        told[len(parts)] = found
    assert told[1] == told[2]
    assert [each["replica"] for each in told[1]] == [2, 3]
    assert [each["replicas"] for each in told[1]] == [1, 1]
    seeds = [key(5, Purpose.BUILD, replica) % SEED_LIMIT for replica in (2, 3)]
    assert [each["seed"] for each in told[1]] == seeds
    assert len({5, *seeds}) == 3


def test_a_batched_world_is_built_for_its_replicas() -> None:
    """As many as its block has; its episodes have seeds of their own in any case."""
    (block,) = built(experiment("sleeper:?mean=0&batch=true", replicas=6), [range(2, 5)])
    assert isinstance(block, BatchedBlock)
    assert block.world.replicas == 3


@pytest.mark.parametrize(
    ("machine", "blocks", "owners"),
    [
        (Machine(executors=2, actors=0), [3, 3], [0, 1]),
        (Machine(executors=2, actors=0, stepping="threads"), [1] * 6, [0, 0, 0, 1, 1, 1]),
        (Machine(executors=1, actors=1), [3, 3], [0, 0]),
        (Machine(executors=1, actors=3), [2, 2, 2], [0, 0, 0]),
        (Machine(executors=4, actors=0), [1, 2, 1, 2], [0, 1, 2, 3]),
        (Machine(executors=2, actors=0, blocks=2), [1, 2, 1, 2], [0, 0, 1, 1]),
        (Machine(executors=2, actors=0, blocks=9), [1] * 6, [0, 0, 0, 1, 1, 1]),
    ],
)
def test_blocks_are_shares_of_shares(
    machine: Machine, blocks: list[int], owners: list[int]
) -> None:
    """Six replicas: whose they are, and what is stepped at once."""
    crew = crew_for(experiment(replicas=6), machine)
    assert [len(block) for block in crew.blocks] == blocks
    assert list(crew.executor_of) == owners


ACTION = Box((2,), low=-1.0, high=1.0)


class Meddler(World):
    """Keeps every action that it was given, writes into it, and shows one buffer for ever."""

    spaces = Spaces({"observation": Box((3,))}, ACTION)
    traits = Traits()

    def __init__(self) -> None:
        self.given: list[Array] = []
        self.found: list[list[float]] = []
        self.screen = np.zeros((1, 3), np.float32)
        self.reward = np.zeros(1, np.float32)

    def reset(self, seed: int) -> Observation:
        self.screen[:] = -1.0
        return {"observation": self.screen}

    def step(self, action: Array) -> Step:
        self.found.append(action[0].tolist())
        self.given.append(action)
        self.screen[:] = self.reward[:] = len(self.given)
        return Step({"observation": self.screen}, self.reward, False, len(self.given) == 3, {})


class MeddlingBatch(BatchedWorld):
    """Two of them behind one call."""

    spaces = Meddler.spaces
    traits = Traits()
    replicas = 2

    def __init__(self) -> None:
        self.given: list[Array] = []

    def reset(self, rows: Array, seeds: Array) -> Observation:
        return {"observation": np.zeros((len(rows), 1, 3), np.float32)}

    def step(self, action: Array) -> BatchedStep:
        self.given.append(action)
        seen = np.full((2, 1, 3), len(self.given), np.float32)
        never = np.zeros(2, np.bool_)
        return BatchedStep({"observation": seen}, seen[..., 0], never, never.copy(), {})


class Poisoned(Meddler):
    """Shows this number in the observation that a truncation ends with, and nowhere else."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def step(self, action: Array) -> Step:
        step = super().step(action)
        if step.truncated:
            self.screen[0, 1] = self.number
        return step


def play(block: Block, storage: Storage) -> Array:
    """A rollout whose actions are numbered."""
    actions = np.arange(storage.action.size, dtype=np.float32).reshape(storage.action.shape)
    block.begin(storage)
    for step in range(storage.sizes.steps):
        storage.action[:, step] = actions[:, step]
        block.step(storage, step)
    return actions


def test_what_worlds_keep_and_change_is_their_own() -> None:
    """Rule 10: what a world kept of its actions stays as it was given, what it writes into them
    reaches no storage, and what it shows later changes nothing that is in one."""
    worlds = [Meddler(), Meddler()]
    storage = Storage(Sizes(2, 5, 1, 0), Meddler.spaces)
    actions = play(WorldsBlock(worlds, range(2), as_drawn, 0), storage)
    for replica, world in enumerate(worlds):
        assert [kept[0].tolist() for kept in world.given] == actions[replica, :, 0].tolist()
        assert world.found == actions[replica, :, 0].tolist()
        for kept in world.given:
            kept[:] = np.nan
    np.testing.assert_array_equal(storage.action, actions)
    seen = storage.arrays["frames.observation"][0, :, 0, 0].tolist()
    assert seen == [-1, 1, 2, -1, 4, 5]
    assert storage.arrays["finals.observation"][0, 0, 0].tolist() == [3, 3, 3]
    assert storage.reward[1, :, 0].tolist() == [1, 2, 3, 4, 5]


def test_a_batched_world_has_actions_of_its_own_too() -> None:
    """Rule 10: later actions do not change the ones that it kept, nor the other way round."""
    world = MeddlingBatch()
    storage = Storage(Sizes(2, 4, 1, 0), world.spaces)
    actions = play(BatchedBlock(world, range(2), as_drawn, 0), storage)
    for step, kept in enumerate(world.given):
        np.testing.assert_array_equal(kept, actions[:, step])
        kept[:] = np.nan
    np.testing.assert_array_equal(storage.action, actions)


@pytest.mark.parametrize(
    ("number", "word"), [(np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite")]
)
def test_a_final_observation_is_finite(number: float, word: str) -> None:
    """Only the value function sees what a truncation ends with; it is refused at its step all the
    same, while the largest number there is may stay."""
    largest = float(np.finfo(np.float32).max)
    storage = Storage(Sizes(2, 4, 1, 0), Meddler.spaces)
    play(WorldsBlock([Meddler(), Poisoned(largest)], range(2), as_drawn, 0), storage)
    block = WorldsBlock([Meddler(), Poisoned(number)], range(2), as_drawn, 0)
    with pytest.raises(WorldFailed) as caught:
        play(block, storage)
    assert caught.value.replica == 1
    said = str(caught.value.__cause__)
    assert said == f"replica 1, step 3 of episode 0: the observation is {word} at [1]"
