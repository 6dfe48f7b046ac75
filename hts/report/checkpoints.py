"""The checkpoints of a run: files that it can go on from, written while it goes on.

`checkpoints/` in the run's directory holds the newest few, each named for the updates that it
stands behind. A file is written by a thread, whole or not at all; where that fails the older ones
stay as they are, and the next one is tried when its time comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from hts.report.sealed import Sealed, seal, sweep, unseal

KIND = "checkpoint"
_ENDING = ".safetensors"
_REST = 100.0  # times as long as the last one took: a large replay is written less often


class Checkpoints:
    """Writes them, every so many seconds, and keeps the newest ones."""

    def __init__(self, folder: Path, *, every: float, most: int) -> None:
        self.trouble: str | None = None  # why the last one is not there
        folder.mkdir(exist_ok=True)
        sweep(folder)
        self._folder = folder
        self._every = every
        self._most = most
        self._last = time.monotonic()
        self._took = 0.0
        self._writing: threading.Thread | None = None

    @property
    def due(self) -> bool:
        """It is time for the next one, and the last one is written."""
        if not self._every or (self._writing is not None and self._writing.is_alive()):
            return False
        return time.monotonic() - self._last >= max(self._every, _REST * self._took)

    def save(self, updates: int, held: Sealed, before: Callable[[], None]) -> None:
        """Write it while the run goes on, behind what `before` brings to the disk."""
        self._last = time.monotonic()
        self.wait()
        self._writing = threading.Thread(
            target=self._write, args=(updates, held, before), name="checkpoint"
        )
        self._writing.start()

    def wait(self) -> None:
        """Until what is being written is written."""
        if self._writing is not None:
            self._writing.join()

    def _write(self, updates: int, held: Sealed, before: Callable[[], None]) -> None:
        path, begun = self._folder / f"{updates:09}{_ENDING}", time.monotonic()
        try:
            before()
            seal(path, KIND, held)
            for old in written(self._folder)[self._most :]:
                old.unlink()
        except OSError as error:
            why = error.strerror or error
            self.trouble = f"{self._folder} takes no new checkpoint ({why})"
        else:
            self.trouble = None
        self._took = time.monotonic() - begun


def written(folder: Path) -> list[Path]:
    """All checkpoints that are there, the newest first."""
    return sorted(folder.glob(f"[0-9]*{_ENDING}"), reverse=True)


def updates_of(path: Path) -> int:
    """The updates that a checkpoint stands behind, as its name says."""
    return int(path.name.removesuffix(_ENDING))


def read(path: Path) -> Sealed:
    """One of them; Damaged where it is not whole."""
    return unseal(path, KIND)
