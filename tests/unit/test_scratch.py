"""Temporary folders: gone afterwards, also those of a process that was killed, and only those."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from hts.scratch import scratch

HOLDING = """
from hts.scratch import scratch
with scratch() as folder:
    (folder / "full").write_text("of something")
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for temporary files that nobody else uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@contextmanager
def holder() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process that has such a folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_it_is_gone_afterwards(where: Path) -> None:
    """Also when what is done in there fails; and no descriptor is kept."""

    def fail() -> None:
        with scratch() as folder:
            (folder / "deep").mkdir()
            (folder / "deep" / "file").write_text("something")
            assert folder.parent == where
            raise ArithmeticError

    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with pytest.raises(ArithmeticError):
            fail()
    assert list(where.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_those_of_the_killed_are_removed_at_the_next_start(where: Path) -> None:
    """kill -9 leaves a folder; whoever comes next removes it, and none of a living process, none
    that somebody else calls alike, and nothing behind a link."""
    (where / "hts-scratch-of-mine").mkdir()
    (where / "precious").mkdir()
    (where / "hts-scratch-abcdefgh").symlink_to(where / "precious")
    with holder() as (living, kept), holder() as (dying, left):
        with scratch():
            assert kept.exists()
            assert left.exists()
        dying.kill()
        dying.wait()
        assert left.exists()
        with scratch():
            assert not left.exists()
            assert (kept / "full").read_text() == "of something"
        living.communicate("\n")
        assert living.returncode == 0
    names = {"hts-scratch-of-mine", "precious", "hts-scratch-abcdefgh"}
    assert {path.name for path in where.iterdir()} == names


def test_a_folder_that_was_swept_before_it_was_held_is_made_again(
    where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock it looks like one that was left."""
    lock, swept = fcntl.flock, []

    def slow(descriptor: int, how: int) -> None:
        if not swept:
            swept.extend(where.iterdir())
            swept[0].rmdir()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    with scratch() as folder:
        assert len(swept) == 1
        assert folder not in swept
        assert list(where.iterdir()) == [folder]


def test_many_at_once_do_not_sweep_each_other(where: Path) -> None:
    """A folder is there for as long as it is needed, whoever sweeps meanwhile."""

    def use(number: int) -> bool:
        with scratch() as folder:
            (folder / "number").write_text(str(number))
            with scratch():
                return (folder / "number").read_text() == str(number)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(200)))
    assert list(where.iterdir()) == []
