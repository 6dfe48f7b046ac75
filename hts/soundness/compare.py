"""The first difference between a remembered run and another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from hts.soundness.trace import Event, Position, Trace, digest
from hts_envs.contract import Array


@dataclass(frozen=True)
class Difference:
    """Where two runs part; a value is None where it was not returned or is no longer known."""

    position: Position
    field: str
    first: Array | None
    second: Array | None

    def __str__(self) -> str:
        return f"{self.position}: {self.field} {self._values()}"

    def _values(self) -> str:
        if self.first is None or self.second is None:
            return "is not the same"
        if self.first.dtype != self.second.dtype:
            return f"has dtype {self.first.dtype}, then {self.second.dtype}"
        if self.first.shape != self.second.shape:
            return f"has shape {self.first.shape}, then {self.second.shape}"
        index = _first_unequal(self.first, self.second)
        place = f"at {list(index)} " if index else ""
        return f"{place}is {self.first[index]!s}, then {self.second[index]!s}"


def _first_unequal(first: Array, second: Array) -> tuple[int, ...]:
    """The index of the first element whose bits differ."""
    width = first.dtype.itemsize
    bits = [np.frombuffer(a.tobytes(), np.uint8).reshape(-1, width) for a in (first, second)]
    flat = int(np.argmax(np.any(bits[0] != bits[1], axis=1)))
    return tuple(int(i) for i in np.unravel_index(flat, first.shape))


@dataclass(frozen=True)
class Comparison:
    """How much was compared before the first difference, if there is one."""

    difference: Difference | None
    steps: int


class Follower:
    """Follows a run as it happens, until it leaves the remembered one."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.comparison = Comparison(None, 0)

    def see(self, event: Event) -> bool:
        """Compare one event; returns whether a difference was found."""
        for position, fields in event.rows():
            if position not in self._trace.digests:
                continue  # the remembered run was stopped before
            steps, unequal = self.comparison.steps, _unequal_field(self._trace, position, fields)
            if unequal is not None:
                first = self._trace.values.get(position, {}).get(unequal)
                difference = Difference(position, unequal, first, fields.get(unequal))
                self.comparison = Comparison(difference, steps)
                return True
            self.comparison = Comparison(None, steps + (position.step > 0))
        return False


def compare(trace: Trace, events: Iterable[Event]) -> Comparison:
    """Follow a run as it happens and stop where it leaves the remembered one."""
    follower = Follower(trace)
    for event in events:
        if follower.see(event):
            break
    return follower.comparison


def compare_in_turns(runs: Sequence[tuple[Trace, Iterable[Event]]]) -> list[Comparison]:
    """Advance several runs in turns, one call of each, and compare each with its own trace.

    Stops at the first difference in any of them.
    """
    followers = [Follower(trace) for trace, _ in runs]
    for events in zip_longest(*(events for _, events in runs)):
        pairs = zip(followers, events, strict=True)
        if any(event is not None and follower.see(event) for follower, event in pairs):
            break
    return [follower.comparison for follower in followers]


def _unequal_field(trace: Trace, position: Position, fields: dict[str, Array]) -> str | None:
    expected = trace.digests[position]
    for name in [*expected, *(name for name in fields if name not in expected)]:
        if name not in expected or name not in fields:
            return name
        if expected[name] != digest(fields[name]):
            return name
    return None
