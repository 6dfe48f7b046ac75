"""`hts-train` as a command, for tests that end it in every way."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.limits import HANG

_TRAIN = [sys.executable, "-m", "hts.cli.train", "--evaluate", "0"]
_ADDRESS = re.compile(r"at (tcp://\S+:\d+)")
_SECONDS = HANG


class Command:
    """It runs inside `with`, and its sentences are kept."""

    def __init__(self, path: Path, *typed: str, front: Sequence[str] = ()) -> None:
        self.path = path
        self._said: list[str] = []
        self._moved = threading.Condition()
        self._over = False
        self._process = subprocess.Popen(
            [*front, *_TRAIN, *typed], stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @staticmethod
    def new(path: Path, *typed: str, front: Sequence[str] = ()) -> Command:
        """A new run in this directory."""
        return Command(path, *typed, "--run-dir", str(path), front=front)

    @staticmethod
    def again(path: Path, *typed: str) -> Command:
        """The run in this directory, gone on with."""
        return Command(path, "--resume", str(path), *typed)

    @property
    def said(self) -> str:
        return "".join(self._said)

    @property
    def address(self) -> str:
        """Where it listens, as soon as it has said so."""
        self.says(_ADDRESS)
        found = _ADDRESS.search(self.said)
        assert found is not None, self.said
        return found[1]

    def says(self, pattern: str | re.Pattern[str]) -> None:
        """Wait until it has said this."""
        with self._moved:
            self._moved.wait_for(lambda: self._over or re.search(pattern, self.said), _SECONDS)
        assert re.search(pattern, self.said), self.said

    def gets_to(self, update: int) -> None:
        """Wait for this update's line in its record."""
        until = time.monotonic() + _SECONDS
        while len(lines(self.path)) < update:
            assert time.monotonic() < until, self.said
            assert self._process.poll() is None, self.said
            time.sleep(0.01)

    def sent(self, number: signal.Signals) -> int:
        """Its exit code, after this signal."""
        self._process.send_signal(number)
        return self.ends()

    def ends(self) -> int:
        """Its exit code, when it is over."""
        code = self._process.wait(_SECONDS)
        self._reader.join()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stderr is not None, "its sentences come through a pipe"
        with self._process.stderr as said:
            for line in said:
                with self._moved:
                    self._said.append(line)
                    self._moved.notify_all()
        with self._moved:
            self._over = True
            self._moved.notify_all()


def lines(path: Path) -> list[str]:
    """The record of its digests, so far."""
    file = path / "digests.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def result(path: Path) -> dict[str, Any]:
    """How it ended."""
    found: dict[str, Any] = json.loads((path / "result.json").read_text())
    return found
