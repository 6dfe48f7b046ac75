"""Child processes: spawned, heard through a pipe, never left behind.

A child dies with its parent (the kernel sees to it), ignores the terminal's Ctrl-C (the parent
ends it), and sends its traceback when it fails. Messages are JSON, so that nothing is unpickled
while a run goes on. The parent waits for pipes and for deaths at once, and polls neither.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from hts.errors import RoleDied, RoleFailed

_SPAWN = multiprocessing.get_context("spawn")
_PR_SET_PDEATHSIG = 1
_SECONDS_TO_END = 2.0


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
        ours, theirs = _SPAWN.Pipe()
        self.pipe = Pipe(ours)
        self._process = _SPAWN.Process(
            target=_main, args=(os.getpid(), theirs, role, given), name=name, daemon=True
        )
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, "a child is started when it is made"
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
            raise RoleFailed(self.name, message["error"])
        return message

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
        self._process.close()

    def _end(self) -> str:
        code = self._process.exitcode or 0
        if code < 0:
            return f"it was ended by {signal.Signals(-code).name}"
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


def _main(
    parent: int, connection: Connection, role: Callable[..., None], given: tuple[Any, ...]
) -> None:
    """The child's side: run the role, send what went wrong."""
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Pipe(connection)
    try:
        role(pipe, *given)
    except Exception:
        with suppress(OSError):  # nobody listens where the parent has ended the run, or is gone
            pipe.send(error=traceback.format_exc())
        sys.exit(1)


def _die_with(parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(1)
