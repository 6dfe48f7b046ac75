"""Whom everybody waits for, and since when: read off the desk, which says who has the next move.

A block that has asked waits for its actor; one that was answered, or may begin, is its executor's
to move; a rollout that is complete is the learner's. Nobody is asked anything while all is well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from hts.memory.desk import Desk
from hts.runtime.shared import Shared


@dataclass(frozen=True)
class Move:
    """What somebody has had to do, since when."""

    role: str
    what: str
    block: int | None
    since: float


class Watch:
    """Looks at the desk now and then."""

    def __init__(self, shared: Shared, updates: int, every: float) -> None:
        self.every = every
        self._shared = shared
        self._updates = updates  # of the whole run
        self._looked = time.monotonic()
        self._since: dict[int, tuple[tuple[int, ...], float]] = {}

    def moves(self) -> Iterator[Move]:
        """Who has to move, since when as far as was looked."""
        now = time.monotonic()
        if now - self._looked > 3 * self.every:
            self._since.clear()  # this process was stopped, and maybe all the others too
        self._looked = now
        desk, learnt = self._shared.desk, self._shared.learnt.updates
        for block in range(len(desk.crew.blocks)):
            asked, drained = int(desk.asked[block]), desk.drained(block)
            executor = f"executor {desk.crew.executor_of[block]}"
            since = self._unchanged(block, (asked, drained), now)
            replicas = _numbered(desk.crew.blocks[block])
            if not asked:
                if desk.may_begin >= 0:
                    yield Move(executor, f"to begin with {replicas}", block, since)
            elif not drained:
                role = f"actor {desk.crew.actor_of(block)}" if desk.crew.actors else executor
                yield Move(role, f"to answer {replicas}", block, since)
            elif _can_go_on(desk, block):
                rollout, step = desk.question(block)
                what = f"to take step {step} of rollout {rollout} of {replicas}"
                yield Move(executor, what, block, since)
        complete = learnt < self._updates and desk.is_complete(learnt)
        since = self._unchanged(-1, (learnt, complete), now)
        if complete:
            yield Move("learner", f"to make update {learnt + 1}", None, since)
        beside = self._shared.beside
        if beside is not None and learnt == beside.updates < self._updates:
            since = self._unchanged(-2, (learnt,), now)
            yield Move("P-learner", f"to make update {learnt + 1}", None, since)

    def _unchanged(self, place: int, state: tuple[int, ...], now: float) -> float:
        """Since when this has been so."""
        before, since = self._since.get(place, ((), now))
        if before != state:
            since = now
        self._since[place] = (state, since)
        return since


def _can_go_on(desk: Desk, block: int) -> bool:
    """A step is to be taken, or the next rollout may begin."""
    rollout, step = desk.question(block)
    return step < desk.steps or rollout < desk.may_begin


def _numbered(replicas: range) -> str:
    if len(replicas) == 1:
        return f"replica {replicas.start}"
    return f"replicas {replicas.start} to {replicas.stop - 1}"
