"""From marks to steps per second, and from the rates of all rounds to a table."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Mark(NamedTuple):
    """All of the first so many steps had been collected and learnt from at this time."""

    steps: int
    seconds: float


@dataclass
class Contender:
    """One side of a comparison, with its rate in each round."""

    name: str
    version: str = "?"
    rates: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    """Share of the machine that was busy with something else, in each round."""

    @property
    def median(self) -> float:
        return statistics.median(self.rates)


class Ratio(NamedTuple):
    """How many times as fast one is: by the medians, and in the worst and best round."""

    ours: str
    peer: str
    median: float
    lowest: float
    highest: float


def rate(marks: Sequence[Mark], after: int) -> float:
    """Steps a second from the first mark with at least `after` steps to the last one."""
    counted = [mark for mark in marks if mark.steps >= after]
    if len(counted) < 2:
        end = marks[-1].steps if marks else 0
        raise ValueError(f"of {len(marks)} marks up to step {end} fewer than two follow {after}")
    first, last = counted[0], counted[-1]
    return (last.steps - first.steps) / (last.seconds - first.seconds)


def turns(peers: Sequence[str], ours: Sequence[str]) -> list[str]:
    """The order of one round: a peer, one of ours, a peer, one of ours."""
    pairs = itertools.zip_longest(peers, ours)
    return [name for pair in pairs for name in pair if name is not None]


def ratio(ours: Contender, peer: Contender) -> Ratio:
    """Ours over the peer's; a round's two rates are of the same minute."""
    rounds = [mine / theirs for mine, theirs in zip(ours.rates, peer.rates, strict=True)]
    middle = ours.median / peer.median
    return Ratio(ours.name, peer.name, middle, min(rounds), max(rounds))


def table(contenders: Sequence[Contender]) -> list[str]:
    """A line for each contender: its rates, and what else the machine did."""
    width = max(len(each.name) for each in contenders)
    lines = [f"{'':{width}}  {'median':>9} {'lowest':>9} {'highest':>9}   others  version"]
    for each in contenders:
        figures = (each.median, min(each.rates), max(each.rates))
        shown = " ".join(f"{figure:9,.0f}" for figure in figures)
        others = statistics.median(each.others)
        lines.append(f"{each.name:{width}}  {shown}   {others:5.0%}   {each.version}")
    return lines


def ratio_lines(ratios: Sequence[Ratio]) -> list[str]:
    """A line for each pair: the ratio of the medians and its spread over the rounds."""
    return [
        f"{each.ours} is {each.median:.2f} times as fast as {each.peer} "
        f"({each.lowest:.2f} to {each.highest:.2f})"
        for each in ratios
    ]
