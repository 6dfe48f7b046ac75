"""Where two runs part: the first update, replica, step and field that differ, with both values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hts.machine import SharedArray
from hts_envs.contract import Array


@dataclass(frozen=True)
class Seen:
    """A rollout as it was when it was complete: the declared arrays, copied."""

    declared: tuple[SharedArray, ...]
    arrays: Mapping[str, Array]
    history: int
    steps: int


@dataclass(frozen=True)
class Divergence:
    """The first difference between two rollouts, in the order in which things happen."""

    replica: int
    step: int
    field: str
    ours: str
    theirs: str
    apart: str

    def sentence(self) -> str:
        return (
            f"replica {self.replica}, step {self.step}, {self.field}: "
            f"{self.ours} and {self.theirs}{self.apart}"
        )


def first_divergence(ours: Seen, theirs: Seen) -> Divergence | None:
    """The earliest step at which any replica differs; its field in declared order."""
    found: tuple[int, int, int] | None = None
    for order, declared in enumerate(ours.declared):
        if not declared.hashed:
            continue
        here, there = _steps(ours, declared), _steps(theirs, declared)
        different = np.argwhere(_bits(here) != _bits(there))
        for replica, step, *_ in different[np.lexsort((different[:, 0], different[:, 1]))][:1]:
            place = (int(step), int(replica), order)
            found = place if found is None else min(found, place)
    if found is None:
        return None
    step, replica, order = found
    declared = ours.declared[order]
    here, there = _steps(ours, declared)[replica, step], _steps(theirs, declared)[replica, step]
    at = tuple(np.argwhere(_bits(here[None]) != _bits(there[None]))[0][1 : 1 + here.ndim])
    index = f"[{', '.join(map(str, at))}]" if at else ""
    name = declared.name.removeprefix("frames.") + index
    return Divergence(
        replica, step, name, str(here[at]), str(there[at]), _apart(here[at], there[at])
    )


def _steps(seen: Seen, declared: SharedArray) -> Array:
    """(replica, step, ...) of a field, without the frames before and behind the rollout."""
    first = seen.history if declared.name.startswith("frames.") else 0
    return seen.arrays[declared.name][:, first : first + seen.steps]


def _bits(array: Array) -> Array:
    """The array as unsigned integers: NaN equals itself, and -0.0 is not 0.0."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _apart(here: Array, there: Array) -> str:
    """How far apart two floating-point numbers are, in units in the last place."""
    if here.dtype.kind != "f" or not (np.isfinite(here) and np.isfinite(there)):
        return ""
    signed = f"i{here.dtype.itemsize}"
    low = int(np.iinfo(signed).min)
    ordered = [int(np.asarray(x).view(signed)) for x in (here, there)]
    lines = [bits if bits >= 0 else low - bits for bits in ordered]
    return f" ({abs(lines[0] - lines[1]):,} units in the last place apart)"
