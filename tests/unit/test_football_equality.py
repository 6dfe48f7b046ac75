"""The football family held to gfootball's own environment, bit by bit."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from hts_envs.contract import Observation
from hts_envs.football import reference
from hts_envs.football.engine import Setup
from hts_envs.football.representations import Raw
from hts_envs.football.scenarios import SCENARIOS, Options, resolve
from hts_envs.football.scenarios import options as options_of
from hts_envs.football.world import FootballWorld
from tests.unit.test_football import RIGHT, SHOT, actions, same

pytest.importorskip("gfootball_engine")


def theirs_as_raw(seen: list[dict[str, Any]]) -> Observation:
    """FootballEnv's observation of each agent in our names, types and padding."""
    made = {}
    for name, space in Raw.spaces.items():
        rows = np.zeros((len(seen), *space.shape), space.dtype)
        if name.endswith("_roles"):
            rows[:] = -1
        for row, each in enumerate(seen):
            value = np.asarray(each[name])
            rows[(row, slice(len(value))) if value.ndim else row] = value
        made[name] = rows
    return made


def converted(seen: list[dict[str, Any]], representation: str) -> Observation:
    if representation == "raw":
        return theirs_as_raw(seen)
    if representation == "extracted":
        drawer = reference.gfootball("observation_preprocessing")
        return {"observation": drawer.generate_smm(seen)}
    wrapper = reference.gfootball("wrappers").Simple115StateWrapper
    return {"observation": wrapper.convert_observation(seen, True)}


CASES = [
    ("3v1", 1, 0, 0),
    ("3v1", 3, 1, 4),
    ("rsk", 2, 0, 3),
    ("corner", 2, 2, 5),
    ("lazy", 1, 0, 6),
    ("11v11_stochastic", 1, 0, 1),
    ("11v11_easy", 3, 2, 2),
    ("11v11_kaggle", 11, 11, 8),
    ("5v5", 1, 1, 9),
    ("1v1", 1, 1, 10),
]


@pytest.mark.parametrize(("name", "left", "right", "seed"), CASES)
def test_equal_to_football_env(name: str, left: int, right: int, seed: int) -> None:
    """Observations, rewards and ends are FootballEnv's, bit by bit, in every representation."""
    scenario = SCENARIOS[resolve(name)]
    made = options_of(scenario)
    worlds = {
        each: FootballWorld(
            scenario,
            made(
                representation=each,
                agents=left,
                right_agents=right,
                rewards="scoring,checkpoints",
            ),
        )
        for each in ("extracted", "simple115v2", "raw")
    }
    theirs = reference.environment(Setup(scenario, left, right, False), seed, "checkpoints")
    seen = theirs.reset()
    for each, world in worlds.items():
        assert same(world.reset(seed), converted(seen, each)), each
    for count, row in enumerate(actions(seed, left + right, 60)):
        seen, reward, done, _ = theirs.step(row)
        for each, world in worlds.items():
            step = world.step(row)
            assert same(step.observation, converted(seen, each)), (count, each)
            assert step.reward.tobytes() == np.asarray(reward).tobytes(), count
            assert step.terminated == done, count
        if done:
            break
    theirs.unwrapped.close()
    for world in worlds.values():
        world.close()


@pytest.mark.parametrize(("name", "agents", "seed"), [("1v1", 1, 2), ("5v5", 4, 1)])
def test_idlers_are_hurried(name: str, agents: int, seed: int) -> None:
    """Whoever does not take a set piece is made to, as in FootballEnv, for either team."""
    scenario = SCENARIOS[resolve(name)]
    made = Options(representation="raw", agents=agents, right_agents=agents)
    world = FootballWorld(scenario, made)
    theirs = reference.environment(Setup(scenario, agents, agents, False), seed)
    generator = np.random.default_rng(seed)
    current = world.reset(seed)
    assert same(current, theirs_as_raw(theirs.reset()))
    waited = 0
    for _ in range(400):
        busy = generator.choice([1, 5, 12, 9, 3, 7], size=2 * agents)
        chosen = np.zeros(2 * agents, np.int64) if current["game_mode"][0] else busy
        seen, _, _, _ = theirs.step(chosen)
        current = world.step(chosen).observation
        assert same(current, theirs_as_raw(seen))
        waited = max(waited, world._match._core.waiting_for_game_count)
    assert waited > 25
    theirs.close()
    world.close()


def test_checkpoints_of_a_goal() -> None:
    """On the way to a goal the shaped rewards are the wrapper's, and come to 2 in the end."""
    scenario = SCENARIOS[resolve("empty_goal")]
    world = FootballWorld(scenario, Options(rewards="scoring,checkpoints"))
    theirs = reference.environment(Setup(scenario, 1, 0, False), 2, "checkpoints")
    world.reset(2)
    theirs.reset()
    total, seen = 0.0, set()
    for count in range(200):
        chosen = np.array([RIGHT if count < 100 else SHOT])
        _, reward, done, _ = theirs.step(chosen)
        step = world.step(chosen)
        assert step.reward.tobytes() == reward.tobytes()
        seen.add(round(float(reward[0]), 3))
        total += float(reward[0])
        if done:
            break
    assert total == pytest.approx(2.0, abs=1e-6)
    assert seen >= {0.0, 0.1}
    theirs.unwrapped.close()
    world.close()


def test_no_gym_is_left() -> None:
    """Neither our world nor the reference leaves gym, its stand-in or a GUI package imported."""
    reference.gfootball()
    assert not {"gym", "gym.spaces", "pygame"} & set(sys.modules)
