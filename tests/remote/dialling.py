"""Runs that simulators dial in to, and those simulators, for tests of both."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from hts.config import Experiment, Machine
from hts.remote.listening import fixed
from hts.remote.port import Port
from hts.runtime.assemble import Updated, plan
from hts.runtime.parallel import ParallelRun
from hts_envs import parse
from tests.fakes.dialled import How
from tests.limits import HANG

_SECONDS_TO_TELL = 10.0
_SECONDS_BETWEEN_LOOKS = 0.02


class Simulator:
    """A process that dials in."""

    def __init__(self, address: str, how: How, front: Sequence[str] = ()) -> None:
        words = [*front, sys.executable, "-m", "tests.fakes.dialled", address]
        given = json.dumps(dataclasses.asdict(how))
        self.process = subprocess.Popen([*words, given], stdout=subprocess.PIPE, text=True)

    def send(self, number: int) -> None:
        """A signal."""
        self.process.send_signal(number)

    def tells(self) -> None:
        """Wait until it says that it is where it stays, or raises."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "it says so"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Simulators:
    """All that a test has started; none of them outlives it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def start(
        self, address: str, count: int = 1, *, front: Sequence[str] = (), **how: Any
    ) -> list[Simulator]:
        """So many of this kind; `front` stands in front of their commands."""
        made = [Simulator(address, How(**how), front) for _ in range(count)]
        for each in made:
            self._stack.callback(each.end)
        return made


@contextmanager
def simulators() -> Iterator[Simulators]:
    with ExitStack() as stack:
        yield Simulators(stack)


def free_address() -> str:
    """Where a run can listen."""
    return fixed(Port("tcp://127.0.0.1:*")).address


@dataclasses.dataclass
class Told:
    """What a run said."""

    updates: list[Updated]
    replaced: list[str]
    marks: list[str]

    @property
    def links(self) -> list[Any]:
        return [updated.link for updated in self.updates]


class Going:
    """A run while it goes on, for whoever disturbs it."""

    def __init__(self, run: ParallelRun) -> None:
        self.run = run
        self.count = 0
        self.over = False
        self._moved = threading.Condition()

    def moves(self) -> None:
        with self._moved:
            self.count += 1
            self._moved.notify_all()

    def ends(self) -> None:
        with self._moved:
            self.over = True
            self._moved.notify_all()

    def until(self, updates: int) -> None:
        """Wait for so many updates."""
        with self._moved:
            self._moved.wait_for(lambda: self.over or self.count >= updates)
            assert self.count >= updates, "the run is over before its story is"

    def goes_on(self, updates: int = 3) -> None:
        """Wait for more updates than can have been under way."""
        self.until(self.count + updates)

    def sees(self, event: Callable[[], bool]) -> None:
        """Wait until the event has happened."""
        until = time.monotonic() + HANG
        with self._moved:
            while not event():
                assert not self.over, "the run is over before its story is"
                assert time.monotonic() < until, "it never happens"
                self._moved.wait(_SECONDS_BETWEEN_LOOKS)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        (pid,) = self._pids(name)
        os.kill(pid, number)

    def replaces(self, name: str) -> None:
        """Kill a process, and wait until another one has its name."""
        killed = self._pids(name)
        self.kill(name)
        self.sees(lambda: bool(self._pids(name) - killed))

    def _pids(self, name: str) -> set[int]:
        return {child.pid for child in self.run.children if child.name == name}


def told(
    asked: Experiment, machine: Machine, story: Callable[[Going], None] = lambda _: None
) -> Told:
    """The whole run; the story is told beside it."""
    run = ParallelRun(plan(asked, parse(asked.env), "cpu"), machine)
    going, failed, updates = Going(run), [], []

    def tell() -> None:
        try:
            story(going)
        except BaseException as error:
            failed.append(error)

    beside = threading.Thread(target=tell, daemon=True)
    beside.start()
    try:
        for updated in run:
            updates.append(updated)
            going.moves()
    finally:
        going.ends()
        beside.join(_SECONDS_TO_TELL)
        found = Told(updates, run.replaced, run.marks)
        run.close()
    if failed:
        raise failed[0]
    return found


def machine(address: str, **changes: Any) -> Machine:
    """One process for whoever dials in at this address, and another that learns."""
    values: dict[str, Any] = {"executors": 1, "stepping": "turns", "listen": address}
    return Machine(**values | {"patience": 0.0} | changes)
