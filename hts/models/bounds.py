"""From what was drawn to what is done: a continuous action is brought within its bounds.

What was drawn is what is stored and learnt from. NumPy only: executors need no networks for this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from hts_envs.contract import Array, Box, Spaces

Taken: TypeAlias = Callable[[Array], Array]


def taken_in(spaces: Spaces, *, squash: bool = False) -> Taken:
    """What the actions in a storage mean to the simulators of these spaces."""
    if not isinstance(spaces.action, Box):
        return as_drawn
    low = np.asarray(spaces.action.low, np.float32)
    high = np.asarray(spaces.action.high, np.float32)
    if squash:
        return lambda drawn: squashed(drawn, low, high)
    return lambda drawn: np.clip(drawn, low, high)


def as_drawn(drawn: Array) -> Array:
    """Choices need no bounds."""
    return drawn


def squashed(drawn: Array, low: Array, high: Array) -> Array:
    """Through tanh, whose range is laid over the bounds.

    Every number by itself: its bits do not depend on the array that it stands in. Roundings may
    leave the bounds, so the result is clipped.
    """
    share = (np.tanh(drawn, dtype=np.float32) + np.float32(1.0)) * np.float32(0.5)
    return np.clip(np.asarray(low + share * (high - low), np.float32), low, high)
