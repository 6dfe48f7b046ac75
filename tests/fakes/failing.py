"""A simulator that breaks down after some steps."""

from __future__ import annotations

import ctypes
import os

import gymnasium
import numpy as np


class Failing(gymnasium.Env[np.ndarray, int]):
    """Counts its steps, then raises."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, after: int) -> None:
        self.after = after
        self.steps = 0

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        return np.zeros(2, np.float32), {}

    def step(self, action):  # type: ignore[no-untyped-def]
        self.steps += 1
        if self.steps > self.after:
            raise RuntimeError("the simulator's own words")
        return np.zeros(2, np.float32), 0.0, False, False, {}


def make(after: int = 5) -> Failing:
    """The factory that `python:` calls."""
    return Failing(after)


def licence(level: int) -> Failing:
    """A factory that raises, in a function that it calls."""
    raise LookupError(f"no licence for level {level}")


def raising(level: int = 1) -> Failing:
    """The factory around it."""
    return licence(level)


def exiting(code: int = 3) -> Failing:
    """A factory that ends its process."""
    os._exit(code)


def crashing() -> Failing:
    """A factory that reads memory which is not there."""
    ctypes.string_at(0)
    raise AssertionError("never reached")


class Leaving(Failing):
    """Ends its process in a step."""

    def step(self, action):  # type: ignore[no-untyped-def]
        if self.steps == self.after:
            os._exit(3)
        return super().step(action)


def leaving(after: int = 0) -> Leaving:
    """A factory of those."""
    return Leaving(after)


def absent(replica: int = 0) -> Failing:
    """A simulator that cannot be built a fourth time."""
    if replica == 3:
        raise RuntimeError("no licence for a fourth engine")
    return Failing(10**9)
