"""How fast runs were, over what they differ in: replicas, or how uneven a simulator's steps are.

throughput   steps/s over replicas, a line for each schedule
speed-up     steps/s of schedule hts over those of another schedule, over the variance of a step,
             which is known of `sleeper:` worlds alone: seed by seed

Runs that differ in anything else but their seeds are lines of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hts.errors import WrongUsage
from hts.report.intervals import Interval, bootstrapped
from hts.report.recorded import Recorded
from hts.report.tables import schedule_of
from hts_envs.contract import Array
from hts_envs.registry import Spec, parse

_ENV, _SEED, _REPLICAS = "experiment.env", "experiment.seed", "experiment.replicas"
_SCHEDULE = "experiment.schedule"
_MACHINE = ("machine.executors", "machine.actors", "machine.learners", "machine.stepping")
_FASTEST = "hts"


@dataclass(frozen=True, eq=False)
class Speeds:
    """One line: places in order, and at each the values of its seeds."""

    label: str
    x: Array
    y: Interval
    seeds: tuple[int, ...]


Key = tuple[tuple[str, str], ...]
"""What runs of one line agree in, by name."""


def throughput(runs: Sequence[Recorded]) -> list[Speeds]:
    """Steps/s over replicas."""
    found: dict[Key, dict[float, dict[int, float]]] = {}
    for run in runs:
        alike = _alike(run, _REPLICAS, {"schedule": schedule_of(run)})
        at = float(run.config[_REPLICAS])
        found.setdefault(alike, {}).setdefault(at, {})[_seed(run)] = _speed(run)
    return _lines(found, lambda alike: f"{_word(dict(alike), 'schedule')}")


def speedup(runs: Sequence[Recorded]) -> list[Speeds]:
    """Steps/s of hts over those of each other schedule, over the variance of a step in ms²."""
    speeds: dict[tuple[Key, float, int], dict[str, float]] = {}
    for run in runs:
        env, variance = _sleeping(run)
        place = _alike(run, _ENV, {"env": env}), variance, _seed(run)
        speeds.setdefault(place, {})[schedule_of(run)] = _speed(run)
    found: dict[Key, dict[float, dict[int, float]]] = {}
    for (alike, variance, seed), there in speeds.items():
        for other in there.keys() - {_FASTEST}:
            if _FASTEST in there:
                line = (*alike, ("over", other))
                ratio = there[_FASTEST] / there[other]
                found.setdefault(line, {}).setdefault(variance, {})[seed] = ratio
    if not found:
        raise WrongUsage(
            "--speedup: it takes runs of schedule hts and of another one, with equal seeds in "
            "equal worlds; hts-train --schedule sync makes such runs"
        )
    return _lines(found, lambda alike: f"{_FASTEST} over {_word(dict(alike), 'over')}")


def _alike(run: Recorded, along: str, told: Mapping[str, str]) -> Key:
    """All that runs of one line agree in: not where they stand along it, nor their seeds."""
    left_out = (along, _SEED, _SCHEDULE, "experiment.steps")
    agreed = {
        name: json.dumps(value)
        for name, value in run.config.items()
        if name not in left_out and (name.startswith("experiment.") or name in _wanted(run))
    }
    return tuple(sorted({**agreed, **told}.items()))


def _wanted(run: Recorded) -> tuple[str, ...]:
    """What of the machine somebody has asked for: the rest is chosen for each run."""
    return tuple(name for name in _MACHINE if run.asked.get(name, "auto") != "auto")


def _sleeping(run: Recorded) -> tuple[str, float]:
    """The world but for how uneven its steps are, and the variance of a step in ms²."""
    spec: Spec = parse(str(run.config[_ENV]))
    if spec.family.name != "sleeper":
        raise WrongUsage(
            f"{run.path}: --speedup is over the variance of a step, which is known of sleeper: "
            f"worlds, and this run is of {run.config[_ENV]}"
        )
    options = spec.options
    pairs = spec.canonical().partition("?")[2].split("&")
    others = [pair for pair in pairs if pair.partition("=")[0] != "shape"]
    return "&".join(others), float(options.mean) ** 2 / float(options.shape)


def _speed(run: Recorded) -> float:
    if not run.result.get("sps"):
        raise WrongUsage(f"{run.path}: this run has no result yet ({run.status})")
    return float(run.result["sps"])


def _seed(run: Recorded) -> int:
    return int(run.config.get(_SEED, 0))


def _word(alike: Mapping[str, str], name: str) -> str:
    return alike[name].strip('"')


def _lines(
    found: Mapping[Key, Mapping[float, Mapping[int, float]]], named: Callable[[Key], str]
) -> list[Speeds]:
    """Each with what tells it apart, and a mean over the seeds at each of its places."""
    every = [dict(alike) for alike in found]
    told = {"schedule", "over"}
    differing = [
        name
        for name in dict.fromkeys(name for each in every for name in each)
        if name not in told and len({each.get(name) for each in every}) > 1
    ]
    lines = []
    for alike, places in sorted(found.items(), key=lambda item: named(item[0])):
        apart = [f"{name.rpartition('.')[2]} {dict(alike).get(name)}" for name in differing]
        intervals = [bootstrapped(np.array(list(places[x].values()))) for x in sorted(places)]
        lines.append(
            Speeds(
                ", ".join([named(alike), *(each.replace('"', "") for each in apart[:3])]),
                np.array(sorted(places)),
                Interval(*(np.array([getattr(one, part) for one in intervals]) for part in _PARTS)),
                tuple(sorted({seed for seeds in places.values() for seed in seeds})),
            )
        )
    return lines


_PARTS = ("mean", "low", "high")
