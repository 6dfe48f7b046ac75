"""A curve in a terminal: braille dots above axes with numbers and units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hts.report.drawing import Line, Piece, Style
from hts.report.svg import ticks
from hts_envs.contract import Array

LEAST_ROWS = 8
"""Fewer than these show less than a curve in one row does."""

_AROUND = 3  # rows: the name of the upright axis, the other axis, and its numbers
_MARGIN = 9  # columns of the numbers beside the upright axis
_FRAMES = {True: ("│", "┤", "─", "┴", "└"), False: ("|", "+", "-", "+", "+")}
"""Upright line and its tick, horizontal line and its tick, corner; by `Style.blocks`."""

_BITS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
"""The dots of a braille character, from the lowest row up."""


@dataclass(frozen=True)
class Axis:
    """A range of numbers with the name of what they count."""

    name: str
    low: float
    high: float

    def places(self, values: Array, count: int) -> Array:
        """Return which of so many places along the axis each value has."""
        share = (values - self.low) / (self.high - self.low)
        return np.asarray(np.round(share * (count - 1)).astype(int))

    def ticks(self, about: int, count: int) -> dict[int, str]:
        """Return round numbers by their places."""
        numbers = dict(ticks(self.low, self.high, about))
        places = self.places(np.array(list(numbers)), count)
        return dict(zip(places.tolist(), numbers.values(), strict=True))


def chart(
    points: Sequence[tuple[float, float]],
    names: tuple[str, str],
    size: tuple[int, int],
    style: Style,
) -> list[Line]:
    """Return a curve through these points, in order of x, in so many columns and rows."""
    width, height = size[0] - _MARGIN - 1, size[1] - _AROUND
    x, y = np.array(points, np.float64).T
    across = Axis(names[0], float(x[0]), float(x[-1]))
    up = Axis(names[1], *_widened(float(y.min()), float(y.max())))
    numbers = up.ticks(max(2, height // 3), height)
    upright, tick, *_ = _FRAMES[style.blocks]
    rows: list[Line] = [[Piece(f"{'':{_MARGIN}}{up.name}", "dim")]]
    for row, cells in zip(range(height - 1, -1, -1), _cells(x, y, up, width, height), strict=True):
        axis = f"{numbers.get(row, ''):>{_MARGIN - 1}} {tick if row in numbers else upright}"
        rows.append([Piece(axis, "dim"), Piece(_drawn(cells, style), "green")])
    return [*rows, *_foot(across, width, style)]


def _widened(low: float, high: float) -> tuple[float, float]:
    """Equal ends have room around them."""
    return (low, high) if high > low else (low - (abs(low) or 1.0), high + (abs(high) or 1.0))


def _cells(x: Array, y: Array, up: Axis, width: int, height: int) -> list[list[int]]:
    """Return the braille dots of each place, the highest row first."""
    values = np.interp(np.linspace(x[0], x[-1], 2 * width), x, y)
    dots = up.places(values, 4 * height).tolist()
    cells = [[0] * width for _ in range(height)]
    for at, (before, dot) in enumerate(zip([dots[0], *dots], dots, strict=False)):
        for each in range(min(before, dot), max(before, dot) + 1):
            cells[height - 1 - each // 4][at // 2] |= _BITS[each % 4][at % 2]
    return cells


def _drawn(cells: Sequence[int], style: Style) -> str:
    if style.blocks:
        return "".join(chr(0x2800 + bits) if bits else " " for bits in cells)
    return "".join("*" if bits else " " for bits in cells)


def _foot(across: Axis, width: int, style: Style) -> list[Line]:
    """Return the axis that runs along, and its numbers with its name at the end."""
    *_, along, tick, corner = _FRAMES[style.blocks]
    line, numbers = [along] * width, [" "] * (width - len(across.name) - 1)
    for place, text in across.ticks(max(2, width // 20), width).items():
        begin = max(0, place - len(text) // 2)
        if begin + len(text) < len(numbers):
            line[place] = tick
            numbers[begin : begin + len(text)] = text
    indent = " " * _MARGIN
    return [
        [Piece(f"{indent}{corner}{''.join(line)}", "dim")],
        [Piece(f"{indent} {''.join(numbers)} {across.name}", "dim")],
    ]
