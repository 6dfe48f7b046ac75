"""Curves for TensorBoard: the bytes of its format, and what its own reader finds in them."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.backend.event_processing import event_accumulator as accumulator

from hts.report.checkpoints import written
from hts.report.logs import Logs, logs_of
from hts.report.tensorboard import Events, crc32c, record
from tests.fakes.mounts import fill, mounts, small_disk
from tests.limits import HANG

COMMAND = [sys.executable, "-m", "hts.cli.train"]
TASK = ("--env", "gym:CartPole-v1", "--set", "replicas=4", "--set", "rollout=32", "--evaluate", "0")
RETURN = "episode/return"


def points(folder: Path, name: str = RETURN) -> list[tuple[int, float]]:
    """What TensorBoard itself finds there."""
    found = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return [(point.step, point.value) for point in found.Scalars(name)]


def test_checksums_are_those_of_the_standard() -> None:
    """The check value of CRC-32C, and the examples of RFC 3720."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_a_record_has_the_bytes_that_tensorflow_writes() -> None:
    """The first record of a file of its own: the version, at a wall time of zero."""
    content = bytes.fromhex("09000000000000000010001a0d627261696e2e4576656e743a32")
    assert record(content)[:8] == struct.pack("<Q", 26)
    assert len(record(content)) == 26 + 16


def test_every_number_is_read_back_as_it_is(tmp_path: Path) -> None:
    """In single precision: small, large, negative, not finite; steps beyond 32 bits."""
    events = Events(tmp_path / "there", 0)
    numbers = [0.0, -1.5, 3.25e-30, 1e39, math.inf, -math.inf]
    for count, number in enumerate(numbers):
        events.add(10**12 + count, {"a/b": number, "c": math.nan})
    events.close()
    found = points(tmp_path / "there", "a/b")
    assert [step for step, _ in found] == [10**12 + count for count in range(len(numbers))]
    assert [value for _, value in found] == [
        0.0,
        -1.5,
        pytest.approx(3.25e-30),
        *[math.inf] * 2,
        -math.inf,
    ]
    assert all(math.isnan(value) for _, value in points(tmp_path / "there", "c"))


def test_a_leg_that_goes_on_takes_back_what_is_later(tmp_path: Path) -> None:
    """Behind step 30, and then from the begin: no step twice, and the newest value of each; the
    torn end of a file that was being written is no trouble."""
    folder = tmp_path / "there"
    for leg, (behind, last) in enumerate([(0, 60), (30, 50), (0, 20)]):
        events = Events(folder, behind)
        for step in range(behind + 10, last + 1, 10):
            events.add(step, {RETURN: step + leg / 10})
        events.close()
        newest = max(folder.iterdir())
        if leg == 0:
            os.truncate(newest, newest.stat().st_size - 7)
        if leg == 1:
            expected = [(10, 10.0), (20, 20.0), (30, 30.0), (40, 40.1), (50, 50.1)]
            assert [(s, pytest.approx(v)) for s, v in expected] == points(folder)
    assert points(folder) == [(10, pytest.approx(10.2)), (20, pytest.approx(20.2))]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """One megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    with mounts(small_disk(path, "1m")) as there:
        yield there.seen(path)


def test_a_full_disk_tears_nothing(disk: Path) -> None:
    """Events wait while it is full, and all of them are there afterwards."""
    events = Events(disk / "there", 0)
    events.add(1, {RETURN: 1.0})
    ballast = fill(disk)
    for step in range(2, 500):
        events.add(step, {RETURN: float(step)})
    assert events.trouble is not None
    assert "No space left on device" in events.trouble
    ballast.unlink()
    events.add(500, {RETURN: 500.0})
    assert events.trouble is None
    events.close()
    assert points(disk / "there") == [(step, float(step)) for step in range(1, 501)]


def test_a_run_that_is_killed_and_goes_on_has_no_step_twice(tmp_path: Path) -> None:
    """kill -9 behind a checkpoint, then --resume: steps grow, from the begin to the end, and every
    point is that of the record."""
    path = tmp_path / "run"
    often = ("--set", "checkpoint_every=0.01", "--steps", "20000", "--executors", "1")
    typed = [*COMMAND, *TASK, *often, "--run-dir", str(path)]
    with subprocess.Popen(typed, stderr=subprocess.DEVNULL) as process:
        while not written(path / "checkpoints") or int(written(path / "checkpoints")[0].stem) < 80:
            assert process.poll() is None
        process.kill()
    resume = [*COMMAND, "--resume", str(path), "--set", "checkpoint_every=60"]
    ended = subprocess.run(resume, capture_output=True, text=True, timeout=HANG)
    assert ended.returncode == 0, ended.stderr
    assert len(list((path / "tensorboard").iterdir())) == 2
    found = points(path / "tensorboard")
    steps = [step for step, _ in found]
    assert steps == sorted(set(steps))
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    told = {line["steps"]: line[RETURN] for line in lines if RETURN in line}
    assert steps[-1] == max(told), "the last update has a point"
    assert all(value == pytest.approx(told[step], rel=1e-6) for step, value in found)
    whole = points(path / "tensorboard", "update")
    assert len(whole) > 10
    assert whole[0][0] < 80 * 128 < whole[-1][0], "both legs are there"


class Breaking:
    """A log whose service fails at its third point."""

    trouble: str | None = None

    def __init__(self) -> None:
        self.count = 0
        self.is_closed = False

    def add(self, steps: int, values: object) -> None:
        self.count += 1
        if self.count == 3:
            raise ConnectionError("the service is gone")

    def evaluated(self, steps: int, values: object) -> None:
        self.add(steps, values)

    def close(self) -> None:
        self.is_closed = True


def test_a_service_that_fails_is_told_once_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other logs have every point."""
    failing = Breaking()
    logs = Logs({"service": failing, "tensorboard": Events(tmp_path / "there", 0)})
    for step in range(1, 7):
        logs.add({"steps": step, "machine/replaced": 0.0, RETURN: 1.0})
    logs.sync()
    assert capsys.readouterr().err.count("service: the service is gone") == 1
    logs.close()
    assert failing.count == 3
    assert [step for step, _ in points(tmp_path / "there")] == [1, 2, 3, 4, 5, 6]


def test_a_very_fast_run_has_fewer_points_and_the_last_one(tmp_path: Path) -> None:
    """Thousands of updates in a second make some points, the last update among them."""
    logs = logs_of(["tensorboard"], tmp_path, {}, 0)
    for step in range(1, 5001):
        logs.add({"steps": step, RETURN: 1.0})
    logs.close()
    steps = [step for step, _ in points(tmp_path / "tensorboard")]
    assert steps[-1] == 5000
    assert 2 <= len(steps) < 1000


def test_a_package_that_is_missing_is_named_before_anything_begins(tmp_path: Path) -> None:
    """Exit code 2, the command that installs it, and no directory."""
    blocked = (
        "import sys; sys.modules['wandb'] = None; from hts.cli.train import main; sys.exit(main())"
    )
    typed = [
        "--config",
        "smoke",
        "--set",
        "log=tensorboard,wandb",
        "--run-dir",
        str(tmp_path / "run"),
    ]
    said = subprocess.run(
        [sys.executable, "-c", blocked, *typed], capture_output=True, text=True, timeout=HANG
    )
    assert said.returncode == 2, said.stderr
    assert "wandb is not installed here. Install it with: pip install wandb" in said.stderr
    assert not (tmp_path / "run").exists()
