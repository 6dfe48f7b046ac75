"""Child processes: born of a nursery, heard through a pipe, never left behind.

A child dies with its parent (the kernel sees to it), ignores the terminal's Ctrl-C (the parent
ends it), and sends its traceback when it fails. Messages are JSON, so that nothing is unpickled
while a run goes on. The parent waits for pipes and for deaths at once, and polls neither.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.connection import Pipe as pipe  # noqa: N813 - it is a function
from multiprocessing.reduction import DupFd
from typing import Any

from hts.errors import RoleDied, RoleFailed, WorldFailed
from hts.memory.room import kills
from hts.runtime.nursery import bear
from hts.signals import wait
from hts.tracebacks import simulator_failure
from hts_envs.errors import WorldError

_SECONDS_TO_END = 2.0
_SECONDS_TO_SAY = 1.0
_WANT = (
    "the kernel ended it for want of memory (fewer replicas, or fewer executors, need less of it): "
)
_STATES = {"R": "computing", "S": "waiting", "D": "waiting for a disk", "T": "stopped", "Z": "gone"}


class Pipe:
    """One end of a pipe that carries JSON, and raw bytes behind it where a message has some."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(self, raw: bytes | None = None, **message: Any) -> None:
        self.connection.send_bytes(json.dumps({**message, "raw": raw is not None}).encode())
        if raw is not None:
            self.connection.send_bytes(raw)

    def receive(self) -> dict[str, Any]:
        """Waits; EOFError when the other side is gone."""
        found: dict[str, Any] = json.loads(self.connection.recv_bytes())
        if found.pop("raw"):
            found["raw"] = self.connection.recv_bytes()
        return found


class Child:
    """One process that runs `role(pipe, *given)`."""

    def __init__(self, name: str, role: Callable[..., None], *given: Any) -> None:
        self.name = name
        ours, theirs = pipe()
        self.pipe = Pipe(ours)
        self._stacks = _Stacks()
        self._kills = kills()
        self._process = bear(name, _main, (theirs, self._stacks, role, given))
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def signs(self) -> list[Any]:
        """What becomes ready when it has said something, or is gone."""
        return [self.pipe.connection, self._process.sentinel]

    def hear(self) -> dict[str, Any]:
        """What it said; RoleFailed when it failed or died."""
        try:
            message = self.pipe.receive()
        except (EOFError, OSError):  # an OSError too: it died in the middle of a message
            self._process.join()
            raise RoleDied(self.name, self._end()) from None
        if "error" in message:
            told = message["error"], message["replica"], message["rebuilding"]
            raise RoleFailed(self.name, *told)
        return message

    def kill(self) -> None:
        """End it in the middle of whatever it is doing."""
        self._process.kill()

    def doing(self) -> str:
        """What it is doing now: the stacks of its threads, if it can still say, and its state."""
        state, listens = _state(self.pid)
        if state == "stopped":
            return "it is stopped (SIGCONT lets it go on)"
        before = self._stacks.size
        if listens:  # otherwise it is still being born, or gone
            os.kill(self.pid, signal.SIGUSR1)
        until = time.monotonic() + _SECONDS_TO_SAY
        while listens and self._stacks.size == before and time.monotonic() < until:
            time.sleep(0.01)
        said = self._stacks.behind(before)
        return f"it is {state}:\n{said}" if said else f"it is {state}"

    def stop(self) -> None:
        """Have it end, whatever it is doing; what it has said can still be heard."""
        self._process.terminate()
        self._process.join(_SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def end(self) -> None:
        """End it, and listen no more."""
        self.stop()
        self.pipe.connection.close()
        self._stacks.close()
        self._process.close()

    def _end(self) -> str:
        code = self._process.exitcode or 0
        if code < 0:
            said = self._stacks.behind(0).rpartition("Fatal Python error")
            stack = f"{said[1]}{said[2].rstrip()}\n" if said[1] else ""
            why = _WANT if code == -signal.SIGKILL and kills() > self._kills else ""
            return f"{stack}{why}it was ended by {signal.Signals(-code).name}"
        return f"it ended with exit code {code}"


def wait_child(children: Sequence[Child], seconds: float | None = None) -> Child | None:
    """The next of them that has said something, or is gone; None when time is over."""
    owners = {sign: child for child in children for sign in child.signs}
    ready = wait(list(owners), seconds)
    return owners[ready[0]] if ready else None


def wait_message(children: Sequence[Child]) -> dict[str, Any]:
    """The next message of any of them; RoleFailed when one of them fails or dies."""
    child = wait_child(children)
    assert child is not None, "without a limit somebody speaks or dies"
    return child.hear()


class _Stacks:
    """Where a process writes its stacks, asked for by SIGUSR1, or dying of its own fault."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("hts-stacks")

    def __reduce__(self) -> tuple[Any, ...]:
        """What the child gets: the descriptor alone."""
        return _descriptor, (DupFd(self._descriptor),)

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def behind(self, place: int) -> str:
        """What was written from there on."""
        return os.pread(self._descriptor, self.size - place, place).decode(errors="replace")

    def close(self) -> None:
        os.close(self._descriptor)


def _descriptor(duplicated: Any) -> int:
    return int(duplicated.detach())


def _state(pid: int) -> tuple[str, bool]:
    """What the kernel says that it is doing, and whether it listens to SIGUSR1."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            found = {name: said.strip() for name, _, said in (one.partition(":") for one in file)}
    except OSError:
        return "gone", False
    caught = int(found.get("SigCgt", "0"), 16)
    letter = found.get("State", "Z")[0]
    return _STATES.get(letter, letter), bool(caught >> (signal.SIGUSR1 - 1) & 1)


def _main(
    connection: Connection, stacks: int, role: Callable[..., None], given: tuple[Any, ...]
) -> None:
    """The child's side: run the role, send what went wrong."""
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks)
    pipe = Pipe(connection)
    try:
        role(pipe, *given)
    except Exception as error:
        failure = as_failure("", error)
        with suppress(OSError):  # nobody listens where the parent has ended the run, or is gone
            pipe.send(error=failure.what, replica=failure.replica, rebuilding=failure.rebuilding)
        sys.exit(1)


def as_failure(role: str, error: Exception) -> RoleFailed:
    """Return what this role raised, with its traceback: of a simulator's, the simulator's own."""
    if not isinstance(error, (WorldFailed, WorldError)):
        return RoleFailed(role, "".join(traceback.format_exception(error)))
    what = simulator_failure(error)
    if isinstance(error, WorldError):
        return RoleFailed(role, what)
    if error.rebuilding is not None:
        what += f" (while it was rebuilt, in {error.rebuilding}, which it had passed before)"
    return RoleFailed(role, what, error.replica, error.rebuilding)
