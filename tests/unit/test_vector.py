"""Gymnasium's vector environments as batched worlds."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest

from hts_envs.adapter import GymWorld
from hts_envs.contract import BatchedWorld, Place
from hts_envs.errors import BadName, BrokenSimulator
from hts_envs.registry import make
from hts_envs.vector import VectorWorld
from tests.fakes.gym_worlds import Counter


def several(name: str, replicas: int) -> BatchedWorld:
    world = make(f"python:tests.fakes.factories:{name}", Place(replicas=replicas))
    assert isinstance(world, BatchedWorld)
    return world


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_vector_environments_that_reset_themselves_are_refused(mode: str) -> None:
    """Rule 4: only the declared mode DISABLED will do, and the sentence says how to build it."""
    with pytest.raises(BadName, match=r"AutoresetMode\.DISABLED"):
        several(f"vector?mode={mode}", 2)


def test_a_vector_environment_resets_the_rows_it_is_told() -> None:
    """Rules 4 and 16: rows begin with their own whole seeds, the others go on undisturbed."""
    world = several("vector", 3)
    assert isinstance(world, VectorWorld)
    first = world.reset(np.arange(3), np.array([1, 2, 2**62 + 3], np.uint64))["observation"]
    assert first[:, 0, 0].tolist() == [1, 2, (2**62 + 3) % 1000]
    ends = np.array([[Counter.TERMINATE], [Counter.GO_ON], [Counter.TRUNCATE]])
    step = world.step(ends)
    assert step.terminated.tolist() == [True, False, False]
    assert step.truncated.tolist() == [False, False, True]
    assert step.reward.shape == (3, 1)
    assert step.reward.dtype == np.float32
    again = world.reset(np.array([2, 0]), np.array([30, 10], np.uint64))["observation"]
    assert again[:, 0].tolist() == [[30, 0], [10, 0]]
    after = world.step(np.zeros((3, 1), np.int64))
    assert after.observation["observation"][:, 0, 1].tolist() == [1, 2, 1]
    assert after.facts["return"].tolist() == [1, 3, 1]
    assert after.facts["length"].tolist() == [1, 2, 1]
    world.close()


def test_a_vector_environment_s_buffers_stay_inside() -> None:
    """Rule 10: nothing returned changes with the next step, though the environment reuses all."""
    world = several("vector", 2)
    world.reset(np.arange(2), np.array([1, 2], np.uint64))
    first = world.step(np.zeros((2, 1), np.int64))
    kept = [first.observation["observation"].copy(), first.reward.copy(), first.facts["length"][0]]
    world.step(np.zeros((2, 1), np.int64))
    assert np.array_equal(first.observation["observation"], kept[0])
    assert np.array_equal(first.reward, kept[1])
    assert first.facts["length"][0] == kept[2]


def test_rewards_and_flags_are_copied_too() -> None:
    """Rule 10: an environment that hands out its own reward and flag arrays is not believed."""
    env = Ailing(2, "not at all")
    world = VectorWorld(env, "x")
    world.reset(np.arange(2), np.zeros(2, np.uint64))
    step = world.step(np.zeros((2, 1), np.int64))
    env.flags[:] = True
    env.rewards[:] = 5.0
    assert not step.terminated.any()
    assert not step.truncated.any()
    assert not step.reward.any()


def test_a_vector_environment_may_begin_row_by_row() -> None:
    """The first reset of a part leaves the rest to its own reset."""
    world = several("vector", 2)
    assert world.reset(np.array([1]), np.array([8], np.uint64))["observation"][0, 0, 0] == 8
    assert world.reset(np.array([0]), np.array([9], np.uint64))["observation"][0, 0, 0] == 9
    shown = world.step(np.zeros((2, 1), np.int64)).observation["observation"]
    assert shown[:, 0].tolist() == [[9, 1], [8, 1]]


def test_a_vector_environment_equals_its_environments() -> None:
    """Row by row the same bits as one environment at a time, through ends and resets."""
    world = several("cartpoles", 3)
    assert world.traits.time_limit == 20
    singles: list[Any] = [
        GymWorld(gymnasium.make("CartPole-v1", max_episode_steps=20), "x") for _ in range(3)
    ]
    seeds = itertools.count(100)
    begun = [next(seeds) for _ in singles]
    shown = world.reset(np.arange(3), np.array(begun, np.uint64))["observation"]
    for row, single in enumerate(singles):
        assert np.array_equal(shown[row], single.reset(begun[row])["observation"])
    draw = np.random.default_rng(0)
    for _ in range(100):
        actions = draw.integers(2, size=(3, 1))
        step = world.step(actions)
        for row, single in enumerate(singles):
            own = single.step(actions[row])
            assert np.array_equal(
                step.observation["observation"][row], own.observation["observation"]
            )
            assert (step.terminated[row], step.truncated[row]) == (own.terminated, own.truncated)
            if own.terminated or own.truncated:
                assert step.facts["return"][row] == own.facts["return"]
                seed = next(seeds)
                fresh = world.reset(np.array([row]), np.array([seed], np.uint64))["observation"]
                assert np.array_equal(fresh[0], single.reset(seed)["observation"])


class Ailing(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A vector environment whose step fails, in a way of one's choice."""

    metadata = {"autoreset_mode": "disabled"}  # noqa: RUF012

    def __init__(self, replicas: int, how: str) -> None:
        self.num_envs = replicas
        self.how = how
        self.flags = np.zeros(replicas, np.bool_)
        self.rewards = np.zeros(replicas + (how == "reward"), np.float64)
        self.single_observation_space = gymnasium.spaces.Discrete(2)
        self.single_action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **keywords: Any) -> Any:
        if self.how == "reset":
            raise OSError("no engine")
        return np.zeros(self.num_envs, np.int64), {}

    def step(self, actions: Any) -> Any:
        if self.how == "step":
            raise OSError("engine gone")
        observation = np.zeros(self.num_envs + (self.how == "observation"), np.int64)
        return observation, self.rewards, self.flags, self.flags, {}


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("step", "raised OSError in step: engine gone"),
        ("observation", r"declared as int64\[2\], but came as int64\[3\]"),
        ("reward", r"reward must have one entry for each of 2 replicas, got the shape \[3\]"),
    ],
)
def test_what_goes_wrong_in_a_vector_environment_is_said(how: str, sentence: str) -> None:
    """Errors and shapes are named as they are for a single environment."""
    world = VectorWorld(Ailing(2, how), "x")
    world.reset(np.arange(2), np.zeros(2, np.uint64))
    with pytest.raises(BrokenSimulator, match=sentence):
        world.step(np.zeros((2, 1), np.int64))


def test_a_vector_environment_that_cannot_begin() -> None:
    """A failing reset carries its cause."""
    with pytest.raises(BrokenSimulator, match="raised OSError in reset") as info:
        VectorWorld(Ailing(2, "reset"), "x").reset(np.arange(2), np.zeros(2, np.uint64))
    assert isinstance(info.value.__cause__, OSError)
