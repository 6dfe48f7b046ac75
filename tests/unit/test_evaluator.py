"""The evaluator: what it plays is what training would, with randomness of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from hts.config import Experiment
from hts.determinism import settings
from hts.determinism.keys import Purpose, episode_seed, key
from hts.learn.normalise import Moments, ObservationScale
from hts.machine import Sizes
from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.models.bounds import taken_in
from hts.models.distributions import Greedy, distribution
from hts.models.policy import Policy, initial_parameters
from hts.roles.actor import Actor
from hts.roles.evaluator import Evaluator, Played, Singles, Together
from hts_envs.contract import (
    Array,
    BatchedWorld,
    Box,
    Discrete,
    MultiDiscrete,
    Observation,
    Place,
    Space,
    Spaces,
    Step,
    Tally,
    Traits,
    World,
)
from hts_envs.registry import make, parse
from tests.fakes import runs
from tests.fakes.small_worlds import Small

SAFE = 32
"""Rows that every batch is padded to: any padding that the probe knows divides it."""


class Recording(World):
    """Another world, and everything that was asked of it and seen."""

    def __init__(self, world: World) -> None:
        self.spaces, self.traits = world.spaces, world.traits
        self.world = world
        self.seeds: list[int] = []
        self.actions: list[list[Array]] = []
        self.seen: list[list[Observation]] = []

    def reset(self, seed: int) -> Observation:
        self.seeds.append(seed)
        self.actions.append([])
        self.seen.append([self.world.reset(seed)])
        return self.seen[-1][0]

    def step(self, action: Array) -> Step:
        self.actions[-1].append(action.copy())
        result = self.world.step(action)
        self.seen[-1].append(result.observation)
        return result


def version(experiment: Experiment, spaces: Spaces, number: int = 7) -> Version:
    """Parameters that no two actions are equally likely under, and statistics beside them."""
    policy = Policy(experiment, spaces)
    parameters = initial_parameters(policy, 3)
    noise = torch.rand(parameters.shape, generator=torch.Generator().manual_seed(5)) - 0.5
    scale = {}
    if experiment.normalise_observations:
        scale = {
            name: Moments(9.0, np.full(space.shape, 0.3), np.full(space.shape, 4.0))
            for name, space in spaces.observation.items()
            if isinstance(space, Box)
        }
    return Version(number, parameters + noise, ObservationScale(scale))


def play(
    experiment: Experiment, worlds: list[World], *, count: int = 6, **how: Any
) -> list[Played]:
    evaluator = Evaluator(experiment, Singles(worlds), padding=SAFE, **how)
    return evaluator.play(version(experiment, worlds[0].spaces), range(count))


@pytest.mark.parametrize(
    ("action", "agents", "changes"),
    [
        ("one", 1, {"frame_stack": 3}),
        ("vector", 2, {"recurrent": "lstm", "recurrent_units": 8, "normalise_observations": True}),
        ("many", 2, {"recurrent": "gru", "recurrent_units": 8, "frame_stack": 2}),
        ("number", 1, {"squash": True, "normalise_observations": True, "frame_stack": 2}),
        ("one", 3, {"policies": "separate"}),
    ],
)
def test_it_acts_as_training_acts_on_what_is_seen(
    action: str, agents: int, changes: Mapping[str, Any]
) -> None:
    """An actor over a training storage that holds the same frames, ages and keys draws the same
    actions, to the last bit, in every step of every episode: with stacks, memory, statistics."""
    experiment = runs.experiment("gym:CartPole-v1", rollout=16, **changes)
    worlds = [Recording(Small(action, agents, length=12)) for _ in range(4)]
    Evaluator(experiment, Singles(worlds), padding=SAFE).play(
        version(experiment, worlds[0].spaces), range(4)
    )
    storage = Storage(Sizes.of(experiment, worlds[0].spaces), worlds[0].spaces)
    actor = Actor(lambda: Policy(experiment, worlds[0].spaces), SAFE, 4)
    acted = version(experiment, worlds[0].spaces)
    storage.version = acted.number
    taken = 0
    for row, world in enumerate(worlds):
        for step, (seen, did) in enumerate(zip(world.seen[0], world.actions[0], strict=False)):
            single = {name: array[None] for name, array in seen.items()}
            storage.write_frame([row], step, single)
            storage.age[row, step] = step
            storage.key[row, step] = _key(experiment, row, step)
            actor.act(storage, Rows(np.array([row]), np.array([step])), acted)
            drawn = storage.action[row, step]
            assert np.array_equal(_bounded(experiment, worlds[0].spaces, drawn), did)
            taken += 1
    assert taken > 12


def _key(experiment: Experiment, episode: int, step: int) -> int:
    return key(experiment.seed, Purpose.EVALUATION_ACTION, episode, 0, step)


def _bounded(experiment: Experiment, spaces: Spaces, drawn: Array) -> Array:
    return taken_in(spaces, experiment.bounds)(drawn)


@pytest.mark.parametrize("rows", [1, 3, 6, 9])
def test_how_many_play_side_by_side_changes_nothing(rows: int) -> None:
    """Returns and lengths of six episodes are those of one row, whatever row each is played in."""
    experiment = runs.experiment(frame_stack=2, recurrent="gru", recurrent_units=8)
    together = play(experiment, [Small("vector", 2) for _ in range(rows)])
    alone = play(experiment, [Small("vector", 2)])
    assert together == alone
    assert len({each.total for each in alone}) == 6


@pytest.mark.parametrize("name", ["batched:cartpole", "batched:pendulum", "batched:ball_balance"])
def test_a_batched_world_plays_as_many_as_it_holds(name: str) -> None:
    """Rows that nobody plays in change nothing, nor does an episode's row."""
    experiment = runs.experiment(name)
    found = []
    for rows in (1, 2, 5):
        world = make(name, Place(0, rows, 1))
        assert isinstance(world, BatchedWorld)
        evaluator = Evaluator(experiment, Together(world), padding=SAFE)
        found.append(evaluator.play(version(experiment, world.spaces), range(3)))
    assert found[0] == found[1] == found[2]
    assert len({each.total for each in found[0]}) > 1


def test_episodes_are_the_same_for_every_policy_and_never_trained_on() -> None:
    """Two policies begin with the same seeds, which no replica of the run is ever given."""
    experiment = runs.experiment()
    seeds = []
    for number in (7, 8):
        world = Recording(Small())
        evaluator = Evaluator(experiment, Singles([world]), padding=SAFE)
        evaluator.play(version(experiment, world.spaces, number), range(5))
        seeds.append(world.seeds)
    trained = {episode_seed(experiment.seed, r, e) for r in range(64) for e in range(64)}
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 5
    assert not trained & set(seeds[0])
    assert all(seed % 2 == 1 for seed in seeds[0])


def test_another_seed_plays_other_episodes() -> None:
    """The episodes belong to the run's seed."""
    first, second = (play(runs.experiment(seed=seed), [Small("vector")]) for seed in (0, 1))
    assert [each.total for each in first] != [each.total for each in second]


def test_what_a_world_sets_for_itself_does_not_reach_the_network() -> None:
    """Precision and rounding are as before behind every call of a simulator that changes both."""
    asked = runs.experiment("python:tests.fakes.careless:make")
    world = make(parse(asked.env), Place(0, 1))
    evaluator = Evaluator(asked, Singles([world]), padding=SAFE)
    kept = []
    evaluator.play(
        version(asked, world.spaces), range(2), lambda *_: kept.append(settings.are_kept())
    )
    assert len(kept) > 2
    assert all(kept)


def test_rewards_are_the_worlds_own() -> None:
    """What training clips and scales is told as it is."""
    plain = play(runs.experiment(), [Small("many")])
    trained = play(runs.experiment(clip_rewards=0.1, normalise_rewards=True), [Small("many")])
    assert plain == trained
    assert max(each.total for each in plain) > 1.0


class Lives(World):
    """Three lives of two steps each; the second and third go on in the same game."""

    def __init__(self) -> None:
        self.spaces, self.traits = Spaces({"observation": Box((1,))}, Discrete(2)), Traits()
        self.lives, self.tally, self.resets = 0, Tally(), 0

    def reset(self, seed: int) -> Observation:
        self.resets += 1
        self.lives = self.lives or 3
        self.tally.start()
        return {"observation": np.zeros((1, 1), np.float32)}

    def step(self, action: Array) -> Step:
        self.tally.add(1.0)
        ended = self.tally.length == 2
        self.lives -= ended
        facts = {**self.tally.facts(), "game_over": float(not self.lives), "score": 6.0}
        if not self.lives:
            facts |= {"game_return": 6.0, "game_length": 6.0}
        seen = {"observation": np.full((1, 1), self.tally.length, np.float32)}
        return Step(seen, np.ones(1, np.float32), ended, False, facts)


def test_a_game_is_played_to_its_end() -> None:
    """A lost life ends an episode of training, and no episode of an evaluation."""
    world = Lives()
    assert play(runs.experiment(), [world], count=2) == [
        Played(0, 6.0, 6, 6.0),
        Played(1, 6.0, 6, 6.0),
    ]
    assert world.resets == 6


def test_greedy_takes_the_likeliest() -> None:
    """The same in every repetition of an observation, and not what chance would choose."""
    experiment = runs.experiment()
    worlds = [[Recording(Small("one", length=30)) for _ in range(4)] for _ in range(2)]
    for each, greedy in zip(worlds, (False, True), strict=True):
        play(experiment, list(each), count=4, greedy=greedy)
    drawn, likeliest = ([w.actions[0] for w in each] for each in worlds)
    assert str(drawn) != str(likeliest)


@pytest.mark.parametrize(
    ("space", "head", "expected"),
    [
        (Discrete(3), [0.1, 2.0, -1.0], 1),
        (MultiDiscrete((2, 3)), [0.0, 1.0, 5.0, 1.0, 2.0], [1, 0]),
        (Box((2,)), [0.5, -0.25, 1.0, 2.0], [0.5, -0.25]),
    ],
)
def test_the_likeliest_action_of_each_distribution(
    space: Space, head: list[float], expected: Any
) -> None:
    """By literal numbers, whatever chance says; no action is more probable."""
    drawn = distribution(space)
    greedy, heads = Greedy(drawn), torch.tensor([head])
    noise = torch.rand((1, drawn.noise), generator=torch.Generator().manual_seed(1)).numpy()
    found, best = greedy.draw(heads, noise)
    assert found.tolist() == [expected]
    assert all(drawn.draw(heads, noise * np.float32(share))[1] <= best for share in (0.1, 0.5, 0.9))


def test_rows_that_depend_on_their_place_are_played_alone() -> None:
    """A network without a safe padding gets one row; more are refused."""
    experiment = runs.experiment()
    worlds = [Small(), Small()]
    with pytest.raises(AssertionError, match="played alone"):
        Evaluator(experiment, Singles(worlds), padding=0)
    evaluator = Evaluator(experiment, Singles(worlds[:1]), padding=0)
    assert len(evaluator.play(version(experiment, worlds[0].spaces), range(3))) == 3
