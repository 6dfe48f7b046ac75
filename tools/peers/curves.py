"""From what was learnt, version by version, to who reached a target first.

A curve is a list of points in the order of their times. This module imports nothing that a peer
lacks, so that whoever trains there says with the same words when something is to be judged.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Point(NamedTuple):
    """What a policy is worth that was there after so many steps and seconds of training."""

    steps: int
    seconds: float
    value: float
    """The mean return of its episodes."""


@dataclass(frozen=True)
class Learnt:
    """One training of one contender, judged."""

    who: str
    seed: int
    version: str
    others: float
    """Share of the machine that was busy with something else."""
    curve: list[Point]


def next_due(seconds: float, every: float) -> float:
    """The first multiple of `every` that lies behind this time."""
    return (seconds // every + 1) * every


def judged(times: Sequence[float], every: float, limit: float) -> list[int]:
    """Which of the versions made at these times are: the first at or behind each multiple of
    `every`, and the last one, none of them made behind the limit."""
    within = [place for place, seconds in enumerate(times) if seconds <= limit]
    found, due = [], every
    for place in within:
        if times[place] >= due or place == within[-1]:
            found.append(place)
            due = next_due(times[place], every)
    return found


def reached(curve: Sequence[Point], target: float) -> Point | None:
    """The first point that is worth the target; nothing is made up between points."""
    return next((point for point in curve if point.value >= target), None)


def until(curve: Sequence[Point], target: float) -> list[Point]:
    """The curve of somebody who stops at the target, or all of it."""
    first = reached(curve, target)
    return list(curve) if first is None else [*curve[: curve.index(first)], first]


def steps_per_second(curve: Sequence[Point]) -> float:
    """From the begin of training to the last point."""
    return curve[-1].steps / curve[-1].seconds


def table(runs: Sequence[Learnt], target: float) -> list[str]:
    """A line for each training, and one for each contender that has trained with several seeds."""
    width = max(len(run.who) for run in runs)
    heads = ("seed", "steps", "to target", "best", "last", "steps/s", "others")
    lines = [_line("", width, heads)]
    lines += [_line(run.who, width, _cells(run, target)) for run in runs]
    for who in dict.fromkeys(run.who for run in runs):
        same = [run.curve for run in runs if run.who == who]
        if len(same) > 1:
            lines.append(f"{who}: {_over_seeds(same, target)}")
    return lines


def _cells(run: Learnt, target: float) -> tuple[str, ...]:
    first, last = reached(run.curve, target), run.curve[-1]
    return (
        str(run.seed),
        f"{last.steps:,}",
        "not" if first is None else f"{first.seconds:.1f} s",
        f"{max(point.value for point in run.curve):,.1f}",
        f"{last.value:,.1f}",
        f"{steps_per_second(run.curve):,.0f}",
        f"{run.others:.0%}",
    )


def _line(who: str, width: int, cells: Sequence[str]) -> str:
    return "  ".join([f"{who:{width}}", *(f"{cell:>10}" for cell in cells)])


def _over_seeds(curves: Sequence[Sequence[Point]], target: float) -> str:
    """How many reached it, and when: no median is told where some never did."""
    times = [first.seconds for curve in curves if (first := reached(curve, target))]
    counted = f"{len(times)} of {len(curves)} seeds reached the target"
    if len(times) < len(curves):
        return counted
    return (
        f"{counted}, after {statistics.median(times):.1f} s ({min(times):.1f} to {max(times):.1f})"
    )
