"""The terminal of a run that is watched: messages above, and a view below them that is redrawn.

Whatever anybody writes to this process's standard error (and output, where that is the terminal
too) goes through a pipe: our own lines, a simulator's words, the stack of a process that dies.
One thread reads it and writes each line above the view, where it stays and scrolls away as usual;
some times in a second it draws the view again. Nobody else writes to the terminal meanwhile.

Nothing of the terminal is changed that would have to be mended: the cursor stays visible, on the
line below the view, so that even `kill -9` leaves a terminal that can be typed at. The view is
erased by moving up as many rows as its lines take at the width that the terminal has now.
"""

from __future__ import annotations

import os
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from hts.report.drawing import Line, Style, width_of

_PER_SECOND = 4.0
_PATIENCE = 0.25  # seconds that half a line waits for its other half
_SIZE = (80, 24)  # of a terminal that does not say
_NOT_SHOWN = re.compile(
    rb"\x1b(?!\[[0-9;]*m)(\[[0-9;?]*[ -/]*[@-~])?|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f]"
)
_OUTPUT, _ERROR = 1, 2

View = Callable[[int, int], Sequence[Line]]
"""The lines of a view that is so many columns wide, and at most so many rows high."""


def can_be_drawn_on() -> bool:
    """Standard error is a terminal in which a cursor can be moved."""
    return os.isatty(_ERROR) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def style() -> Style:
    """What can be shown there, and what its user wants."""
    encoding = (getattr(sys.stderr, "encoding", None) or "ascii").lower()
    return Style(colour=not os.environ.get("NO_COLOR"), blocks="utf" in encoding)


@dataclass
class _Drawn:
    """What stands on the terminal now: the width of each line of the view."""

    widths: Sequence[int] = ()

    def erase(self, columns: int) -> bytes:
        """Back to where the view began: lines that are wider than the terminal take more rows."""
        rows = sum(max(1, -(-width // columns)) for width in self.widths)
        return b"\r" + (b"\x1b[%dA" % rows if rows else b"") + b"\x1b[J"


class Terminal:
    """Takes the terminal over when it is made, and gives it back when it is closed."""

    def __init__(self, view: View, shown: Style) -> None:
        self._view = view
        self._style = shown
        self._drawn = _Drawn()
        self._half, self._half_since = b"", 0.0
        self._is_gone = False
        self._over = threading.Event()
        sys.stderr.flush()
        sys.stdout.flush()
        self._own = {_ERROR: os.dup(_ERROR)}
        if os.isatty(_OUTPUT):
            self._own[_OUTPUT] = os.dup(_OUTPUT)
        self._reads, writes = os.pipe()
        os.set_blocking(self._reads, False)
        for number in self._own:
            os.dup2(writes, number)
        os.close(writes)
        self._woken, self._wakes = os.pipe()
        self._thread = threading.Thread(target=self._run, name="view", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Everything that was said stands there, and the last view below it."""
        sys.stderr.flush()
        sys.stdout.flush()
        for number, own in self._own.items():
            os.dup2(own, number)
        self._over.set()
        os.close(self._wakes)
        self._thread.join()
        for descriptor in (self._reads, self._woken, *self._own.values()):
            os.close(descriptor)

    @contextmanager
    def open(self) -> Iterator[Terminal]:
        """Until the block is left, however that happens."""
        try:
            yield self
        finally:
            self.close()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            wait = max(0.0, due - time.monotonic())
            ready, _, _ = select.select([self._reads, self._woken], [], [], wait)
            said = self._heard() if self._reads in ready else b""
            if said or time.monotonic() >= due:
                self._draw(said)
                due = time.monotonic() + 1 / _PER_SECOND
        self._draw(self._heard(last=True))

    def _heard(self, *, last: bool = False) -> bytes:
        """Whole lines that were said; half a one when nothing more comes."""
        with suppress(BlockingIOError):
            while found := os.read(self._reads, 65536):
                self._half_since = time.monotonic()
                self._half += found
        whole, newline, rest = self._half.rpartition(b"\n")
        old = time.monotonic() - self._half_since > _PATIENCE
        if rest and (last or old):
            whole, newline, rest = self._half, b"\n", b""
        self._half = rest
        return _clean(whole) + newline if newline else b""

    def _draw(self, said: bytes) -> None:
        """Messages above, the view below, in one piece."""
        columns, rows = self._size()
        lines = self._view(columns - 1, rows - 1)
        text = "\n".join(self._style.text(line) for line in lines)
        text += "\n" if lines else ""
        encoding = "utf-8" if self._style.blocks else "ascii"
        drawn = self._drawn.erase(columns) + said + text.encode(encoding, "replace")
        self._drawn = _Drawn([width_of(line) for line in lines])
        self._write(drawn)

    def _size(self) -> tuple[int, int]:
        with suppress(OSError):
            columns, rows = os.get_terminal_size(self._own[_ERROR])
            if columns > 1 and rows > 1:
                return columns, rows
        return _SIZE

    def _write(self, drawn: bytes) -> None:
        """All of it; where the terminal is gone, the run goes on and nobody looks."""
        while drawn and not self._is_gone:
            try:
                drawn = drawn[os.write(self._own[_ERROR], drawn) :]
            except BlockingIOError:
                select.select([], [self._own[_ERROR]], [], 1.0)
            except OSError:
                self._is_gone = True


def _clean(said: bytes) -> bytes:
    """Nothing that moves the cursor: of a line that was overwritten, what stood there last."""
    lines = _NOT_SHOWN.sub(b"", said).split(b"\n")
    return b"\n".join(line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines)
