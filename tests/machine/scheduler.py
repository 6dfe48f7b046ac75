"""Who runs next, decided by a generator with a seed: simulated processes in one real one.

Each process is a greenlet. Wherever it touches what others see it comes to a *point*, and there
the generator may let somebody else go on, or end the process as SIGKILL would: nothing of it runs
any more, and what it has written stays. A process that waits goes on when it is woken. What happens
between two points happens at once, and in the order of the program: the reordering of writes by a
processor is not simulated.

    runs --point--> runs, stands or has ended      runs --wait--> waits --wake--> stands

Each interleaving draws its own habits: how often points change who runs, who is slow, and at which
of its points whom a death awaits. All follows from the seed, so the seed repeats all of it.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from greenlet import getcurrent, greenlet

MOST_STEPS = 300_000
"""Points after which a run that has not come to its end is said to go round in circles."""

EAGER = (0.02, 0.1, 0.3, 1.0)
"""How often a point changes who runs: one of these for a whole interleaving."""

KILLS = (0, 1, 1, 2, 2, 3, 5)
"""Deaths that await the processes of an interleaving: one of these."""

MOODY = (0.0, 0.003, 0.03)
"""How often it changes who is slow, each time that somebody is chosen."""

_SLOW = 0.2  # how many are slow
_PATIENCE = 0.97  # how often somebody who is slow lets others go first


class Killed(BaseException):
    """Thrown into a process that ends here."""


class Stuck(Exception):
    """Nobody can run, and the run is not over: somebody was not woken."""


class Endless(Exception):
    """The run goes on and on."""


@dataclass
class Seat:
    """Everybody who has had one name, one after the other."""

    points: int = 0
    dooms: list[int] = field(default_factory=list)  # of these points, the next one last
    next: int = -1

    def doom(self) -> None:
        """The next death, if there is one to come."""
        while self.dooms and self.dooms[-1] <= self.points:
            self.dooms.pop()
        self.next = self.dooms.pop() if self.dooms else -1


@dataclass(eq=False)
class Process:
    """One simulated process."""

    name: str
    number: int
    seat: Seat
    is_slow: bool
    ended: Callable[[], None]
    light: greenlet = field(default_factory=greenlet)
    is_over: bool = False


class Scheduler:
    """The processes of one interleaving, and whose turn it is."""

    def __init__(self) -> None:
        self.tape: list[str] | None = None  # everything that happens, if it is asked for
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Nobody runs; what comes follows from this seed."""
        self.generator = Random(seed)
        self.random = self.generator.random
        self.steps = self.switches = 0
        self.killed: list[str] = []
        self.seats: dict[str, Seat] = {}
        self._eager = EAGER[int(self.random() * len(EAGER))]
        self._moody = MOODY[int(self.random() * len(MOODY))]
        self._all_at_once = self.random() < 0.1
        self._hub: greenlet = getcurrent()
        self._able: list[Process] = []
        self._alive: list[Process] = []
        self._count = 0
        self._failure: BaseException | None = None
        self._trace = array("q")

    def calm(self) -> None:
        """Nobody is interrupted: whoever runs goes on until it waits."""
        self._eager = 0.0

    def threaten(self, usual: Mapping[str, int]) -> None:
        """From now on deaths await processes, each at one of the points that it usually has."""
        names = sorted(usual)
        for seat in self.seats.values():
            seat.dooms, seat.next = [], -1
        for _ in range(KILLS[int(self.random() * len(KILLS))]):
            name = names[int(self.random() * len(names))]
            seat = self.seats.setdefault(name, Seat())
            seat.dooms.append(seat.points + 1 + int(self.random() * usual[name]))
        for seat in self.seats.values():
            seat.dooms.sort(reverse=True)
            seat.doom()

    def run(self, body: Callable[[], None]) -> None:
        """Run this as the first process until it is over; raises what anybody has raised."""
        try:
            self.main = self.start("run", body, lambda: None)
            while not self.main.is_over and self._failure is None:
                self._go(self._choose())
        finally:
            for process in list(self._alive):
                self.kill(process)
        if self._failure is not None:
            raise self._failure

    def start(self, name: str, body: Callable[[], None], ended: Callable[[], None]) -> Process:
        """One process more; `ended` is called when it is over, for whatever reason."""
        seat = self.seats.setdefault(name, Seat())
        is_slow = self.random() < _SLOW
        process = Process(name, self._count, seat, is_slow, ended)
        self._count += 1

        def life() -> None:
            with suppress(Killed):
                try:
                    body()
                except Exception as error:
                    error.add_note(f"raised by {name}, after {self.steps:,} points")
                    self._failure = self._failure or error
            self._end(process)

        process.light = greenlet(life, self._hub)
        self._able.append(process)
        self._alive.append(process)
        return process

    def point(self, what: str) -> None:
        """Something that others may see comes next: perhaps not now, perhaps never."""
        process = self.current
        self.steps += 1
        if self.tape is not None:
            self.tape.append(f"{process.name}: {what}")
        seat = process.seat
        seat.points += 1
        if seat.points == seat.next:
            self._die(process)
        if self.random() < self._eager and len(self._able) > 1:
            chosen = self._choose()
            if chosen is not process:
                self._go(chosen)

    def wait(self) -> None:
        """The process that runs goes on when it is woken."""
        self._able.remove(self.current)
        if self._able:
            self._go(self._choose())
            return
        waiting = ", ".join(process.name for process in self._alive)
        self._failure = Stuck(f"nobody can run after {self.steps:,} points; waiting: {waiting}")
        self._hub.switch()

    def wake(self, process: Process) -> None:
        if not process.is_over and process not in self._able:
            self._able.append(process)

    def kill(self, process: Process) -> None:
        """It ends where it stands; called by another one."""
        if process.is_over:
            return
        if process.light:  # it has begun: unwind it, and come back here
            process.light.parent = getcurrent()
            process.light.throw(Killed)
        else:
            self._end(process)
        assert process.is_over, "nothing keeps a process from ending"

    def _die(self, process: Process) -> None:
        """The death of the process that runs, and now and then of all others with it."""
        victims = [process]
        if self._all_at_once:
            victims += [other for other in self._alive if other not in (process, self.main)]
        for victim in victims:
            self.killed.append(victim.name)
            self._trace.extend((-self.steps, victim.number))
            victim.seat.doom()
            if self.tape is not None:
                self.tape.append(f"{victim.name} is killed")
            if victim is not process:
                self.kill(victim)
        raise Killed

    def _end(self, process: Process) -> None:
        process.is_over = True
        self._alive.remove(process)
        if process in self._able:
            self._able.remove(process)
        process.ended()

    def _choose(self) -> Process:
        able = self._able
        if self.random() < self._moody:
            for process in self._alive:
                process.is_slow = self.random() < _SLOW
        chosen = able[int(self.random() * len(able))]
        if chosen.is_slow and self.random() < _PATIENCE:
            quick = [process for process in able if not process.is_slow]
            if quick:
                return quick[int(self.random() * len(quick))]
        return chosen

    def _go(self, process: Process) -> None:
        self.switches += 1
        self._trace.extend((self.steps, process.number))
        if self.steps > MOST_STEPS:
            self._failure = Endless(f"no end after {self.steps:,} points")
            self._hub.switch()
        self.current = process
        process.light.switch()

    @property
    def schedule(self) -> str:
        """A name for everything that was decided: who ran from which point on, who died where."""
        return hashlib.blake2b(self._trace.tobytes(), digest_size=16).hexdigest()
