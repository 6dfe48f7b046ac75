"""Finite numbers: every observation and reward must be finite, wherever a simulator runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hts_envs.contract import Array
from hts_envs.errors import BrokenSimulator

_FEW = 16  # up to so many numbers, a Python loop is faster than NumPy's calls


class NotFinite(NamedTuple):
    """The first row that holds a NaN or infinity, and a sentence about it."""

    row: int
    sentence: str

    def error(self, replica: int, episode: int, step: int) -> BrokenSimulator:
        """Return the exception for this step of an episode, counted from 1; 0 is its reset."""
        place = f"step {step}" if step else "the reset"
        return BrokenSimulator(f"replica {replica}, {place} of episode {episode}: {self.sentence}")


def are_finite(array: Array) -> bool:
    """Return whether no number of a floating-point array is NaN or infinite."""
    if array.size == 1:
        return math.isfinite(array.item())
    if array.size <= _FEW:
        return all(map(math.isfinite, array.ravel().tolist()))
    # Half the time of `np.isfinite(array).all()`; a sum would be as fast, and may overflow.
    return bool(np.count_nonzero(np.isfinite(array)) == array.size)


def not_finite(observation: Mapping[str, Array], reward: Array | None = None) -> NotFinite | None:
    """Return what is NaN or infinite in arrays of (rows, agents, ...), or None."""
    if reward is not None and not are_finite(reward):
        return _first("the reward", reward)
    for name, array in observation.items():
        if array.dtype.kind == "f" and not are_finite(array):
            field = "the observation"
            if name != "observation":
                field = f"field `{name}` of the observation"
            return _first(field, array)
    return None


def _first(what: str, array: Array) -> NotFinite:
    first = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
    value = "NaN" if np.isnan(array[first]) else "infinite"
    agent = f" of agent {first[1]}" if array.shape[1] > 1 else ""
    index = f" at {list(first[2:])}" if len(first) > 2 else ""
    return NotFinite(first[0], f"{what}{agent} is {value}{index}")
