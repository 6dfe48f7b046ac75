"""`tools/conformance` as a command: some of its cases, or all of them with one client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.house.sources import ROOT
from tests.limits import HANG

TOOL = [sys.executable, str(ROOT / "tools" / "conformance")]
RUNS = ("digest", "digest-two-clients", "digest-rows", "digest-agents", "digest-killed")
SECONDS = HANG
WHOLE_SECONDS = 2 * HANG  # of every case, one after the other


def begun(folder: Path, *typed: str) -> subprocess.Popen[str]:
    """The command, with a place for its folders."""
    return subprocess.Popen(
        [*TOOL, *typed],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def only(names: Sequence[str]) -> list[str]:
    return [word for name in names for word in ("--only", name)]


class Whole:
    """All cases with one client, in two commands that go on beside whatever else is tried."""

    def __init__(self, folder: Path, client: Sequence[str]) -> None:
        left = [word for name in RUNS for word in ("--except", name)]
        self._folders = [folder / "cases", folder / "runs"]
        for each in self._folders:
            each.mkdir()
        self._commands = [
            begun(each, *chosen, *client)
            for each, chosen in zip(self._folders, (left, only(RUNS)), strict=True)
        ]

    def passes(self) -> None:
        """Every case there is has passed; nobody and nothing is left behind."""
        said = [process.communicate(timeout=WHOLE_SECONDS) for process in self._commands]
        assert [process.returncode for process in self._commands] == [0, 0], said
        listed = subprocess.run([*TOOL, "--list"], capture_output=True, text=True, check=True)
        names = [line.split()[0] for line in listed.stdout.splitlines()]
        lines = [line for out, _ in said for line in out.splitlines()]
        assert [line.split()[1] for line in lines if line[:3] == "ok "] == names
        assert set(RUNS) < set(names)
        assert [list(folder.iterdir()) for folder in self._folders] == [[], []]

    def close(self) -> None:
        for process in self._commands:
            process.terminate()
            process.communicate()


@contextmanager
def whole(client: Sequence[str]) -> Iterator[Whole]:
    """They begin here, and are ended behind."""
    with TemporaryDirectory() as folder:
        begun_ = Whole(Path(folder), client)
        try:
            yield begun_
        finally:
            begun_.close()
