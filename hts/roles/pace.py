"""How many updates a window of an off-policy run has: as many as are counted, or as time allows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TypeAlias

Pace: TypeAlias = Callable[[int, int], Iterator[int]]
"""The numbers of a learner's updates in this turn, where so many are counted."""


def by_count(_turn: int, counted: int) -> Iterator[int]:
    """What follows from the experiment alone, so that the run has a digest."""
    return iter(range(counted))


def by_clock(is_complete: Callable[[int], bool], turns: int) -> Pace:
    """As long as executors fill the next window, and one at least; nobody waits for a count.

    Behind the last turn nothing is filled, so that has its count.
    """

    def updates(turn: int, counted: int) -> Iterator[int]:
        if turn + 1 == turns:
            return by_count(turn, counted)
        further = itertools.takewhile(lambda _: not is_complete(turn + 1), itertools.count(1))
        return itertools.chain((0,), further)

    return updates
