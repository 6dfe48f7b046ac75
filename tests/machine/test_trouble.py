"""Disks that are full or cannot be written: the run says so, loses nothing, and can go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hts.config import Machine
from hts.report.checkpoints import read, written
from hts.report.metrics import UNREPEATED
from tests.fakes.mounts import Mounts, fill, mounts, small_disk
from tests.limits import HANG

COMMAND = (sys.executable, "-W", "error", "-m", "hts.cli.train")
SIZES = ("--set", "replicas=4", "--set", "rollout=32")
TASK = ("--env", "gym:CartPole-v1", *SIZES, "--evaluate", "0")
STEPS = ("--steps", "16000")
OFTEN = ("--set", "checkpoint_every=0.02")
MOST = Machine().checkpoints
SERIAL = ("--set", "serial=true")
PARALLEL = ("--executors", "2", "--actors", "1", "--set", "stepping=turns")
UNPRIVILEGED = ("setpriv", "--bounding-set=-dac_override", "--")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_time(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if not k.startswith(UNREPEATED)} for line in found]


def train(*typed: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(typed, capture_output=True, text=True, timeout=HANG)


@contextmanager
def started(*typed: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], str]]]:
    """The command while it runs; with what reads all that it says until it has said this."""
    process = subprocess.Popen(typed, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    stderr = process.stderr
    said: list[str] = []

    def until(words: str) -> str:
        for line in stderr:
            said.append(line)
            if words and words in line:
                return "".join(said)
        assert not words, f"it never said {words!r}:\n{''.join(said)}"
        return "".join(said)

    try:
        yield process, until
    finally:
        process.kill()
        process.communicate()


def paused(process: subprocess.Popen[str], run: Path, updates: int) -> None:
    """Stop it behind so many updates, in a moment when it neither writes a checkpoint nor is about
    to remove an old one, which would make room."""
    folder = run / "checkpoints"
    while True:
        assert process.poll() is None
        there = written(folder)
        if there and int(there[0].stem) >= updates:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            if not list(folder.glob(".*")) and len(written(folder)) <= MOST:
                return
            process.send_signal(signal.SIGCONT)


def check_record(run: Path, whole: Path) -> None:
    """It is that of a run to which nothing happened."""
    assert (run / "digests.jsonl").read_bytes() == (whole / "digests.jsonl").read_bytes()
    ours, theirs = (lines(path / "metrics.jsonl") for path in (run, whole))
    assert without_time(ours) == without_time(theirs)
    found, expected = (json.loads((p / "result.json").read_text()) for p in (run, whole))
    assert (found["status"], found["digest"]) == ("done", expected["digest"])
    assert found["interrupted"] == []
    assert not list(run.rglob(".*")), "nothing half-written is left"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to which nothing happens."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    said = train(*COMMAND, *TASK, *STEPS, *SERIAL, "--run-dir", str(path))
    assert said.returncode == 0, said.stderr
    return path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Mounts, Path]]:
    """Four megabytes, and where they are."""
    path = tmp_path / "disk"
    path.mkdir()
    with mounts(small_disk(path, "4m")) as made:
        yield made, path


Disk = tuple[Mounts, Path]


def test_a_disk_that_is_full_for_a_while_costs_nothing(disk: Disk, whole: Path) -> None:
    """Lines wait in memory, checkpoints for their next turn; each is said once."""
    there, path = disk
    run = there.seen(path / "run")
    typed = (*COMMAND, *TASK, *STEPS, *OFTEN, *PARALLEL, "--run-dir", str(path / "run"))
    with started(*there.command(*typed)) as (process, until):
        paused(process, run, 30)
        older = written(run / "checkpoints")
        ballast = fill(there.seen(path))
        process.send_signal(signal.SIGCONT)
        said = ""
        while not ("takes no more lines" in said and "takes no new checkpoint" in said):
            said = until("(No space left on device)")
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert written(run / "checkpoints") == older
        assert all(read(checkpoint).facts["updates"] >= 1 for checkpoint in older)
        ballast.unlink()
        process.send_signal(signal.SIGCONT)
        said = until("")
        assert process.wait() == 0, said
    assert said.count("digests.jsonl takes no more lines (No space left on device): ") <= 2
    assert 1 <= said.count("checkpoints takes no new checkpoint") <= 2
    assert "Traceback" not in said
    check_record(run, whole)
    assert len(written(run / "checkpoints")) == MOST


def test_a_disk_that_stays_full_costs_what_is_made_again(disk: Disk, whole: Path) -> None:
    """The run comes to its end and says what its record lacks; no file is half-written, the older
    checkpoints are whole, and with room again it goes on to the record of an undisturbed run."""
    there, path = disk
    run = there.seen(path / "run")
    typed = (*COMMAND, *TASK, *STEPS, *OFTEN, *SERIAL, "--run-dir", str(path / "run"))
    with started(*there.command(*typed)) as (process, until):
        paused(process, run, 30)
        older = written(run / "checkpoints")
        ballast = fill(there.seen(path))
        process.send_signal(signal.SIGCONT)
        said = until("")
        assert process.wait() == 1, said
    lost = f"failed: {path}/run/digests.jsonl takes no more lines (No space left on device): digest"
    assert lost in said
    assert "how it ended is not in its record: No space left on device" in said
    assert f"go on with: hts-train --resume {path}/run" in said
    assert "Traceback" not in said
    assert not (run / "result.json").exists()
    assert not list(run.rglob(".*"))
    assert written(run / "checkpoints") == older
    resume = there.command(*COMMAND, "--resume", str(path / "run"))
    still = train(*resume)
    assert still.returncode == 2, still.stderr
    assert still.stderr == (
        f"hts-train: {path}/run: it cannot be written: No space left on device\n"
    )
    ballast.unlink()
    ended = train(*resume, *PARALLEL, "--set", "serial=false")
    assert ended.returncode == 0, ended.stderr
    assert f"goes on behind update {int(older[0].stem)} " in ended.stderr
    check_record(run, whole)


def test_a_disk_that_is_full_when_the_run_begins_keeps_nothing_of_it(disk: Disk) -> None:
    """One sentence, and no folder that was made for it."""
    there, path = disk
    fill(there.seen(path))
    run = path / "deep" / "run"
    said = train(*there.command(*COMMAND, *TASK, *STEPS, *SERIAL, "--run-dir", str(run)))
    assert said.returncode == 2
    assert said.stderr == f"hts-train: {run}: it cannot be written: No space left on device\n"
    assert [found.name for found in there.seen(path).iterdir()] == ["ballast"]


def test_a_run_whose_terminal_is_a_file_on_a_full_disk_goes_on(disk: Disk, whole: Path) -> None:
    """What it says is lost; the run and its record are not."""
    there, path = disk
    fill(there.seen(path))
    run = path.parent / "run"
    log = ("sh", "-c", f'exec "$@" 2> {path}/log', "sh")
    said = train(*there.command(*log, *COMMAND, *TASK, *STEPS, *PARALLEL, "--run-dir", str(run)))
    assert said.returncode == 0
    assert (there.seen(path) / "log").read_text() == ""
    check_record(run, whole)


def files(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_read_only_disk_is_refused_in_a_sentence(tmp_path: Path, whole: Path) -> None:
    """For a new run and for one that would go on; and nothing there is changed."""
    path = tmp_path / "disk"
    run = shutil.copytree(whole, path / "run")
    (run / "result.json").unlink()  # it was stopped
    before = files(run)
    remount = (f"mount --bind '{path}' '{path}'", f"mount -o remount,ro,bind '{path}'")
    with mounts(*remount) as there:
        new = ("--run-dir", str(path / "new"))
        said = train(*there.command(*COMMAND, *TASK, *STEPS, *SERIAL, *new))
        assert said.returncode == 2
        sentence = f"--run-dir {path}/new: cannot be made: Read-only file system"
        assert said.stderr == f"hts-train: {sentence}\n"
        said = train(*there.command(*COMMAND, "--resume", str(run)))
        assert said.returncode == 2
        assert said.stderr == f"hts-train: {run}: it cannot be written: Read-only file system\n"
    assert files(run) == before


@pytest.mark.parametrize("parts", [("",), ("", "checkpoints")], ids=["result", "checkpoints too"])
def test_a_directory_that_becomes_read_only_can_be_gone_on_with(
    parts: tuple[str, ...], tmp_path: Path, whole: Path
) -> None:
    """Lines go on into files that are open; what is missing at the end is said, and made later.
    (Root is nobody special here: it runs without the capability to write everywhere.)"""
    run = tmp_path / "run"
    typed = (*COMMAND, *TASK, *STEPS, *OFTEN, *SERIAL, "--run-dir", str(run))
    with mounts() as there, started(*there.command(*UNPRIVILEGED, *typed)) as (process, until):
        paused(process, run, 30)
        for part in parts:
            (run / part).chmod(0o555)
        process.send_signal(signal.SIGCONT)
        said = until("")
        assert process.wait() == 1, said
        for part in parts:
            (run / part).chmod(0o755)
    assert "how it ended is not in its record: Permission denied" in said
    unseen = f"failed: {run}/checkpoints takes no new checkpoint (Permission denied): digest"
    assert (unseen in said) == ("checkpoints" in parts)
    assert f"go on with: hts-train --resume {run}" in said
    assert "Traceback" not in said
    assert (run / "digests.jsonl").read_bytes() == (whole / "digests.jsonl").read_bytes()
    assert not (run / "result.json").exists()
    ended = train(*COMMAND, "--resume", str(run))
    assert ended.returncode == 0, ended.stderr
    check_record(run, whole)


def test_a_full_dev_shm_changes_nothing(whole: Path, tmp_path: Path) -> None:
    """Shared memory has no name: /dev/shm may be as small and as full as it likes."""
    run = tmp_path / "run"
    with mounts(small_disk(Path("/dev/shm"), "64k")) as there:
        shm = there.seen(Path("/dev/shm"))
        fill(shm)
        typed = (*COMMAND, *TASK, *STEPS, *PARALLEL, "--run-dir", str(run))
        said = train(*there.command(*typed))
        assert said.returncode == 0, said.stderr
        assert [found.name for found in shm.iterdir()] == ["ballast"]
    check_record(run, whole)
