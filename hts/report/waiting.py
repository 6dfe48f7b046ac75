"""Who worked and who waited for whom while a run went on, as its record says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hts.report.curves import Series
from hts_envs.contract import Array

_ROLES = {
    "executors": ("working", "for_learner", "for_actors", "for_simulators"),
    "actors": ("working", "for_executors"),
    "p_learner": ("working", "for_learner"),
    "learner": ("working", "for_executors", "for_learner"),
}
"""As in `machine/executors_for_learner`."""


def label(kind: str) -> str:
    """Return the words for a share: `working`, `waiting for actors`."""
    return f"waiting {kind}" if kind.startswith("for ") else kind


@dataclass(frozen=True, eq=False)
class Role:
    """The shares of one role's time, all at the same places."""

    name: str
    x: Array
    shares: Mapping[str, Array]  # by what it did, in words


def roles(series: Mapping[str, Series]) -> Iterator[Role]:
    """Those that the run told about, more than once."""
    for name, kinds in _ROLES.items():
        told = {kind: series.get(f"machine/{name}_{kind}") for kind in kinds}
        found = {kind.replace("_", " "): one for kind, one in told.items() if one is not None}
        if not found:
            continue
        x = np.unique(np.concatenate([one.x for one in found.values()]))
        if len(x) > 1:
            yield Role(name, x, {kind: _at(one, x) for kind, one in found.items()})


def _at(one: Series, x: Array) -> Array:
    """What was not said at a place was nothing there."""
    return np.where(np.isin(x, one.x), np.interp(x, one.x, one.y), 0.0)
