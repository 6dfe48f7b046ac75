"""A picture of what a policy sees, for worlds that make none of themselves.

Images are shown as they are, planes of other kinds in colours; a vector's numbers are bars around
a middle line, on a scale in which numbers of any size have a place.
"""

from __future__ import annotations

import numpy as np

from hts_envs.contract import Array, Observation

_SIZE = 320  # pixels along the longer side, at least
_BARS, _BAR_HEIGHT = 48, 96  # of a row of bars: how many, and pixels
_PAPER, _UP, _DOWN, _AXIS = (250, 250, 250), (0, 114, 178), (213, 94, 0), (160, 160, 160)
_COLOURS = np.array(
    [(0, 158, 115), (213, 94, 0), (255, 255, 255), (240, 228, 66), (86, 180, 233), (204, 121, 167)],
    np.float64,
)


def sketch(seen: Observation) -> Array:
    """(height, width, 3) uint8, of what the first agent sees."""
    own = {name: np.asarray(array[0]) for name, array in seen.items()}
    images = [array for array in own.values() if _is_image(array)]
    if images:
        return _enlarged(_coloured(images[0]))
    return _bars(np.concatenate([array.reshape(-1).astype(np.float64) for array in own.values()]))


def _is_image(array: Array) -> bool:
    return array.ndim == 3 and array.dtype == np.uint8 and min(array.shape[:2]) > 8


def _coloured(image: Array) -> Array:
    """One plane is grey, three are red, green and blue, and others have a colour each."""
    planes = image.shape[-1]
    if planes == 1:
        return np.repeat(image, 3, axis=-1)
    if planes == 3:
        return image.copy()
    colours = _COLOURS[np.arange(planes) % len(_COLOURS)]
    return np.asarray((image[..., None] / 255.0 * colours).max(axis=-2), np.uint8)


def _enlarged(image: Array) -> Array:
    """Every point as a square of points."""
    times = -(-_SIZE // max(image.shape[:2]))
    return np.asarray(image.repeat(times, axis=0).repeat(times, axis=1))


def _bars(numbers: Array) -> Array:
    """Rows of bars: upwards, or downwards where a number is below zero."""
    rows = -(-len(numbers) // _BARS)
    columns = min(len(numbers), _BARS)
    width = max(4, _SIZE // columns)
    picture = np.full((rows * _BAR_HEIGHT, columns * width, 3), _PAPER, np.uint8)
    half = _BAR_HEIGHT // 2 - 4
    finite = np.nan_to_num(numbers, nan=0.0, posinf=1e9, neginf=-1e9)
    sizes = np.round(finite / (1.0 + np.abs(finite)) * half).astype(int)
    for index, size in enumerate(sizes):
        row, column = divmod(index, columns)
        middle, left = row * _BAR_HEIGHT + _BAR_HEIGHT // 2, column * width
        picture[middle, left : left + width] = _AXIS
        bar = slice(middle - size, middle) if size > 0 else slice(middle + 1, middle + 1 - size)
        picture[bar, left + 1 : left + width - 1] = _UP if size > 0 else _DOWN
    return picture
