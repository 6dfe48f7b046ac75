"""The first difference between a remembered run and another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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


def compare(trace: Trace, events: Iterable[Event]) -> Comparison:
    """Follow a run as it happens and stop where it leaves the remembered one."""
    steps = 0
    for event in events:
        for position, fields in event.rows():
            if position not in trace.digests:
                continue  # the remembered run was stopped before
            found = _unequal_field(trace, position, fields)
            if found is not None:
                first = trace.values.get(position, {}).get(found)
                return Comparison(Difference(position, found, first, fields.get(found)), steps)
            steps += position.step > 0
    return Comparison(None, steps)


def _unequal_field(trace: Trace, position: Position, fields: dict[str, Array]) -> str | None:
    expected = trace.digests[position]
    for name in [*expected, *(name for name in fields if name not in expected)]:
        if name not in expected or name not in fields:
            return name
        if expected[name] != digest(fields[name]):
            return name
    return None
