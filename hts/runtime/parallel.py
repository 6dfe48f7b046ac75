"""The parallel runner: executors, actors and the learner in processes; this one listens.

A dataflow of named versions: a block may fill its part of rollout v as soon as version v is
published and its own part of rollout v - 1 is done; the learner may make version v + 2 as soon as
rollout v is complete. They find each other in shared memory; what they send here is for people,
for the record, and for their successors.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

from hts.config import Machine
from hts.errors import RoleFailed
from hts.machine import TIMES
from hts.remote.port import Port, Remote
from hts.report.drawing import percent
from hts.runtime import (
    actor_process,
    executor_process,
    learner_process,
    nursery,
    p_learner_process,
)
from hts.runtime.assemble import Plan, Updated
from hts.runtime.clock import until_now
from hts.runtime.devices import device_of
from hts.runtime.learners import is_beside
from hts.runtime.process import Child, wait_child
from hts.runtime.shared import Inference, Terms, allocate
from hts.runtime.standing import Standing, look, stand
from hts.runtime.supervise import Seat, Supervisor
from hts.runtime.vitals import Crewed, Spent

_SECONDS_TO_SPEAK = 1.0
LEARNER, P_LEARNER = "learner", "P-learner"


class ParallelRun:
    """One run on several processes."""

    def __init__(self, found: Plan, machine: Machine, begin: Standing | None = None) -> None:
        nursery.warm()
        self.experiment = found.experiment
        self.strategy = found.strategy()
        self.chain = found.digest().chain
        blueprint = found.blueprint(machine)
        self.crew = blueprint.crew
        self._memory = allocate(blueprint)
        self._shared = self._memory.view()
        self._supervisor = Supervisor(found, machine, self._memory, self._shared)
        self._heard = self._supervisor.heard
        self._alive = len(found.first_versions())
        self._workers = 1 if machine.learners == "auto" else machine.learners
        try:
            if begin is not None:
                stand(self._shared, self._heard, begin)
                self.chain = begin.chain
            self._supervisor.start(self._assign(found, machine))
        except BaseException:
            self.close()
            raise

    @property
    def children(self) -> list[Child]:
        """The processes as they are now."""
        return self._supervisor.children

    @property
    def replaced(self) -> list[str]:
        """Whose place was taken by another one, and why."""
        return self._supervisor.replaced

    @property
    def marks(self) -> list[str]:
        """Why the digest is not that of an undisturbed run, if it is not."""
        return self._heard.marks

    def _assign(self, found: Plan, machine: Machine) -> list[Seat]:
        terms = Terms(self.experiment, self._memory, found.roles, found.jitter)
        inference = Inference(found.device, self.strategy)
        threads = machine.stepping == "threads"
        seats = []
        remote = _remote(machine, self.crew.replicas)
        for index in range(self.crew.executors):
            inline = None if self.crew.actors else inference
            past = self._supervisor.past(index)
            theirs = remote if index == self.crew.executors - 1 else None
            executor = executor_process.Assignment(index, terms, threads, inline, theirs, past)
            seats.append(Seat(f"executor {index}", executor_process.run, executor))
        for index in range(self.crew.actors):
            actor = actor_process.Assignment(index, terms, inference)
            seats.append(Seat(f"actor {index}", actor_process.run, actor))
        learns = dataclasses.replace(inference, device=device_of(machine, "v_learner"))
        learner = learner_process.Assignment(
            terms,
            learns,
            self._workers,
            machine.barrier,
            found.keep,
            found.policies,
            found.start,
        )
        if is_beside(self.experiment):
            teaches = p_learner_process.Assignment(terms, device_of(machine, "p_learner"))
            seats.append(Seat(P_LEARNER, p_learner_process.run, teaches))
        return [*seats, Seat(LEARNER, learner_process.run, learner)]

    def __iter__(self) -> Iterator[Updated]:
        """Update after update, in the order of the rollouts."""
        while self._heard.told < self.experiment.updates:
            while not self._can_tell:
                self._supervisor.listen()
            yield self._next()

    def rest(self) -> Iterator[Updated]:
        """End the learner, and tell what it has learnt that nobody was told yet."""
        for child in self.children:
            if child.name == LEARNER:
                child.stop()
        talking = self.children
        while self._heard.told < self._shared.learnt.updates and talking:
            if self._can_tell:
                yield self._next()
                continue
            speaking = wait_child(talking, _SECONDS_TO_SPEAK)
            if speaking is None:
                return
            try:
                self._heard.take(speaking.hear())
            except RoleFailed:
                talking.remove(speaking)

    @property
    def _can_tell(self) -> bool:
        """The next update is complete, and everything about it has been said."""
        return self._heard.complete and self._shared.learnt.updates > self._heard.told

    def _next(self) -> Updated:
        updated = self._heard.next()
        self.chain = updated.link.chain
        return updated

    def standing(self) -> Standing | None:
        """Where the run stands now; None in the moments when that cannot be seen."""
        return look(self._shared, self._heard, self._alive)

    def time_budget(self) -> str:
        """Where time went: for each kind of process the shares worked and waited, and for whom."""
        return "; ".join(time_sentence(spent) for spent in self._spent() if spent.rows.any())

    def crewed(self) -> Crewed:
        """What is seen of it from outside, until it is closed."""
        return Crewed(
            self._spent,
            self._supervisor.pids,
            replaced=lambda: len(self.replaced),
            learners=lambda: self._workers,
            taken=lambda: self._shared.desk.taken,
            filled=lambda: self._supervisor.filled,
        )

    def _spent(self) -> list[Spent]:
        """The times of everybody, by role."""
        executors, actors = self.crew.executors, self.crew.actors
        times = until_now(self._shared.times)
        found = [Spent("executor", times[:executors])]
        if actors:
            found.append(Spent("actor", times[executors : executors + actors]))
        if is_beside(self.experiment):
            found.append(Spent(P_LEARNER, times[executors + actors : -1]))
        return [*found, Spent(LEARNER, times[-1:])]

    def close(self) -> None:
        """End every process."""
        self._supervisor.end()
        self._memory.close()


def _remote(machine: Machine, replicas: int) -> Remote | None:
    """What the last executor has to know, if simulators dial in."""
    if not machine.dialled_in(replicas) or machine.listen is None:
        return None
    port = Port.checked(machine.listen, machine.keys)
    return Remote(port, os.urandom(8).hex(), machine.patience, machine.step_limit)


def time_sentence(spent: Spent) -> str:
    """Return the shares of a role's time: `2 actors worked 30 %, waited for executors 70 %`."""
    worked, *waits = spent.rows.sum(0) / spent.rows.sum()
    columns = [column.removeprefix("waited ") for column in TIMES[1:]]
    shares = [
        f"{column} {percent(share)}"
        for column, share in zip(columns, waits, strict=True)
        if share >= 0.005
    ]
    sentence = f"{_plural(len(spent.rows), spent.role)} worked {percent(worked)}"
    return f"{sentence}, waited {', '.join(shares)}" if shares else sentence


def _plural(count: int, word: str) -> str:
    if word in (LEARNER, P_LEARNER):
        return word
    return f"{count} {word}s" if count > 1 else f"{count} {word}"
