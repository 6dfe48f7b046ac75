"""gfootball's own environment, to compare with: what tests and `tools/football_cost` hold ours to.

Importing gfootball imports gym, which is neither needed nor wanted: it prints a banner, and an
old release of it breaks newer numpy. While gfootball is imported a few empty classes stand in for
it; afterwards `sys.modules` is as it was.
"""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType
from typing import Any

from hts_envs.football.engine import Setup, draw


@functools.cache
def gfootball(module: str = "football_env") -> Any:
    """A module of `gfootball.env`."""
    own = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_gym(name)}
    sys.modules.update(_stand_in())
    try:
        return importlib.import_module(f"gfootball.env.{module}")
    finally:
        for name in [name for name in sys.modules if _is_gym(name)]:
            del sys.modules[name]
        sys.modules.update(own)


def environment(setup: Setup, seed: int, rewards: str = "scoring") -> Any:
    """gfootball's environment whose next reset begins the episode of this seed."""
    chance = draw(seed)
    values = {
        "level": setup.scenario.full,
        "players": [f"agent:left_players={setup.left},right_players={setup.right}"],
        "game_engine_random_seed": chance.engine_seed,
        "reverse_team_processing": chance.reverse,
    }
    config = gfootball("config").Config(values)
    made = gfootball().FootballEnv(config)
    config["episode_number"] = chance.episode - 1  # a reset adds one
    wrappers = gfootball("wrappers")
    return wrappers.CheckpointRewardWrapper(made) if "checkpoints" in rewards else made


def _is_gym(name: str) -> bool:
    return name == "gym" or name.startswith("gym.")


class _Wrapper:
    """As much of gym's wrappers as gfootball's reward wrapper uses."""

    def __init__(self, env: Any) -> None:
        self.env = env

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def reset(self) -> Any:
        return self.env.reset()

    def step(self, action: Any) -> Any:
        observation, reward, done, info = self.env.step(action)
        return observation, self.reward(reward), done, info

    def reward(self, reward: Any) -> Any:
        return reward


def _stand_in() -> dict[str, ModuleType]:
    """Modules that let gfootball be imported."""
    modules = {
        name: ModuleType(name)
        for name in ("gym", "gym.envs", "gym.envs.registration", "gym.spaces")
    }
    base = type("Env", (), {"unwrapped": property(lambda self: self)})
    for name in ("Wrapper", "ObservationWrapper", "RewardWrapper"):
        setattr(modules["gym"], name, _Wrapper)
    modules["gym"].Env = base  # type: ignore[attr-defined]
    modules["gym"].spaces = modules["gym.spaces"]  # type: ignore[attr-defined]
    modules["gym.envs.registration"].register = lambda **_: None  # type: ignore[attr-defined]
    return modules
