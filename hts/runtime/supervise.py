"""Starts the processes of a run, listens to them, and replaces what fails.

A process that is killed costs time and nothing else (hts/design/0009): its successor goes on from
what is in memory, and whoever may have waited for a ring that is lost is rung. A simulator that
raises, or hangs longer than the user allows, is written down as a case for `hts-check --replay`,
and rebuilt like one that was lost; if the same step fails again, that is how the run ends.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from hts.config import Machine
from hts.errors import RoleDied, RoleFailed
from hts.report.say import say
from hts.roles.executor import Past
from hts.runtime import executor_process
from hts.runtime.assemble import Plan
from hts.runtime.failures import Failures
from hts.runtime.heard import Heard
from hts.runtime.process import Child, wait_child
from hts.runtime.shared import Memory, Shared
from hts.runtime.watch import Move, Watch
from hts.signals import undisturbed
from hts.soundness.case import Failure, Kind

_HOUR = 3600.0
_STARTS = 2  # of a process that dies of itself before it is ready
_OURS = ("SIGKILL", "SIGTERM")  # signals that say nothing about what a process was doing


@dataclasses.dataclass
class Seat:
    """One process, and what it takes to start another in its place."""

    name: str
    role: Callable[..., None]
    assignment: Any
    child: Child | None = None
    ready: bool = False
    starts: int = 0
    since: float = 0.0  # it was started, or is ready
    pid: int = 0  # of the latest one

    def start(self) -> None:
        self.ready, self.since = False, time.monotonic()
        self.starts += 1
        self.child = Child(self.name, self.role, self.assignment)
        self.pid = self.child.pid

    @property
    def executor(self) -> int | None:
        """The number of the executor that sits here, if one does."""
        given = self.assignment
        return given.index if isinstance(given, executor_process.Assignment) else None

    @property
    def dials_in(self) -> bool:
        """Simulators dial in to whoever sits here."""
        given = self.assignment
        return isinstance(given, executor_process.Assignment) and given.remote is not None


class Supervisor:
    """Everybody's seat, and what has been heard from there."""

    def __init__(self, found: Plan, machine: Machine, memory: Memory, shared: Shared) -> None:
        self.heard = Heard(memory.blueprint)
        self.replaced: list[str] = []
        self.seats: list[Seat] = []
        self.filled: tuple[int, int] | None = None  # seats with a simulator that dials in, and all
        self._machine = machine
        self._memory = memory
        self._shared = shared
        self._crew = memory.blueprint.crew
        self._deaths: deque[float] = deque()
        self._failures = Failures(found, shared, self.heard)
        self._rung: tuple[str, float] | None = None
        self._told: tuple[str, float] | None = None
        limits = [limit / 4 for limit in (machine.patience, machine.step_limit) if limit]
        every = min(limits, default=None)
        self._every, self._looked = every, time.monotonic()
        self._watch = Watch(shared, found.experiment.updates, every or 0.0)

    @property
    def children(self) -> list[Child]:
        """The processes as they are now."""
        return [seat.child for seat in self.seats if seat.child is not None]

    def pids(self) -> list[int]:
        """Of everybody who is there now; asked for by a thread that only looks."""
        return [seat.pid for seat in self.seats if seat.pid]

    def start(self, seats: list[Seat]) -> None:
        """Everybody, until they are ready: worlds are built, networks are there."""
        self.seats = seats
        for seat in seats:
            seat.start()
        while not all(seat.ready for seat in seats):
            self.listen()

    def past(self, executor: int) -> Past:
        """What this executor, or its successor, has to know."""
        blocks = self._crew.blocks_of(executor)
        actions = {block: self.heard.past[block] for block in blocks}
        replicas = [replica for block in blocks for replica in self._crew.blocks[block]]
        return Past(actions, self.heard.began, self.heard.snapshots_of(replicas))

    def listen(self) -> None:
        """Until somebody speaks or dies, or it is time to look who is waited for."""
        child = wait_child(self.children, self._every)
        with undisturbed():
            if child is not None:
                self._hear(next(seat for seat in self.seats if seat.child is child))
            self._look()

    def _hear(self, seat: Seat) -> None:
        """What it has to say, or that it is gone."""
        assert seat.child is not None, "who is heard sits there"
        try:
            said = seat.child.hear()
        except RoleDied as death:
            self._died(seat, death)
        except RoleFailed as failure:
            self._failures.raised(failure)
            self._replace(seat, failure)
        else:
            if "ready" in said:
                seat.ready, seat.since = True, time.monotonic()
            if "note" in said:
                self._note(said["note"], said.get("facts", {}))
            self.heard.take(said)
            if "strayed" in said:
                self._failures.strayed(said)

    def _note(self, sentence: str, facts: dict[str, int]) -> None:
        """Pass on what a process has to tell people, and how many simulators it has."""
        if "seats" in facts:
            self.filled = facts["seats_filled"], facts["seats"]
        say(f"hts: {sentence}", **facts)

    def _died(self, seat: Seat, death: RoleDied) -> None:
        of_itself = not death.short.endswith(_OURS)
        if of_itself and not seat.ready and seat.starts >= _STARTS:
            raise death
        if of_itself and seat.executor is not None:
            blocks = list(self._crew.blocks_of(seat.executor))
            stepping = list(self._shared.desk.stepping(blocks))
            asked = self._shared.desk.asked[blocks].tolist()
            self._failures.died(death, stepping, seat.name, *asked)
        self._replace(seat, death)

    def _replace(self, seat: Seat, why: RoleFailed) -> None:
        """Start a successor, and wake everybody who may have waited for a ring that was lost."""
        now = time.monotonic()
        self._deaths.append(now)
        while now - self._deaths[0] > _HOUR:
            self._deaths.popleft()
        if len(self._deaths) > self._machine.replacements:
            raise why
        assert seat.child is not None, "who has failed sat there"
        seat.child.end()
        seat.child = None
        if seat.executor is not None:
            past = self.past(seat.executor)
            seat.assignment = dataclasses.replace(seat.assignment, past=past)
        seat.starts = 0 if seat.ready else seat.starts
        seat.start()
        self._memory.bells.ring_all()
        self.replaced.append(why.short)
        _say(f"{why.short}; another one goes on in its place")

    def _look(self) -> None:
        """Now and then: say who is waited for, and end what takes longer than it may."""
        now = time.monotonic()
        if self._every is None or now - self._looked < self._every:
            return
        self._looked = now
        moves = list(self._moves())
        for move in moves:
            limit = self._limit(move)
            if limit and now - move.since > limit:
                self._end(move)
                return
        slowest = min(moves, key=lambda move: move.since, default=None)
        if slowest is not None and self._machine.patience:
            self._tell(slowest, now)

    def _tell(self, move: Move, now: float) -> None:
        """Say once who is waited for, when that has taken longer than there is patience for.

        Everybody is rung when half of it is over: who is stopped may have owed somebody a ring.
        """
        place, child = (move.role, move.since), self._seat(move.role).child
        patience, waited = self._machine.patience, now - move.since
        if waited > patience / 2 and place != self._rung:
            self._rung = place
            self._memory.bells.ring_all()
        if waited > patience and place != self._told and child is not None:
            self._told = place
            _say(f"{move.role} has had {move.what} for {waited:.0f} s; {child.doing()}")

    def _moves(self) -> Iterator[Move]:
        """Who has to move, if that is to get ready; nobody has to before that."""
        seats = {seat.name: seat for seat in self.seats}
        for seat in self.seats:
            if not seat.ready:
                yield Move(seat.name, "to get ready", None, seat.since)
        for move in self._watch.moves():
            if move.role not in seats:
                continue  # whose turns somebody else takes
            if seats[move.role].dials_in:
                continue  # it watches over its simulators itself
            if seats[move.role].ready:
                yield dataclasses.replace(move, since=max(move.since, seats[move.role].since))

    def _limit(self, move: Move) -> float:
        """How long a move may take; blocks in turn wait for each other."""
        if move.block is None or not move.role.startswith("executor"):
            return 0.0
        executor = self._crew.executor_of[move.block]
        turns = len(self._crew.blocks_of(executor)) if self._machine.stepping == "turns" else 1
        return self._machine.step_limit * turns

    def _end(self, move: Move) -> None:
        """What hangs is ended, and replaced when its death is heard."""
        seat = self._seat(move.role)
        assert move.block is not None, "a step is a block's"
        assert seat.child is not None, "whoever steps it sits there"
        words = f"{move.role} had {move.what} for more than {self._machine.step_limit:g} s"
        failure = Failure(Kind.HANGS, f"{words}; {seat.child.doing()}")
        path = self._failures.write(move.block, failure)
        again = "" if path is None else f": hts-check --replay {path}"
        _say(f"{words}, and is ended{again}")
        asked = int(self._shared.desk.asked[move.block])
        twice = RoleFailed(move.role, f"{words}, for the second time{again}")
        self._failures.once(twice, move.block, asked)
        seat.child.kill()
        seat.ready, seat.since = False, time.monotonic()  # it has no move until its successor has

    def _seat(self, name: str) -> Seat:
        return next(seat for seat in self.seats if seat.name == name)

    def end(self) -> None:
        """End everybody; what was interrupted in its middle can be done again."""
        for seat in self.seats:
            if seat.child is not None:
                seat.child.end()
                seat.child = None
        self.seats = []


def _say(sentence: str) -> None:
    say(f"hts: {sentence}")
