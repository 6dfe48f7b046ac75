"""Ctrl-C and its like, heard where nothing is torn by it.

A signal raises KeyboardInterrupt at once, wherever that may be. Inside `undisturbed` it is heard
when the block is left; a second signal does not wait. What follows within a second is the same
request: a terminal, or whoever ends a whole group of processes, may ask twice.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ONE_REQUEST = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Heard:
    """What this process knows about signals."""

    depth = 0
    waiting = False
    last = -math.inf


def listen() -> None:
    """Whatever asks this process to end interrupts it as Ctrl-C does; what is ignored stays so."""
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _hear)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Something that is done as a whole."""
    _Heard.depth += 1
    try:
        yield
    finally:
        _Heard.depth -= 1
        if not _Heard.depth and _Heard.waiting:
            _Heard.waiting = False
            raise KeyboardInterrupt


def _hear(_: int, __: FrameType | None) -> None:
    now = time.monotonic()
    before, _Heard.last = _Heard.last, now
    if now - before < _ONE_REQUEST:
        return
    if _Heard.depth and not _Heard.waiting:
        _Heard.waiting = True
        return
    raise KeyboardInterrupt
