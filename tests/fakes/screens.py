"""A terminal for tests: a pseudo-terminal of a size, and what would be seen on it."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_TOKENS = re.compile(rb"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")
_BEGUN = re.compile(rb"(\x1b(\[[0-9;?]*)?|[\xc0-\xff][\x80-\xbf]{0,2})\Z")


class Screen:
    """Rows of text with a cursor; rows that scroll away are kept above the others."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.height = columns, rows
        self.rows = [""]
        self.codes: list[bytes] = []  # every control sequence, as it came
        self._row = self._column = 0
        self._half = b""  # of a sequence or a character whose end is still to come

    def show(self, written: bytes) -> None:
        """What these bytes do to it; anything that it does not know is an error."""
        written, self._half = _whole(self._half + written)
        place = 0
        while place < len(written):
            found = _TOKENS.match(written, place)
            assert found is not None, written[place : place + 20]
            place = found.end()
            number, letter, line, text = found.groups()
            if letter is not None:
                self.codes.append(found.group())
                self._control(number, letter)
            elif line == b"\r":
                self._column = 0
            elif line is not None:
                self._down()
            else:
                self._print(text.decode())

    def _control(self, number: bytes, letter: bytes) -> None:
        if letter == b"A":
            top = max(0, len(self.rows) - self.height)
            self._row = max(top, self._row - int(number or 1))
        elif letter == b"J":
            self.rows[self._row] = self.rows[self._row][: self._column]
            del self.rows[self._row + 1 :]
        else:
            assert letter == b"m", f"a control that moves something: {number!r}{letter!r}"

    def _print(self, text: str) -> None:
        for character in text:
            if self._column == self.columns:
                self._column = 0
                self._down()
            row = self.rows[self._row].ljust(self._column)
            self.rows[self._row] = row[: self._column] + character + row[self._column + 1 :]
            self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self.rows):
            self.rows.append("")

    @property
    def text(self) -> str:
        return "\n".join(row.rstrip() for row in self.rows)


def _whole(written: bytes) -> tuple[bytes, bytes]:
    """What can be shown now, and the begin of a sequence or character that is cut in two."""
    begun = _BEGUN.search(written)
    at = len(written) if begun is None else begun.start()
    return written[:at], written[at:]


class Watched:
    """A process whose standard error (and output) is such a screen."""

    def __init__(
        self, process: subprocess.Popen[bytes], screen: Screen, master: int, slave: int
    ) -> None:
        self.process, self.screen = process, screen
        self._master = master
        self._slave: int | None = slave
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def until(self, sentence: str) -> None:
        """It can be seen; the process is there until then."""
        with self._changed:
            while sentence not in self.screen.text:
                assert self._reader.is_alive(), self.screen.text
                self._changed.wait(1.0)

    def resize(self, columns: int, rows: int) -> None:
        """As a person does with a window."""
        with self._changed:
            self.screen.columns, self.screen.height = columns, rows
            _resize(self._master, columns, rows)

    def ended(self) -> int:
        """Its exit code; then everything that it wrote is on the screen."""
        code = self.process.wait(60)
        self.close()
        return code

    def close(self) -> None:
        """Nobody writes any more."""
        if self._slave is not None:
            os.close(self._slave)
            self._slave = None
        self._reader.join()

    def _read(self) -> None:
        while True:
            try:
                found = os.read(self._master, 65536)
            except OSError:  # nobody has the other side open any more
                found = b""
            with self._changed:
                self._changed.notify_all()
                if not found:
                    return
                self.screen.show(found)


@contextmanager
def watched(
    command: list[str], columns: int = 80, rows: int = 24, more: Mapping[str, str] | None = None
) -> Iterator[Watched]:
    """The command on a terminal of this size; it is killed where it does not end."""
    master, slave = os.openpty()
    _resize(master, columns, rows)
    before = termios.tcgetattr(slave)
    environment = {**os.environ, "TERM": "xterm-256color", **(more or {})}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=environment
    ) as process:
        there = Watched(process, Screen(columns, rows), master, slave)
        try:
            yield there
            assert termios.tcgetattr(master) == before, "the terminal is as it was"
        finally:
            process.kill()
            process.wait()
            there.close()
            os.close(master)


def _resize(master: int, columns: int, rows: int) -> None:
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
