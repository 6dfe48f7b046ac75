"""Lines of a view: pieces of text with a tint each, bars and small curves, cut to a width."""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_CODES = {
    "": "",
    "bold": "1",
    "dim": "2",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
    "magenta": "35",
    "red": "31",
}


class Piece(NamedTuple):
    """Text of one tint: a colour's name, `bold`, `dim` or nothing."""

    text: str
    tint: str = ""


Line = Sequence[Piece]


@dataclass(frozen=True)
class Style:
    """What a terminal can show, and its user wants to see."""

    colour: bool = True
    blocks: bool = True

    def text(self, line: Line) -> str:
        """A line as it is written; without colours only its words."""
        if not self.colour:
            return "".join(piece.text for piece in line)
        return "".join(
            f"\x1b[{_CODES[piece.tint]}m{piece.text}\x1b[0m" if piece.tint else piece.text
            for piece in line
        )

    @property
    def ramp(self) -> str:
        """From low to high."""
        return "▁▂▃▄▅▆▇█" if self.blocks else "_.,-=+*#"

    @property
    def fill(self) -> str:
        return "█" if self.blocks else "#"

    @property
    def wait(self) -> str:
        return "░" if self.blocks else "."

    @property
    def dots(self) -> str:
        return "…" if self.blocks else "~"


def percent(share: float) -> str:
    """Return a share as `42 %`."""
    return f"{100.0 * share:.0f} %"


def columns_of(text: str) -> int:
    """How wide a terminal shows it."""
    return sum(_columns(each) for each in text)


@functools.lru_cache(1024)
def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def width_of(line: Line) -> int:
    return sum(columns_of(piece.text) for piece in line)


def fitted(line: Line, width: int) -> list[Piece]:
    """As much of a line as there is room for."""
    found: list[Piece] = []
    for piece in line:
        text = _cut(piece.text, width)
        width -= columns_of(text)
        found.append(Piece(text, piece.tint))
        if text != piece.text:
            break
    return found


def _cut(text: str, width: int) -> str:
    """As many of its characters as there is room for."""
    for at, each in enumerate(text):
        width -= _columns(each)
        if width < 0:
            return text[:at]
    return text


def shortened(text: str, width: int, style: Style) -> str:
    """Its begin and its end, where it is too long: names differ at both."""
    if columns_of(text) <= width:
        return text
    if width < 8:
        return _cut(text, width)
    tail = (width - 1) // 3
    begin, end = _cut(text, width - 1 - tail), _cut(text[::-1], tail)[::-1]
    return f"{begin}{style.dots}{end}"


def bar(shares: Sequence[tuple[float, str, str]], width: int) -> list[Piece]:
    """Shares of a whole, each with the character and tint that shows it, side by side."""
    found, passed, at = [], 0.0, 0
    for share, character, tint in shares:
        passed += share
        until = min(width, round(passed * width))
        found.append(Piece(character * (until - at), tint))
        at = until
    found.append(Piece(" " * (width - at)))
    return found


def spark(values: Sequence[float], width: int, style: Style) -> str:
    """A curve in one row: each column the mean of its share of the values."""
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    edges = [round(n * len(values) / count) for n in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    if high <= low:
        return style.ramp[0] * count
    top = len(style.ramp) - 1
    return "".join(style.ramp[round((mean - low) / (high - low) * top)] for mean in means)


def spread(left: Line, right: Line, width: int) -> list[Piece]:
    """One at each end of a line; what does not fit is taken from the left one."""
    room = width - width_of(right)
    begin = fitted(left, max(0, room - 1))
    return [*begin, Piece(" " * max(0, room - width_of(begin))), *right]
