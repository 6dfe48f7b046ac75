"""Small charts as SVG, for a page that needs nothing else: no script, no font, no network.

Colours are the page's: a line has the class `line` and the number of its colour. A chart is as wide
as its place and readable on a phone, because it is drawn for one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from hts_envs.contract import Array

WIDTH, HEIGHT = 360, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 8, 24
_MOST = 400
"""Points of a line: more than a screen has columns for it."""

_DIGITS = 5  # behind the point; what needs more has an exponent
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, eq=False)
class Line:
    """What is drawn; numbers only, x ascending."""

    name: str
    x: Array
    y: Array


@dataclass(frozen=True)
class _Scale:
    """From values to places."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, values: Array) -> Array:
        share = (values - self.low) / (self.high - self.low)
        return np.asarray(np.round(self.first + share * (self.last - self.first), 2))


def thinned(line: Line) -> Line:
    """The line with at most so many points that its peaks stay: of each stretch, both extremes."""
    if len(line.x) <= _MOST:
        return line
    bounds = np.linspace(0, len(line.x), _MOST // 2 + 1).astype(int)
    kept: list[int] = []
    for begin, end in itertools.pairwise(bounds):
        stretch = line.y[begin:end]
        kept += sorted({begin + int(stretch.argmin()), begin + int(stretch.argmax())})
    return Line(line.name, line.x[kept], line.y[kept])


def chart(lines: Sequence[Line], name: str, x: str = "steps", *, from_zero: bool = False) -> str:
    """Return lines over one axis, whose numbers begin at 0 if asked."""
    shown = [thinned(line) for line in lines]
    every_x, every_y = (np.concatenate([getattr(line, of) for line in shown]) for of in "xy")
    across, up = _scales(every_x, every_y, from_zero=from_zero)
    body = "".join(_line(line, number, across, up) for number, line in enumerate(shown))
    title = ", ".join(line.name for line in lines)
    return _framed(name, _axes(across, up, x) + body, title)


def shares(lines: Sequence[Line], name: str, x: str = "steps") -> str:
    """Parts of a whole, one above the other: at the same places, between 0 and 1."""
    low = np.zeros(len(lines[0].x))
    across, up = _scales(lines[0].x, np.array([0.0, 1.0]), room=0.0, from_zero=True)
    body = []
    for number, line in enumerate(lines):
        high = low + line.y
        there = _points(across(line.x), up(high))
        back = _points(across(line.x[::-1]), up(low[::-1]))
        body.append(f'<polygon class="area c{number % 6}" points="{there} {back}"/>')
        low = high
    return _framed(name, "".join(body) + _axes(across, up, x), name)


def _scales(
    x: Array, y: Array, room: float = 0.06, *, from_zero: bool = False
) -> tuple[_Scale, _Scale]:
    left, right = float(x.min()), float(x.max())
    low, high = float(y.min()), float(y.max())
    if from_zero:
        low = min(0.0, low)
    spare = (high - low) * room
    if not high > low:
        spare = abs(high) * 0.1 or 1.0
    if not right > left:
        left, right = left - (abs(left) * 0.1 or 1.0), right + (abs(right) * 0.1 or 1.0)
    return (
        _Scale(left, right, _LEFT, WIDTH - _RIGHT),
        _Scale(low if from_zero else low - spare, high + spare, HEIGHT - _BOTTOM, _TOP),
    )


def _line(line: Line, number: int, across: _Scale, up: _Scale) -> str:
    x, y = across(line.x), up(line.y)
    if len(x) == 1:
        return f'<circle class="dot c{number % 6}" cx="{x[0]:g}" cy="{y[0]:g}" r="3"/>'
    return f'<polyline class="line c{number % 6}" points="{_points(x, y)}"/>'


def _points(x: Array, y: Array) -> str:
    return " ".join(f"{a:g},{b:g}" for a, b in zip(x, y, strict=True))


def _framed(name: str, body: str, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" '
        f'data-name="{escape(name)}">{body}</svg>'
    )


def _axes(across: _Scale, up: _Scale, x: str) -> str:
    """Thin lines, and numbers beside them."""
    parts = []
    for value, text in ticks(up.low, up.high, 5):
        (place,) = up(np.array([value]))
        parts.append(f'<path class="grid" d="M{_LEFT} {place:g}H{WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{place + 3.5:g}" class="end">{text}</text>')
    for value, text in ticks(across.low, across.high, 5):
        (place,) = across(np.array([value]))
        if place < WIDTH - _RIGHT - 45:  # room for the name of the axis
            parts.append(f'<text x="{place:g}" y="{HEIGHT - 8}" class="middle">{text}</text>')
    parts.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 8}" class="end">{escape(x)}</text>')
    return "".join(parts)


def ticks(low: float, high: float, about: int) -> Iterator[tuple[float, str]]:
    """Round numbers within a range, as far apart as 1, 2 or 5 times a power of ten."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    for number in range(first, math.floor(high / step + 1e-9) + 1):
        value = number * step
        yield value, short(value, step)


def short(value: float, step: float | None = None) -> str:
    """A number in few letters; with a step, no more digits than tell it from its neighbours."""
    size = max(abs(value), step or 0.0)
    for factor, prefix in _PREFIXES:
        if size >= factor:
            return f"{value / factor:.4g}{prefix}" if value else "0"
    if step is None:
        return f"{value:.4g}"
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:.{digits}f}" if digits < _DIGITS else f"{value:.3g}"
