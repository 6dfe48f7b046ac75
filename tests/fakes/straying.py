"""A simulator that strays by one unit in the last place, from one step of one replica on.

It does where the environment says so: HTS_TEST_STRAYS is `always`, or `spawned` for the processes
that a run starts, so that one machine layout differs from another. With `spawned further` they
stray by two units.
"""

from __future__ import annotations

import os

import gymnasium
import numpy as np

from tests.fakes.births import is_born

REPLICA, STEP = 2, 37
"""Who strays, and from which observation of its life on."""


class Straying(gymnasium.Env[np.ndarray, int]):
    """Counts its steps beside a number that should be one."""

    observation_space = gymnasium.spaces.Box(-100_000, 100_000, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, units: int) -> None:
        self._units = units
        self._steps = 0

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        self._played = 0
        return self._seen(), {}

    def step(self, action):  # type: ignore[no-untyped-def]
        self._steps += 1
        self._played += 1
        return self._seen(), float(action), self._played == 10, False, {}

    def _seen(self) -> np.ndarray:
        one = np.float32(1)
        for _ in range(self._units if self._steps >= STEP else 0):
            one = np.nextafter(one, np.float32(2))
        return np.array([self._steps, one], np.float32)


def make(replica: int = 0) -> Straying:
    """The factory that `python:` calls."""
    told = os.environ.get("HTS_TEST_STRAYS", "")
    spawned = is_born(os.getpid())
    strays = told == "always" or (told.startswith("spawned") and spawned)
    return Straying(replica == REPLICA and (1 + told.endswith("further")) * strays)
