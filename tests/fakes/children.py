"""Roles for child processes: obedient, failing, dying, deaf."""

from __future__ import annotations

import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

from hts.memory.doorbell import Doorbell
from hts.runtime.process import Pipe
from tests.fakes.births import name_of, own_bytes

mark = "as imported"
"""What a child finds here was not changed by its parent: it was not forked from it."""


def answer_the_door(_: Pipe, ours: Doorbell, theirs: Doorbell) -> None:
    """Ring back, each time."""
    while True:
        ours.wait()
        theirs.ring()


def tear(pipe: Pipe) -> None:
    """Die in the middle of a message: its length says more than comes."""
    os.write(pipe.connection.fileno(), struct.pack("!i", 1000) + b"{")
    os.kill(os.getpid(), signal.SIGKILL)


def tell(pipe: Pipe, given: Any) -> None:
    """What it was given, and what it finds in itself."""
    pipe.send(
        given=given,
        mark=mark,
        name=name_of(os.getpid()),
        parent=os.getppid(),
        interrupt=signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
    )
    pipe.receive()


def tell_what_is_there(pipe: Pipe) -> None:
    """What has been imported, and what that has cost."""
    torch = "torch" in sys.modules
    own = own_bytes(os.getpid())
    threads = len(os.listdir("/proc/self/task"))
    pipe.send(torch=torch, threads=threads, own=own, seconds=time.process_time())
    pipe.receive()


def tell_where(pipe: Pipe) -> None:
    """Where it is."""
    print("printed there", flush=True)
    pipe.send(
        folder=os.getcwd(),
        place=os.environ.get("HTS_TEST_PLACE"),
        home=os.environ.get("HOME"),
        cores=sorted(os.sched_getaffinity(0)),
    )
    pipe.receive()


def ring_all(pipe: Pipe, bells: list[Doorbell]) -> None:
    """Every one that it was given."""
    for bell in bells:
        bell.ring()
    pipe.send(rung=len(bells))
    pipe.receive()


def write(path: str) -> None:
    """Leave a mark."""
    Path(path).write_text("I was here")


def repeat(pipe: Pipe) -> None:
    """Send back whatever comes."""
    while True:
        pipe.send(**pipe.receive())


def fail(_: Pipe, message: str) -> None:
    """Raise."""
    raise ValueError(message)


def lose_its_simulator(_: Pipe, error: str) -> None:
    """Raise what a simulator behind a socket raises when that is closed."""
    raise {"EOFError": EOFError, "BrokenPipeError": BrokenPipeError}[error]("no simulator")


def leave(_: Pipe, code: int) -> None:
    """End without a word."""
    os._exit(code)


def be_killed(pipe: Pipe, number: int) -> None:
    """End by a signal."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    pipe.receive()


def be_deaf(pipe: Pipe) -> None:
    """Hear no signal that can be ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.send(deaf=True)
    while True:
        signal.pause()
