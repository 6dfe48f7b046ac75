"""Where two runs part: the first replica, step and field of a rollout that differ, or parameter.

A digest says that two rollouts differ, not where. So both runs are run again with a `Keep`, which
writes one rollout and the parameters made of it down whole; the two files are then compared bit by
bit. The files hold raw arrays by name: they are read without running anything that is in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hts.memory.storage import Storage
from hts_envs.contract import Array

_PARAMETERS = ".parameters"


@dataclass(frozen=True)
class Seen:
    """What the digest sees of a rollout, in its order; each array is (replica, step, ...)."""

    arrays: Mapping[str, Array]

    @property
    def form(self) -> dict[str, str]:
        """What two rollouts must share to be compared element by element."""
        return {name: f"{array.dtype}{array.shape}" for name, array in self.arrays.items()}


@dataclass(frozen=True)
class Keep:
    """Which rollout of a run is written down whole, and where."""

    rollout: int
    path: str

    def complete(self, rollout: int, storage: Storage) -> None:
        """Called with each rollout when it is complete, before anything is learnt from it."""
        if rollout == self.rollout:
            save(seen(storage), self.path)

    def learnt(self, rollout: int, made: Array) -> None:
        """Called with the parameters that were made of each rollout."""
        if rollout == self.rollout:
            save(Seen({"parameters": made}), self.path + _PARAMETERS)


@dataclass(frozen=True)
class Both:
    """Two values that should be one, and how far they are apart."""

    ours: str
    theirs: str
    apart: str

    def __str__(self) -> str:
        return f"{self.ours} and {self.theirs}{self.apart}"


@dataclass(frozen=True)
class Divergence:
    """The first difference between two rollouts, in the order in which things happen."""

    replica: int
    step: int
    field: str
    values: Both

    def __str__(self) -> str:
        return f"replica {self.replica}, step {self.step}, {self.field}: {self.values}"


@dataclass(frozen=True)
class OtherParameter:
    """The first of the parameters that differ, and how many do."""

    index: int
    count: int
    values: Both


def seen(storage: Storage) -> Seen:
    """A copy of a complete rollout, without the frames before and behind it."""
    sizes = storage.sizes
    arrays = {}
    for declared in storage.declared:
        if declared.hashed:
            first = sizes.history if declared.name.startswith("frames.") else 0
            rows = storage.arrays[declared.name][:, first : first + sizes.steps]
            arrays[declared.name] = rows.copy()
    return Seen(arrays)


def save(found: Seen, path: str) -> None:
    """Write it to this very path."""
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **dict(found.arrays))


def load(path: str) -> Seen:
    """What was saved there, in the same order."""
    with np.load(path, allow_pickle=False) as file:
        return Seen({name: file[name] for name in file.files})


def load_parameters(path: str) -> Array:
    """The parameters that were made of the rollout that was kept at this path."""
    return load(path + _PARAMETERS).arrays["parameters"]


def first_divergence(ours: Seen, theirs: Seen) -> Divergence | None:
    """The earliest step at which any replica differs; its field in the digest's order."""
    assert ours.form == theirs.form, "rollouts of one form are compared"
    found: list[tuple[int, int, int]] = []
    names = list(ours.arrays)
    for order, name in enumerate(names):
        different = _bits(ours.arrays[name]) != _bits(theirs.arrays[name])
        cells = different.reshape(*different.shape[:2], -1).any(-1)
        found += [(int(step), int(replica), order) for step, replica in np.argwhere(cells.T)[:1]]
    if not found:
        return None
    step, replica, order = min(found)
    here, there = (run.arrays[names[order]][replica, step] for run in (ours, theirs))
    at = tuple(int(i) for i in np.argwhere(_bits(here) != _bits(there))[0])
    index = f"[{', '.join(map(str, at))}]" if at else ""
    name = names[order].removeprefix("frames.") + index
    return Divergence(replica, step, name, _both(here[at], there[at]))


def first_parameter(ours: Array, theirs: Array) -> OtherParameter | None:
    """The first parameter whose bits differ."""
    assert ours.shape == theirs.shape, "parameters of one network are compared"
    places = np.flatnonzero(_bits(ours) != _bits(theirs))
    if not len(places):
        return None
    first = int(places[0])
    return OtherParameter(first, len(places), _both(ours[first], theirs[first]))


def _bits(array: Array) -> Array:
    """The array as unsigned integers: NaN equals itself, and -0.0 is not 0.0."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)


def _both(here: Array, there: Array) -> Both:
    return Both(str(here), str(there), _apart(here, there))


def _apart(here: Array, there: Array) -> str:
    """How far apart two floating-point numbers are, in units in the last place."""
    if here.dtype.kind != "f" or not (np.isfinite(here) and np.isfinite(there)):
        return ""
    signed = f"i{here.dtype.itemsize}"
    low = int(np.iinfo(signed).min)
    ordered = [int(np.asarray(x).view(signed)) for x in (here, there)]
    first, second = (bits if bits >= 0 else low - bits for bits in ordered)
    units = abs(first - second)
    return f" ({units:,} unit{'' if units == 1 else 's'} in the last place apart)"
