"""Environments with Gymnasium's interface and known numbers, each unlike the others in one way."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env[Any, Any]):
    """Shows seed (modulo 1000) and step; reward is the step; ends when told, by action."""

    observation_space: Any = spaces.Box(0.0, np.inf, (2,), np.float64)
    action_space: Any = spaces.Discrete(4)
    GO_ON, TERMINATE, TRUNCATE, BOTH = range(4)

    def __init__(self) -> None:
        self.seeds: list[int] = []
        self.actions: list[Any] = []
        self.count = 0
        self.closed = False
        self.screen = np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        assert seed is not None, "every reset is given a seed"
        self.seeds.append(seed)
        self.count = 0
        self.screen[:] = (seed % 1000, 0)
        return self.screen, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.count += 1
        self.screen[1] = self.count
        terminated = action in (self.TERMINATE, self.BOTH)
        truncated = action in (self.TRUNCATE, self.BOTH)
        return self.screen, self.count, terminated, truncated, {"score": 7, "x": 1}

    def close(self) -> None:
        self.closed = True


class Spaced(gymnasium.Env[Any, Any]):
    """Any spaces; observations are drawn from the space by its own sampler, kept in `shown`."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.shown: list[Any] = []
        self.actions: list[Any] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(0 if seed is None else seed % 2**32)
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        return self._show(), 0.0, False, False, {}

    def _show(self) -> Any:
        self.shown.append(self.observation_space.sample())
        return self.shown[-1]


class Canned(gymnasium.Env[Any, Any]):
    """Returns what it was told to return, and raises it where that is an exception."""

    observation_space: Any = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, reset: Any = None, step: Any = None) -> None:
        good = np.zeros(2, np.float32)
        self._reset = (good, {}) if reset is None else reset
        self._step = (good, 0.0, False, False, {}) if step is None else step

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._say(self._reset)

    def step(self, action: Any) -> Any:
        return self._say(self._step)

    def _say(self, what: Any) -> Any:
        if isinstance(what, Exception):
            raise what
        return what


class Old:
    """Gym's interface of before 2022: `seed()`, a bare observation, a bare `done`."""

    observation_space = spaces.Box(0.0, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(3)
    GO_ON, DONE, TIMED_OUT = range(3)

    def __init__(self, reason: bool = False) -> None:
        self.reason = reason
        self.seeds: list[int] = []

    def seed(self, seed: int) -> list[int]:
        self.seeds.append(seed)
        return [seed]

    def reset(self) -> Any:
        return np.zeros(1, np.float32)

    def step(self, action: int) -> tuple[Any, float, bool, dict[str, Any]]:
        done = action != self.GO_ON
        info = {"TimeLimit.truncated": action == self.TIMED_OUT} if done and self.reason else {}
        return np.ones(1, np.float32), 1.0, done, info

    def close(self) -> None:
        return None


class OldPair(Old):
    """Old, and its observations are pairs that end in a dict."""

    observation_space: Any = spaces.Tuple(
        (spaces.Discrete(3), spaces.Dict({"a": spaces.Discrete(2)}))
    )

    def reset(self) -> Any:
        return 2, {"a": 1}


class OldWrapper:
    """Passes keywords on to an environment that takes none."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = env.observation_space
        self.action_space = env.action_space

    def reset(self, **keywords: Any) -> Any:
        return self.env.reset(**keywords)

    def step(self, action: Any) -> Any:
        return self.env.step(action)

    def seed(self, seed: int) -> Any:
        return self.env.seed(seed)


class Seedless(Old):
    """Old, and nobody can give it a seed."""

    seed: Any = None


class HalfOld(Counter):
    """Takes a seed, but returns the observation alone: Gym between the two interfaces."""

    def reset(self, **keywords: Any) -> Any:
        return super().reset(**keywords)[0]
