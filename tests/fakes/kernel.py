"""What processes ask of the operating system, in one process under a scheduler.

Doorbells, pipes, child processes, shared memory and sleep: each does what the real one does as far
as its users can tell, and every use of it is a point where somebody else may run. Everything above
them is the real code.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hts.machine import SharedArray
from hts.roles.executor import Past
from hts.runtime.process import Pipe
from hts_envs.contract import Array
from tests.machine.scheduler import Process, Scheduler

_SIGKILL = 9
_IMPATIENT = 0.05  # how often a wait with a limit comes to its end, each time it is asked
_SECONDS = 0.01  # that pass from point to point
_TORN = 0.25  # how often a write of several numbers is done in two halves


class Doorbell:
    """An eventfd: counts, so that a ring before the wait is not lost."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._count = 0
        self._waiting: Process | None = None

    def ring(self) -> None:
        self._scheduler.point("ring")
        self._count += 1
        if self._waiting is not None:
            self._scheduler.wake(self._waiting)

    def wait(self) -> None:
        self._scheduler.point("wait")
        self._waiting = self._scheduler.current
        while not self._count:
            self._scheduler.wait()
        self._waiting = None
        self._count = 0
        self._scheduler.point("woken")

    def close(self) -> None:
        """There is nothing to give back."""


class Line:
    """A pipe from a child to the run, both ends in one; the child hears nothing."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._sent: deque[bytes] = deque()
        self._is_cut = False

    @property
    def is_ready(self) -> bool:
        return bool(self._sent) or self._is_cut

    def send_bytes(self, content: bytes) -> None:
        self._scheduler.point("send")
        self._sent.append(content)
        self._scheduler.wake(self._scheduler.main)

    def recv_bytes(self) -> bytes:
        self._scheduler.point("receive")
        while self._scheduler.current is not self._scheduler.main or not self.is_ready:
            self._scheduler.wait()
        if not self._sent:
            raise EOFError
        return self._sent.popleft()

    def cut(self) -> None:
        """The child is gone."""
        self._is_cut = True
        self._scheduler.wake(self._scheduler.main)

    def close(self) -> None:
        """The run lets go of the child's end when the child has it."""


@dataclasses.dataclass(eq=False)
class Sentinel:
    """Becomes ready when the process is gone."""

    is_ready: bool = False


_PIDS = itertools.count(2)


class ChildProcess:
    """Runs a role as the scheduler says."""

    def __init__(self, scheduler: Scheduler, args: Sequence[Any], name: str) -> None:
        self._scheduler = scheduler
        self.pid = next(_PIDS)
        self._line, _, role, asked = args
        self.sentinel = Sentinel()
        self.exitcode: int | None = None
        given = [_as_sent(each) for each in asked]
        pipe = Pipe(self._line)
        self._process = scheduler.start(name, lambda: role(pipe, *given), self._ended)

    def _ended(self) -> None:
        self.sentinel.is_ready, self.exitcode = True, -_SIGKILL
        self._line.cut()

    def terminate(self) -> None:
        self._scheduler.kill(self._process)

    kill = terminate

    def join(self, timeout: float | None = None) -> None:
        assert self._process.is_over, "nobody waits for a process that lives"

    def is_alive(self) -> bool:
        return not self._process.is_over

    def close(self) -> None:
        """There is nothing to give back."""


class Stacks:
    """Where a process would write its stacks: nobody asks."""

    def close(self) -> None:
        """There is nothing to give back."""

    def behind(self, place: int) -> str:
        """Nothing was written: whoever is killed has no time for it."""
        return ""


def _as_sent(given: Any) -> Any:
    """As it reaches a child: with a past of its own. All else in it never changes."""
    past = getattr(given, "past", None)
    if past is None:
        return given
    actions = {block: dict(older) for block, older in past.actions.items()}
    return dataclasses.replace(given, past=Past(actions, past.since, past.snapshots))


class Watched(np.ndarray[Any, Any]):
    """Shared memory: every look at it and every write to it is a point.

    What is read is plain. A write of several numbers may be seen when half of it is there.
    """

    looked: str  # what a look is called on a tape
    written: str
    scheduler: Scheduler

    @staticmethod
    def of(plain: Array, name: str, scheduler: Scheduler) -> Watched:
        watched = plain.view(Watched)
        watched.looked, watched.written = f"reads {name}", f"writes {name}"
        watched.scheduler = scheduler
        return watched

    def __array_finalize__(self, other: Any) -> None:
        if isinstance(other, Watched):  # the same memory in another shape
            self.looked, self.written = other.looked, other.written
            self.scheduler = other.scheduler

    @property
    def plain(self) -> Array:
        """The same memory, and nobody sees a look at it."""
        return np.ndarray.view(self, np.ndarray)

    def __getitem__(self, key: Any) -> Any:
        self.scheduler.point(self.looked)
        return self.plain[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        scheduler = self.scheduler
        scheduler.point(self.written)
        if scheduler.random() < _TORN:
            target = self.plain[key]
            is_part = isinstance(target, np.ndarray) and target.size > 1
            if is_part and np.may_share_memory(target, self.plain):
                self._write_halves(target, value)
                return
        self.plain[key] = value

    def _write_halves(self, target: Array, value: Any) -> None:
        axis = int(np.argmax(target.shape))
        middle = target.shape[axis] // 2
        whole = np.asarray(value)
        if whole.shape != target.shape:
            whole = np.broadcast_to(whole, target.shape)
        for part in (slice(None, middle), slice(middle, None)):
            place = (*[slice(None)] * axis, part)
            target[place] = whole[place]
            self.scheduler.point(self.written)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **others: Any) -> Any:
        self.scheduler.point(self.looked)
        plain = [each.plain if isinstance(each, Watched) else each for each in inputs]
        return getattr(ufunc, method)(*plain, **others)


class Arena:
    """Ordinary memory in place of a mapped file. Everybody asks for all tables in turn."""

    def __init__(self, tables: Sequence[Sequence[SharedArray]], scheduler: Scheduler) -> None:
        self._tables: list[dict[str, Array]] = []
        self._plain: list[Array] = []
        for table in tables:
            made = {}
            for declared in table:
                plain = np.zeros(declared.shape, declared.dtype)
                self._plain.append(plain)
                is_watched = declared.name != "times"
                made[declared.name] = (
                    Watched.of(plain, declared.name, scheduler) if is_watched else plain
                )
            self._tables.append(made)
        self._next = 0

    def zero(self) -> None:
        for plain in self._plain:
            plain.fill(0)
        self._next = 0

    def arrays(self, table: Sequence[SharedArray]) -> dict[str, Array]:
        found = self._tables[self._next]
        assert len(found) == len(table), "every process asks in the same order"
        self._next = (self._next + 1) % len(self._tables)
        return found

    def close(self) -> None:
        """It is used again."""


class Kernel:
    """All of it, under one scheduler."""

    Stacks = Stacks

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._arenas: dict[Any, Arena] = {}

    def Doorbell(self) -> Doorbell:  # noqa: N802 - called where a class is called
        return Doorbell(self.scheduler)

    def pipe(self) -> tuple[Line, Line]:
        line = Line(self.scheduler)
        return line, line

    def bear(self, name: str, _: Callable[..., None], given: Sequence[Any]) -> ChildProcess:
        return ChildProcess(self.scheduler, given, name)

    def create(self, tables: Sequence[Sequence[SharedArray]]) -> Arena:
        """Memory for these tables, zeroed; the same as before where the tables are."""
        key = tuple(map(tuple, tables))
        arena = self._arenas.get(key)
        if arena is None:
            arena = self._arenas[key] = Arena(tables, self.scheduler)
        arena.zero()
        return arena

    def wait(
        self, signs: Sequence[Line | Sentinel], seconds: float | None = None
    ) -> list[Line | Sentinel]:
        """Those that are ready, any of them first; none where time may be over first."""
        self.scheduler.point("listen")
        while True:
            ready = [sign for sign in signs if sign.is_ready]
            if ready:
                self.scheduler.generator.shuffle(ready)
                return ready
            if seconds is None:
                self.scheduler.wait()
            elif self.scheduler.random() < _IMPATIENT:
                return []
            else:
                self.sleep(seconds)

    def sleep(self, seconds: float) -> None:
        self.scheduler.point("pause")

    def monotonic(self) -> float:
        """A clock that goes on with what happens."""
        return self.scheduler.steps * _SECONDS


def remembered(pure: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of arrays and integers, computed once for each."""
    known: dict[Any, Any] = {}

    @functools.wraps(pure)
    def ask(*parts: Any) -> Any:
        key = tuple(
            (part.shape, part.tobytes()) if isinstance(part, np.ndarray) else part for part in parts
        )
        if key not in known:
            known[key] = found = pure(*parts)
            if isinstance(found, np.ndarray):
                found.flags.writeable = False
        return known[key]

    return ask
