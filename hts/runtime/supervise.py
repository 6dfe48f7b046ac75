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
from pathlib import Path
from typing import Any

from hts.config import Machine
from hts.errors import RoleDied, RoleFailed
from hts.report.say import say
from hts.roles.executor import Past
from hts.runtime import executor_process
from hts.runtime.assemble import Plan
from hts.runtime.heard import Heard
from hts.runtime.process import Child, wait_child
from hts.runtime.shared import Memory, Shared
from hts.runtime.watch import Move, Watch
from hts.signals import undisturbed
from hts.soundness.case import Case, Failure, Kind, Question

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
        self._found = found
        self._machine = machine
        self._memory = memory
        self._shared = shared
        self._crew = memory.blueprint.crew
        self._deaths: deque[float] = deque()
        self._failed: set[tuple[Any, ...]] = set()  # places where something failed once
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
            self._raised(seat, failure)
        else:
            if "ready" in said:
                seat.ready, seat.since = True, time.monotonic()
            if "note" in said:
                self._note(said["note"], said.get("facts", {}))
            self.heard.take(said)
            if "strayed" in said:
                self._strayed(said)

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
            cases = [self._case(block, Failure(Kind.DIES, death.what)) for block in stepping]
            told = _repeatable(death, cases[0] if cases else None)
            self._once(told, seat.name, *self._shared.desk.asked[blocks].tolist())
        self._replace(seat, death)

    def _raised(self, seat: Seat, failure: RoleFailed) -> None:
        """Of its own, it ends the run; of a simulator's, it is tried once more."""
        if failure.replica is None:
            raise failure
        block = self._crew.block_with(failure.replica)
        row = failure.replica - self._crew.blocks[block].start
        path = self._case(block, Failure(Kind.RAISES, failure.what), row)
        cause = failure.what.rstrip().splitlines()[-1]
        short = f"{self._place(block, failure.replica)}: {cause}"
        named = RoleFailed(seat.name, failure.what, failure.replica, short=short)
        self._once(_repeatable(named, path), block, int(self._shared.desk.asked[block]))
        self._replace(seat, failure)

    def _place(self, block: int, replica: int) -> str:
        """Return the step that a replica's simulator has to take, in words."""
        desk = self._shared.desk
        if not desk.asked[block]:
            return f"replica {replica}, before its first step"
        rollout, step = desk.question(block)
        storage = self._shared.storages[rollout % 2]
        age, episode = int(storage.age[replica, step]), int(storage.episode[replica, step])
        return f"replica {replica}, step {age + 1} of episode {episode}"

    def _once(self, failure: Exception, *place: Any) -> None:
        """What fails twice in one place would do so for ever."""
        if place in self._failed:
            raise failure
        self._failed.add(place)

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

    def _strayed(self, said: dict[str, Any]) -> None:
        """Somebody's episode did not come back, and was cut short."""
        marks = self.heard.marks[-len(said["strayed"]) :]
        for replica, mark in zip(said["strayed"], marks, strict=True):
            _say(f"{mark}; its next episode begins, and the digest is marked as interrupted")
            block = self._crew.block_with(replica["replica"])
            row = replica["replica"] - self._crew.blocks[block].start
            at = (said["rollout"], said["step"])
            self._case(block, Failure(Kind.STRAYS, mark), row, at)

    def _case(
        self,
        block: int,
        failure: Failure,
        row: int | None = None,
        at: tuple[int, int] | None = None,
    ) -> Path | None:
        """Write down what it takes to let a block's simulator fail again."""
        folder, desk = self._found.cases, self._shared.desk
        if folder is None:
            return None
        rollout, step = at or desk.question(block)
        question = None
        if desk.asked[block]:
            storage = self._shared.storages[rollout % 2]
            question = Question(storage, rollout, step, self.heard.past[block])
        replicas = self._crew.blocks[block]
        number = replicas.start + (row or 0)
        path = folder / f"{failure.kind}-replica{number}-rollout{rollout}-step{step}.safetensors"
        try:
            folder.mkdir(exist_ok=True)
            Case.of(self._found.experiment, replicas, question, failure, row=row).write(path)
        except OSError as error:
            _say(f"{path} could not be written ({error.strerror})")
            return None
        return path

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
        path = self._case(move.block, Failure(Kind.HANGS, f"{words}; {seat.child.doing()}"))
        again = "" if path is None else f": hts-check --replay {path}"
        _say(f"{words}, and is ended{again}")
        asked = int(self._shared.desk.asked[move.block])
        self._once(RoleFailed(move.role, f"{words}, for the second time{again}"), move.block, asked)
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


def _repeatable(failure: RoleFailed, case: Path | None) -> RoleFailed:
    """Return the same failure with the command that repeats it, if a case was written."""
    if case is None:
        return failure
    again = f"hts-check --replay {case} lets it fail again"
    what, short = f"{failure.what.rstrip()}\n\n{again}", f"{failure.short}; {again}"
    return type(failure)(failure.role, what, failure.replica, short=short)


def _say(sentence: str) -> None:
    say(f"hts: {sentence}")
