"""From what was drawn to what is done: a continuous action is brought within its bounds.

What was drawn is what is stored and learnt from. NumPy only: executors need no networks for this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from hts_envs.contract import Array, Box, Spaces

Taken: TypeAlias = Callable[[Array], Array]

Bounds: TypeAlias = Literal["clipped", "squashed", "scaled"]
"""How numbers come within their bounds: cut off, through tanh, or from [-1, 1]."""


def taken_in(spaces: Spaces, bounds: Bounds = "clipped") -> Taken:
    """What the actions in a storage mean to the simulators of these spaces."""
    if not isinstance(spaces.action, Box):
        return as_drawn
    low = np.asarray(spaces.action.low, np.float32)
    high = np.asarray(spaces.action.high, np.float32)
    if bounds == "squashed":
        return lambda drawn: squashed(drawn, low, high)
    if bounds == "scaled":
        return lambda drawn: scaled(drawn, low, high)
    return lambda drawn: np.clip(drawn, low, high)


def as_drawn(drawn: Array) -> Array:
    """Choices need no bounds."""
    return drawn


def squashed(drawn: Array, low: Array, high: Array) -> Array:
    """Through tanh, whose range is laid over the bounds.

    Every number by itself: its bits do not depend on the array that it stands in. Roundings may
    leave the bounds, so the result is clipped.
    """
    return scaled(np.tanh(drawn, dtype=np.float32), low, high)


def scaled(drawn: Array, low: Array, high: Array) -> Array:
    """From [-1, 1], which is laid over the bounds."""
    share = (drawn.astype(np.float32, copy=False) + np.float32(1.0)) * np.float32(0.5)
    return np.clip(np.asarray(low + share * (high - low), np.float32), low, high)
