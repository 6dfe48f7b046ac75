"""Files of lines that grow while a run goes on, and can be cut back to where it goes on from."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from hts.errors import WrongUsage


class Lines:
    """One such file; what a full disk does not take waits in memory for the next line.

    The run adds lines while a checkpoint's thread brings earlier ones to the disk.
    """

    def __init__(self, path: Path) -> None:
        self.trouble: str | None = None
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._waiting = b""
        self._turn = threading.Lock()

    def add(self, line: str) -> None:
        """Append it; whoever reads the file finds it there at once."""
        with self._turn:
            self._waiting += line.encode()
            try:
                while self._waiting:
                    self._waiting = self._waiting[self._file.write(self._waiting) :]
            except OSError as error:
                self.trouble = f"{self._path} takes no more lines ({error.strerror})"
            else:
                self.trouble = None

    def sync(self) -> None:
        """Bring all of it to the disk; OSError where the disk does not take it."""
        self.add("")
        if self.trouble is not None:
            raise OSError(None, self.trouble)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file; what still waits is lost, and `sync` has said so."""
        self._file.close()


def cut(path: Path, count: int) -> list[str]:
    """Keep the first so many lines; returns the whole ones among those that are taken back."""
    with path.open("r+b") as file:
        for number in range(count):
            if not file.readline().endswith(b"\n"):
                raise WrongUsage(f"{path}: it holds {number:,} updates, and {count:,} are needed")
        end = file.tell()
        later = file.readlines()
        file.truncate(end)
    return [line.decode() for line in later if line.endswith(b"\n")]
