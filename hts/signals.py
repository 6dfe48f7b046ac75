"""Ctrl-C and its like, heard where nothing is torn by it.

A signal raises KeyboardInterrupt at once, wherever that may be. Inside `undisturbed` it is heard
when the block is left; a second signal does not wait. What follows within a second is the same
request: a terminal, or whoever ends a whole group of processes, may ask twice.

Python looks whether there was a signal between two of its own steps. One that comes behind the
last of these, just before the kernel is asked to wait, would be heard when the waiting is over:
whoever waits without an end has to `wait` here.
"""

from __future__ import annotations

import atexit
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_ONE_REQUEST = 1.0
_SECONDS_TO_REPEAT = 0.01
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Heard:
    """What this process knows about signals."""

    depth = 0
    waiting = False
    last = -math.inf
    rings: int | None = None  # readable behind a signal, which C has written into it


def listen() -> None:
    """Whatever asks this process to end interrupts it as Ctrl-C does; what is ignored stays so."""
    if _Heard.rings is None:
        _Heard.rings, rung = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
    sys.unraisablehook = _repeat
    if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
        signal.signal(signal.SIGALRM, _hear)
        atexit.register(_drop_alarm)
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _hear)


def ignore() -> None:
    """Ignore what would end this process: it has nothing left to do but to end."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _drop_alarm() -> None:
    """Drop an interruption that is still to be repeated: the interpreter, which ends, gives SIGALRM
    its default action back, and that kills the process."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)


def _repeat(lost: UnraisableHookArgs) -> None:
    """Raise an interruption again that Python dropped: in a `__del__`, or a weak reference's end.

    By an alarm a moment later, since what is raised here would be dropped too.
    """
    if issubclass(lost.exc_type, KeyboardInterrupt) and signal.getsignal(signal.SIGALRM) is _hear:
        _Heard.last = -math.inf
        signal.setitimer(signal.ITIMER_REAL, _SECONDS_TO_REPEAT)
    else:
        sys.__unraisablehook__(lost)


def wait(things: Sequence[Any], seconds: float | None = None) -> list[Any]:
    """Return what is ready, as `multiprocessing.connection.wait` does; no signal is lost."""
    from multiprocessing import connection  # here, since a simulator's client never waits

    until = None if seconds is None else time.monotonic() + seconds
    rings = [] if _Heard.rings is None else [_Heard.rings]
    while True:
        left = None if until is None else max(0.0, until - time.monotonic())
        ready: list[Any] = connection.wait([*things, *rings], left)
        if ready != rings or not rings:
            return [each for each in ready if each not in rings]
        with suppress(BlockingIOError):  # what it was is known by now, and was heard
            os.read(rings[0], 64)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay what would interrupt this block until it is left.

    A program that does not `listen`, such as a simulator's own, is protected from Ctrl-C alone.
    """
    swapped = _is_interrupted_at_once()
    if swapped:  # before the depth counts: an interrupt between the two must not leave it changed
        signal.signal(signal.SIGINT, _hear)
    _Heard.depth += 1
    try:
        yield
    finally:
        _Heard.depth -= 1
        if swapped:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if not _Heard.depth and _Heard.waiting:
            _Heard.waiting = False
            raise KeyboardInterrupt


def _is_interrupted_at_once() -> bool:
    """Return whether Ctrl-C raises KeyboardInterrupt anywhere in this thread."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _hear(_: int, __: FrameType | None) -> None:
    now = time.monotonic()
    before, _Heard.last = _Heard.last, now
    if now - before < _ONE_REQUEST:
        return
    if _Heard.depth and not _Heard.waiting:
        _Heard.waiting = True
        return
    _Heard.waiting = False
    raise KeyboardInterrupt
