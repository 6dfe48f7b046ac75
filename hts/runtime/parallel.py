"""The parallel runner: executors, actors and the learner in processes; this one listens, and
replaces what dies.

A dataflow of named versions: a block may fill its part of rollout v as soon as version v is
published and its own part of rollout v - 1 is done; the learner may make version v + 2 as soon as
rollout v is complete. They find each other in shared memory; what they send here is for people,
for the record, and for their successors.

A process that is killed costs time and nothing else. An actor keeps nothing. The learner redoes its
update from what it kept after the last one. An executor rebuilds its simulators from their
episodes' seeds and recorded actions. Whoever may have waited for the lost one's ring is rung.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from hts.config import Machine
from hts.errors import RoleDied, RoleFailed
from hts.machine import TIMES
from hts.roles.executor import Past
from hts.runtime import actor_process, executor_process, learner_process
from hts.runtime.assemble import Plan, Updated
from hts.runtime.heard import Heard
from hts.runtime.process import Child, wait_child
from hts.runtime.shared import Inference, Terms, allocate
from hts.runtime.standing import Standing, look, stand
from hts.signals import undisturbed

_HOUR = 3600.0
_SECONDS_TO_SPEAK = 1.0
LEARNER = "learner"


@dataclasses.dataclass
class _Seat:
    """One process, and what it takes to start another in its place."""

    name: str
    role: Callable[..., None]
    assignment: Any
    child: Child | None = None

    def start(self) -> None:
        self.child = Child(self.name, self.role, self.assignment)


class ParallelRun:
    """One run on several processes."""

    def __init__(self, found: Plan, machine: Machine, begin: Standing | None = None) -> None:
        self.experiment = found.experiment
        self.strategy = found.strategy()
        self.chain = found.digest().chain
        blueprint = found.blueprint(machine)
        self.crew = blueprint.crew
        self.replaced: list[str] = []
        self._most = machine.replacements
        self._deaths: deque[float] = deque()
        self._memory, self._heard = allocate(blueprint), Heard(blueprint)
        self._shared = self._memory.view()
        self._alive = len(found.first_versions())
        if begin is not None:
            stand(self._shared, self._heard, begin)
            self.chain = begin.chain
        self._began = self._heard.told
        self._seats = self._assign(found, machine)
        try:
            for seat in self._seats:
                seat.start()
            for child in self.children:
                while "ready" not in child.hear():  # its worlds are built
                    pass
        except BaseException:
            self.close()
            raise

    @property
    def children(self) -> list[Child]:
        """The processes as they are now."""
        return [seat.child for seat in self._seats if seat.child is not None]

    def _assign(self, found: Plan, machine: Machine) -> list[_Seat]:
        terms = Terms(self.experiment, self._memory, found.roles, found.jitter)
        inference = Inference(found.device, self.strategy.padding)
        threads = machine.stepping == "threads"
        seats = []
        for index in range(self.crew.executors):
            inline = None if self.crew.actors else inference
            executor = executor_process.Assignment(index, terms, threads, inline, self._past(index))
            seats.append(_Seat(f"executor {index}", executor_process.run, executor))
        for index in range(self.crew.actors):
            actor = actor_process.Assignment(index, terms, inference)
            seats.append(_Seat(f"actor {index}", actor_process.run, actor))
        workers = 1 if machine.learners == "auto" else machine.learners
        learner = learner_process.Assignment(
            terms, found.device, workers, machine.barrier, found.keep
        )
        return [*seats, _Seat(LEARNER, learner_process.run, learner)]

    def __iter__(self) -> Iterator[Updated]:
        """Update after update, in the order of the rollouts."""
        while self._heard.told < self.experiment.updates:
            while not self._can_tell:
                child = wait_child(self.children)
                with undisturbed():
                    self._hear(child)
            yield self._next()

    def rest(self) -> Iterator[Updated]:
        """End the learner, and tell what it has learnt that nobody was told yet."""
        (learner,) = [seat.child for seat in self._seats if seat.child and seat.name == LEARNER]
        learner.stop()
        talking = self.children
        while self._heard.told < self._shared.learnt.updates and talking:
            if self._can_tell:
                yield self._next()
                continue
            child = wait_child(talking, _SECONDS_TO_SPEAK)
            if child is None:
                return
            try:
                self._heard.take(child.hear())
            except RoleFailed:
                talking.remove(child)

    @property
    def _can_tell(self) -> bool:
        """The next update is complete, and everything about it has been said."""
        return self._heard.complete and self._shared.learnt.updates > self._heard.told

    def _hear(self, child: Child | None) -> None:
        """What it has to say, or that it is gone."""
        assert child is not None, "without a limit somebody speaks or dies"
        try:
            self._heard.take(child.hear())
        except RoleDied as death:
            self._replace(death)

    def _next(self) -> Updated:
        updated = self._heard.next()
        self.chain = updated.link.chain
        return updated

    def standing(self) -> Standing | None:
        """Where the run stands now; None in the moments when that cannot be seen."""
        return look(self._shared, self._heard, self._alive)

    def _past(self, executor: int) -> Past:
        """What a successor of this executor has to know."""
        blocks = self.crew.blocks_of(executor)
        return Past({block: self._heard.past[block] for block in blocks}, self._began)

    def _replace(self, death: RoleDied) -> None:
        """Start a successor, and wake everybody who may have waited for a ring that was lost."""
        now = time.monotonic()
        self._deaths.append(now)
        while now - self._deaths[0] > _HOUR:
            self._deaths.popleft()
        if len(self._deaths) > self._most:
            raise death
        (seat,) = [seat for seat in self._seats if seat.name == death.role]
        assert seat.child is not None, "who has died was alive"
        seat.child.end()
        seat.child = None  # an interruption here finds nobody to end
        if isinstance(seat.assignment, executor_process.Assignment):
            past = self._past(seat.assignment.index)
            seat.assignment = dataclasses.replace(seat.assignment, past=past)
        seat.start()
        self._memory.bells.ring_all()
        self.replaced.append(death.short)
        print(f"hts: {death.short}; another one goes on in its place", file=sys.stderr, flush=True)

    def time_budget(self) -> str:
        """Where time went: for each kind of process the shares worked and waited, and for whom."""
        executors, actors = self.crew.executors, self.crew.actors
        kinds = {
            _plural(executors, "executor"): self._shared.times[:executors],
            _plural(actors, "actor"): self._shared.times[executors : executors + actors],
            "learner": self._shared.times[-1:],
        }
        parts = []
        for kind, rows in kinds.items():
            total = rows.sum()
            if not total:
                continue
            shares = zip(TIMES, rows.sum(0) / total, strict=True)
            spent = [f"{column} {share:.0%}" for column, share in shares if share >= 0.005]
            parts.append(f"{kind} {', '.join(spent)}")
        return "; ".join(parts)

    def close(self) -> None:
        """End every process."""
        for child in self.children:
            child.end()
        self._seats = []
        self._memory.close()


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count > 1 else ''}"
