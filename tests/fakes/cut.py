"""A simulator whose episodes are cut off after five steps, and which pays for large actions."""

from __future__ import annotations

import gymnasium
import numpy as np


class Cut(gymnasium.Env[np.ndarray, np.ndarray]):
    """Shows how many steps its episode has taken."""

    observation_space = gymnasium.spaces.Box(0, 5, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        self._steps = 0
        return self._seen(), {}

    def step(self, action):  # type: ignore[no-untyped-def]
        self._steps += 1
        return self._seen(), float(action[0]), False, self._steps == 5, {}

    def _seen(self) -> np.ndarray:
        return np.array([self._steps], np.float32)


def make() -> Cut:
    """The factory that `python:` calls."""
    return Cut()
