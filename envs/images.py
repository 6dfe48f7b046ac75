"""Images: three axes of bytes, and which of them holds the channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

_CHANNELS = (1, 3, 4)
"""Grey, colours, colours with a transparency; or so many grey frames."""

_IMAGE_AXES = 3


def is_image(shape: Sequence[int], dtype: str) -> bool:
    """Is this an array of pixels?"""
    return len(shape) == _IMAGE_AXES and dtype == "uint8"


def channel_axis(shape: Sequence[int]) -> Literal["first", "last", "unclear"]:
    """Return where an image of this shape has its channels, which are far fewer than its pixels.

    "unclear" where the first axis is too short for rows of pixels, and yet may not be channels.
    """
    first, height, width = shape
    shorter = min(height, width)
    if width <= max(_CHANNELS) or first >= shorter:
        return "last"
    if first in _CHANNELS and 2 * first <= shorter:
        return "first"
    return "unclear" if first in _CHANNELS or 4 * first <= shorter else "last"
