"""Forked processes that try one thing each, with a time limit."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
FAILED = 99
"""Exit code of a child whose own work raised an exception."""


def fork(work: Callable[[], int], *, silent: bool = True) -> int:
    """Run this in a child of its own process group and return its id; it exits with the result."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = FAILED
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if silent:
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nothing, descriptor)
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def wait(pid: int, seconds: float) -> int | None:
    """Return the exit code (a signal's is negative), or None after killing a child that is late."""
    descriptor = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([descriptor], [], [], seconds)
    finally:
        os.close(descriptor)
    with suppress(ProcessLookupError):  # also what the child has started
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if ended else None
