"""Environments of Gymnasium's interface, and of Gym's before it, as worlds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from hts_envs import oldapi
from hts_envs.adapter import GymWorld
from hts_envs.contract import World
from hts_envs.errors import BrokenSimulator
from hts_envs.registry import make
from tests.fakes.gym_worlds import (
    Canned,
    Counter,
    HalfOld,
    Old,
    OldPair,
    OldWrapper,
    Seedless,
)


def act(action: int) -> Any:
    return np.array([action])


def cartpole() -> World:
    world = make("gym:CartPole-v1")
    assert isinstance(world, World)
    return world


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Each test sees warnings that a process prints once."""
    oldapi._warn_once.cache_clear()
    yield
    oldapi._warn_once.cache_clear()


@pytest.mark.parametrize(
    ("action", "flags"),
    [
        (Counter.GO_ON, (False, False)),
        (Counter.TERMINATE, (True, False)),
        (Counter.TRUNCATE, (False, True)),
        (Counter.BOTH, (True, True)),
    ],
)
def test_ends_are_passed_through_told_apart(action: int, flags: tuple[bool, bool]) -> None:
    """Rules 1 and 2: both flags arrive as the environment set them, both at once included."""
    world = GymWorld(Counter(), "x")
    world.reset(0)
    step = world.step(act(action))
    assert (step.terminated, step.truncated) == flags
    assert type(step.terminated) is bool
    assert type(step.truncated) is bool


def test_the_last_observation_is_that_of_the_ended_episode() -> None:
    """Rules 3 and 4: the world does not reset itself; the end shows the state before any reset."""
    env = Counter()
    world = GymWorld(env, "x")
    world.reset(12)
    step = world.step(act(Counter.TERMINATE))
    assert step.observation["observation"].tolist() == [[12.0, 1.0]]
    assert env.seeds == [12]


def test_what_was_returned_stays_as_it_was() -> None:
    """Rule 10: an environment that shows one buffer for ever changes no earlier observation."""
    world = GymWorld(Counter(), "x")
    first = world.reset(5)["observation"]
    second = world.step(act(0)).observation["observation"]
    world.step(act(0))
    assert first.tolist() == [[5.0, 0.0]]
    assert second.tolist() == [[5.0, 1.0]]
    second[:] = -1
    assert world.step(act(0)).observation["observation"].tolist() == [[5.0, 3.0]]


def test_every_reset_gives_the_episode_its_whole_seed() -> None:
    """Rule 16: seeds reach the environment as plain integers with all their 63 bits."""
    env = Counter()
    world = GymWorld(env, "x")
    for seed in (0, 2**63 - 1, np.uint64(7)):
        world.reset(int(seed))
    assert env.seeds == [0, 2**63 - 1, 7]
    assert all(type(seed) is int for seed in env.seeds)


def test_an_episode_depends_on_its_seed_alone() -> None:
    """Rule 16: the same seed after episodes of other lengths gives the same episode, bit by bit."""

    def episode(world: World, seed: int) -> bytes:
        seen = world.reset(seed)["observation"].tobytes()
        for k in range(10):
            seen += world.step(act(k % 2)).observation["observation"].tobytes()
        return seen

    fresh, used = cartpole(), cartpole()
    for seed in range(3):
        used.reset(seed)
        used.step(act(0))
    assert episode(fresh, 9) == episode(used, 9)
    assert episode(fresh, 9) != episode(fresh, 10)


def test_the_samplers_of_spaces_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 18: neither `sample` nor `seed` of a space is called in a world's life."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a space's own sampler was used")

    monkeypatch.setattr(gymnasium.spaces.Space, "seed", refuse)
    monkeypatch.setattr(gymnasium.spaces.Discrete, "sample", refuse)
    monkeypatch.setattr(gymnasium.spaces.Box, "sample", refuse)
    world = cartpole()
    world.reset(0)
    world.step(act(0))


def test_facts_at_the_end() -> None:
    """Return and length are the episode's, known facts of the info are added, others are not."""
    env = Counter()
    world = GymWorld(env, "x")
    for _ in range(2):  # the second episode counts from zero again
        world.reset(0)
        assert world.step(act(0)).facts == {}
        ended = world.step(act(Counter.TRUNCATE))
        assert ended.facts == {"return": 3.0, "length": 2.0, "score": 7.0}
        assert ended.reward.tolist() == [2.0]
        assert ended.reward.dtype == np.float32
    world.close()
    assert env.closed


def test_the_adapter_counts_its_own_limit() -> None:
    """An end by the clock is truncated; an end at that very step is both."""
    world = GymWorld(Counter(), "x", limit=2)
    assert world.traits.time_limit == 2
    for last, flags in ((Counter.GO_ON, (False, True)), (Counter.TERMINATE, (True, True))):
        world.reset(0)
        first = world.step(act(0))
        assert (first.terminated, first.truncated) == (False, False)
        step = world.step(act(last))
        assert (step.terminated, step.truncated) == flags


@pytest.mark.parametrize(
    ("reward", "expected"),
    [(2, 2.0), (np.float64(0.5), 0.5), (np.array([3.0]), 3.0), (np.array(3.0), 3.0), (True, 1.0)],
)
def test_rewards_of_any_number_are_read(reward: Any, expected: float) -> None:
    """Whatever form one number comes in, it is one float32 of one agent."""
    good = np.zeros(2, np.float32)
    world = GymWorld(Canned(step=(good, reward, False, False, {})), "x")
    world.reset(0)
    assert world.step(act(0)).reward.tolist() == [expected]


@pytest.mark.parametrize("reward", [None, np.zeros(2), "much"])
def test_a_reward_that_is_not_one_number_is_refused(reward: Any) -> None:
    """The sentence shows what came instead."""
    world = GymWorld(Canned(step=(np.zeros(2, np.float32), reward, False, False, {})), "x")
    world.reset(0)
    with pytest.raises(BrokenSimulator, match="must be one number, got"):
        world.step(act(0))


def test_what_the_simulator_raises_is_kept_as_the_cause() -> None:
    """Reset and step name the simulator and carry its own error."""
    error = ConnectionError("the engine is gone")
    with pytest.raises(BrokenSimulator, match=r"^x raised ConnectionError in reset .*gone") as info:
        GymWorld(Canned(reset=error), "x").reset(0)
    assert info.value.__cause__ is error
    world = GymWorld(Canned(step=error), "x")
    world.reset(0)
    with pytest.raises(BrokenSimulator, match=r"^x raised ConnectionError in step") as info:
        world.step(act(0))
    assert info.value.__cause__ is error


@pytest.mark.parametrize("result", [(1, 2, 3), [0, 0.0, False, False, {}], None])
def test_a_step_of_another_form_is_refused(result: Any) -> None:
    """Neither of the two interfaces returns this."""
    world = GymWorld(Canned(step=False if result is None else result), "x")
    world.reset(0)
    with pytest.raises(BrokenSimulator, match="but this one returned"):
        world.step(act(0))


# Environments of the older interface


def test_a_bare_done_is_terminated_and_said_once() -> None:
    """Rule 5: `done` counts as terminated, with one warning in the life of a process."""
    world = GymWorld(Old(), "x")
    world.reset(0)
    assert world.step(act(Old.GO_ON))[2:4] == (False, False)
    with pytest.warns(oldapi.OldInterface, match="^x ends its episodes with a bare `done`"):
        step = world.step(act(Old.DONE))
    assert (step.terminated, step.truncated) == (True, False)
    world.reset(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert world.step(act(Old.DONE)).terminated


@pytest.mark.parametrize(
    ("action", "flags"), [(Old.DONE, (True, False)), (Old.TIMED_OUT, (False, True))]
)
def test_the_reason_that_gym_left_is_believed(action: int, flags: tuple[bool, bool]) -> None:
    """Rule 1: with info["TimeLimit.truncated"] an old environment's ends are told apart."""
    world = GymWorld(Old(reason=True), "x")
    world.reset(0)
    assert world.step(act(action))[2:4] == flags


def test_old_environments_are_seeded_before_every_reset() -> None:
    """Rule 16: `seed()` gets 31 bits made of the whole seed, the same for the same seed."""
    env = Old()
    world = GymWorld(env, "x")
    for seed in (1, 2**40 + 1, 1):
        world.reset(seed)
    first, other, again = env.seeds
    assert first == again != other
    assert all(0 <= seed < 2**31 for seed in env.seeds)
    assert world.traits.reseeds


def test_a_wrapper_that_passes_keywords_on_is_looked_through() -> None:
    """Only the innermost `reset` knows whether it takes a seed."""
    env = Old()
    world = GymWorld(OldWrapper(OldWrapper(env)), "x")
    world.reset(3)
    assert len(env.seeds) == 1


def test_an_environment_that_takes_no_seed_says_so() -> None:
    """The trait, not a guess, tells the caller that episodes cannot be seeded."""
    world = GymWorld(Seedless(), "x")
    assert not world.traits.reseeds
    assert world.reset(3)["observation"].tolist() == [[0.0]]


def test_an_old_pair_that_ends_in_a_dict_is_an_observation() -> None:
    """An old reset returns no info, so its pairs are not taken apart."""
    assert {k: v.tolist() for k, v in GymWorld(OldPair(), "x").reset(0).items()} == {
        "0": [2],
        "1.a": [1],
    }


def test_an_interface_between_the_two_is_read() -> None:
    """A reset with a seed may still return the observation alone."""
    assert GymWorld(HalfOld(), "x").reset(4)["observation"].tolist() == [[4.0, 0.0]]


def test_the_signature_of_compiled_code_is_taken_on_trust() -> None:
    """Where nothing can be read about `reset`, today's interface is assumed."""

    class Compiled:
        reset = dict  # a builtin that has no signature to read

    assert oldapi.takes_seed(Compiled())
