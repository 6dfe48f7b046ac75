"""Curves from the records of runs: one for each experiment, with what its seeds have in common.

    run directories -> runs -> experiments (equal but for the seed) -> mean and interval

A run may still be going on: what it is writing in this moment is left out. Runs of one experiment
are looked at as far as all of them have come.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hts.errors import WrongUsage
from hts.report.evaluations import EVALUATIONS
from hts.report.intervals import Interval, bootstrapped
from hts.report.recorded import Recorded, read
from hts.report.run_directory import METRICS
from hts_envs.contract import Array
from hts_envs.spelling import hint

AXES = {"steps": "steps", "time": "time/seconds"}
"""What a curve may run along, and its name in the records."""

_PLACES = 400  # of a curve whose runs were not written at the same places
_SEED = "experiment.seed"
_OF_EACH_SEED = (_SEED, "experiment.extended.from_digests")


@dataclass(frozen=True, eq=False)
class Series:
    """One metric of one run; numbers only, in the order of their places."""

    x: Array
    y: Array


@dataclass(frozen=True, eq=False)
class Experiment:
    """Runs that differ in nothing but their seeds."""

    label: str
    runs: Mapping[int, Recorded]  # by seed


@dataclass(frozen=True, eq=False)
class Curve:
    """A metric of one experiment, as far as all of its runs have come."""

    label: str
    x: Array
    y: Interval
    seeds: tuple[int, ...]


def found(paths: Sequence[Path]) -> list[Recorded]:
    """The runs in these directories: each is one, or holds some."""
    places = [place for path in paths for place in _within(path)]
    unique = {place.resolve(): place for place in reversed(places)}
    return [read(place) for place in reversed(unique.values())]


def _within(path: Path) -> list[Path]:
    if not path.is_dir():
        near = hint(path.name, _names(path.parent))
        raise WrongUsage(f"{path}: there is no such directory{near}")
    if (path / "manifest.json").exists():
        return [path]
    for depth in ("*", "*/*"):
        inside = sorted(place.parent for place in path.glob(f"{depth}/manifest.json"))
        if inside:
            return inside
    raise WrongUsage(f"{path}: there is no run in this directory: no manifest.json")


def _names(folder: Path) -> list[str]:
    return [place.name for place in folder.glob("*/")] if folder.is_dir() else []


def lines(run: Recorded, name: str) -> Iterator[dict[str, Any]]:
    """Every whole line of one of its records; none where it has no such record."""
    path = run.path / name
    if not path.exists():
        return
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if not text.endswith("\n"):
                    return  # it is being written now, or was when the run ended
                yield _object(text, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{path}: it cannot be read: {error}") from None


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        read_as = json.loads(text)
    except ValueError:
        read_as = None
    if not isinstance(read_as, dict):
        raise WrongUsage(f"{where}: this line is damaged")
    return read_as


def columns(run: Recorded, axis: str) -> dict[str, Series]:
    """Every metric of a run along an axis, those of its evaluations included."""
    trained = _columns(lines(run, METRICS), AXES[axis])
    if axis != "time" or "steps" not in trained:
        return {**_columns(lines(run, EVALUATIONS), AXES[axis]), **trained}
    # When a policy was there, since an evaluation is no time of the run.
    reached = trained["steps"]
    evaluated = _columns(lines(run, EVALUATIONS), AXES["steps"])
    timed = {
        metric: Series(np.interp(one.x, reached.y, reached.x), one.y)
        for metric, one in evaluated.items()
    }
    return {**timed, **trained}


def _columns(found: Iterator[dict[str, Any]], axis: str) -> dict[str, Series]:
    pairs: dict[str, list[tuple[float, float]]] = {}
    for line in found:
        at = _number(line.get(axis))
        if at is None:
            continue
        for metric, said in line.items():
            value = _number(said)
            if value is not None:
                pairs.setdefault(metric, []).append((at, value))
    return {metric: _series(points) for metric, points in pairs.items()}


def _number(said: object) -> float | None:
    """What is written, where it is a number that can be drawn."""
    if isinstance(said, bool) or not isinstance(said, int | float) or not np.isfinite(said):
        return None
    return float(said)


def _series(points: list[tuple[float, float]]) -> Series:
    """In order; what was written several times at one place counts with its mean."""
    written, values = np.array(points, np.float64).T
    x, place = np.unique(written, return_inverse=True)
    return Series(x, np.bincount(place, values) / np.bincount(place))


def experiments(runs: Sequence[Recorded]) -> list[Experiment]:
    """The runs, put together where they differ in nothing but their seeds."""
    groups: dict[str, list[Recorded]] = {}
    for run in runs:
        groups.setdefault(json.dumps(_identity(run), sort_keys=True), []).append(run)
    labels = _labels([group[0] for group in groups.values()])
    return [
        Experiment(label, _by_seed(group))
        for label, group in zip(labels, groups.values(), strict=True)
    ]


def _identity(run: Recorded) -> dict[str, Any]:
    return {
        name: value
        for name, value in run.config.items()
        if name.startswith("experiment.") and name not in _OF_EACH_SEED
    }


def _by_seed(runs: Sequence[Recorded]) -> dict[int, Recorded]:
    """Each seed once, or it would count twice: of several, the run that came furthest."""
    longest: dict[int, Recorded] = {}
    for run in sorted(runs, key=_updates):
        longest[int(run.config.get(_SEED, 0))] = run
    return dict(sorted(longest.items()))


def _updates(run: Recorded) -> int:
    return sum(1 for _ in lines(run, METRICS))


def _labels(runs: Sequence[Recorded]) -> list[str]:
    """Algorithm and environment, and what else tells these experiments apart."""
    identities = [_identity(run) for run in runs]
    names = list(dict.fromkeys(name for identity in identities for name in identity))
    told = ("experiment.algo.name", "experiment.env")
    differing = [
        name
        for name in names
        if name not in told
        if len({json.dumps(identity.get(name)) for identity in identities}) > 1
    ]
    return [
        ", ".join(
            [
                " ".join(str(identity.get(name, "")) for name in told),
                *(f"{name.rpartition('.')[2]} {identity.get(name)}" for name in differing[:3]),
                *(["..."] if len(differing) > 3 else []),
            ]
        )
        for identity in identities
    ]


def curve(experiment: Experiment, metric: str, axis: str) -> Curve:
    """A metric of all runs of an experiment; WrongUsage where one of them has none."""
    series = [_one(run, metric, axis) for run in experiment.runs.values()]
    x = _places(series)
    y = np.stack([np.interp(x, one.x, one.y) for one in series])
    return Curve(experiment.label, x, bootstrapped(y), tuple(experiment.runs))


def _one(run: Recorded, metric: str, axis: str) -> Series:
    there = columns(run, axis)
    if not there:
        raise WrongUsage(f"{run.path}: this run has no update to show ({run.status})")
    if metric not in there:
        known = [name for name in there if "/" in name]
        near = hint(metric, known) or f" (known: {', '.join(sorted(known))})"
        raise WrongUsage(f"{run.path}: there is no number named {metric!r} in its record{near}")
    return there[metric]


def _places(series: Sequence[Series]) -> Array:
    """Where the runs are compared: where all of them were written, or evenly in what they share."""
    first = max(float(one.x[0]) for one in series)
    last = min(float(one.x[-1]) for one in series)
    if first > last:
        raise WrongUsage("these runs have no stretch in common yet: plot them one by one")
    written = [one.x[(one.x >= first) & (one.x <= last)] for one in series]
    same = all(np.array_equal(written[0], other) for other in written[1:])
    if same and len(written[0]) <= _PLACES:
        return written[0]
    return np.linspace(first, last, _PLACES if last > first else 1)
