"""What `hts-check ENV --json` wrote about a simulator, as what a prediction needs. Not believed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hts.bench.predict import ProfiledTimes, Simulator
from hts.errors import WrongUsage

_FORMAT = 1


def read(text: str, where: str | Path) -> Simulator:
    """The simulator of this report; WrongUsage says what is not in it."""
    try:
        report = json.loads(text)
    except ValueError:
        report = None
    if not isinstance(report, dict) or "profile" not in report:
        raise WrongUsage(f"{where}: this is not what hts-check ENV --json prints")
    if report.get("format") != _FORMAT:
        raise WrongUsage(f"{where}: it is of format {report.get('format')}, not {_FORMAT}")
    profile, world = report["profile"], report.get("world")
    if not profile:
        raise WrongUsage(f"{where}: no step was timed: hts-check found this simulator unsound")
    rows = world.get("replicas") if isinstance(world, dict) and world.get("batched") else 1
    if not isinstance(rows, int) or rows < 1:
        raise WrongUsage(f"{where}: world.replicas is missing or no number")
    times = ProfiledTimes(
        _number(profile, where, "step", "mean"),
        _number(profile, where, "step", "deviation"),
        _number(profile, where, "reset", "mean"),
        _length(profile, where, rows),
    )
    if times.seconds <= 0.0:
        raise WrongUsage(f"{where}: profile.step.mean is 0: there is nothing to predict")
    busy = _number(profile, where, "cores_busy")
    return Simulator(times=times, rows=rows, cpu=busy * times.mean / rows)


def _length(profile: Mapping[str, Any], where: str | Path, rows: int) -> float | None:
    """Calls between two resets, of any of the replicas behind a call."""
    if profile.get("episode_length_mean") is None:
        return None
    return max(1.0, _number(profile, where, "episode_length_mean") / rows)


def _number(profile: Mapping[str, Any], where: str | Path, *names: str) -> float:
    value: Any = profile
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongUsage(f"{where}: profile.{'.'.join(names)} is missing or no number")
    if not (math.isfinite(value) and value >= 0.0):
        raise WrongUsage(f"{where}: profile.{'.'.join(names)} is {value}")
    return float(value)
