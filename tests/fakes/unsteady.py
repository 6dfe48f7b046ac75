"""A simulator whose seventh step holds a little of the process's own randomness."""

from __future__ import annotations

import os

import gymnasium
import numpy as np


class Unsteady(gymnasium.Env[np.ndarray, int]):
    """Deterministic but for one element of one observation."""

    observation_space = gymnasium.spaces.Box(-100, 100, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        self._steps = 0
        return np.full(3, seed % 97 / 97, np.float32), {}

    def step(self, action):  # type: ignore[no-untyped-def]
        self._steps += 1
        observation = np.full(3, self._steps, np.float32)
        if self._steps == 7:
            observation[1] += int.from_bytes(os.urandom(2), "little") * 1e-5
        return observation, 1.0, self._steps > 20, False, {}


def make() -> Unsteady:
    """The factory that `python:` calls."""
    return Unsteady()
