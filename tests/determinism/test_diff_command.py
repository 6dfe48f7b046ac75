"""hts-diff as a person meets it: two past runs, and both again up to where they part."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import HANG

SMALL = ("--config", "smoke", "--steps", "512", "--env", "python:tests.fakes.straying:make")


def command(name: str, *typed: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, in which spawned simulators stray."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", f"hts.cli.{name}", *typed],
        env={**os.environ, "HTS_TEST_STRAYS": "spawned", **environment},
        capture_output=True,
        text=True,
        timeout=HANG,
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """One experiment in one process, and with two executors, where replica 2 strays."""
    folder = tmp_path_factory.mktemp("runs")
    layouts = {"serial": ("--set", "serial=true"), "two": ("--executors", "2")}
    for name, layout in layouts.items():
        result = command("train", *SMALL, *layout, "--run-dir", str(folder / name))
        assert result.returncode == 0, result.stderr
    return str(folder / "serial"), str(folder / "two")


def test_the_first_difference_is_named(pair: tuple[str, str]) -> None:
    """Each on its own layout again: update, replica, step, field, both values, one unit."""
    result = command("diff", *pair)
    assert result.returncode == 1, result.stderr
    said = result.stdout.splitlines()
    assert said[0] == f"A  {pair[0]}: 4 updates, done"
    assert said[2].startswith("experiment ")
    assert "update 2 differs: its rollout, replicas 2 of 4" in said
    assert said[-1] == (
        "update 2, replica 2, step 5, observation[0, 1]: "
        "1.0 and 1.0000001 (1 unit in the last place apart)"
    )


def test_a_difference_that_does_not_come_back_is_told(pair: tuple[str, str]) -> None:
    """In one process nobody strays: both make what the first recorded, and what that may mean."""
    result = command("diff", "--layout", "serial", *pair)
    assert result.returncode == 1, result.stderr
    assert "the difference did not come back" in result.stdout
    assert "that is what A recorded" in result.stdout
    assert "a simulator that is not deterministic" in result.stdout


def test_a_run_that_cannot_be_run_again_is_still_compared(pair: tuple[str, str]) -> None:
    """Where its simulator is not there, the records speak, and a sentence says what is missing."""
    typed = [sys.executable, "-W", "error", "-m", "hts.cli.diff", *pair]
    elsewhere = str(Path(pair[0]).parent)
    result = subprocess.run(typed, cwd=elsewhere, capture_output=True, text=True, timeout=HANG)
    assert result.returncode == 1, result.stderr
    assert "update 2 differs: its rollout, replicas 2 of 4" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("the runs cannot be repeated here: ")
    assert result.stderr == ""


def test_values_that_were_not_recorded_are_called_so(tmp_path: Path) -> None:
    """Where a simulator draws numbers of its own, running again shows numbers that no record has:
    neither value is called a recorded one, and what the reason may be is told."""
    runs = [str(tmp_path / name) for name in "ab"]
    world = ("--env", "python:tests.fakes.unsteady:make", "--set", "serial=true")
    for run in runs:
        result = command("train", "--config", "smoke", *world, "--steps", "128", "--run-dir", run)
        assert result.returncode == 0, result.stderr
    result = command("diff", *runs)
    assert result.returncode == 1, result.stderr
    *_, where, ours, theirs, reason = result.stdout.splitlines()
    assert re.match(r"update 1, replica 0, step 7, observation\[0, 1\]: 7\.\d+ and 7\.\d+", where)
    assert ours == "  A's value is of this run alone: it recorded another update 1"
    assert theirs == "  B's value is of this run alone: it recorded another update 1"
    assert "a simulator that is not deterministic (hts-check looks for that)" in reason


def test_a_value_that_was_recorded_is_called_so(pair: tuple[str, str]) -> None:
    """B strays by two units where it strayed by one when it was recorded; A repeats its record."""
    result = command("diff", *pair, HTS_TEST_STRAYS="spawned further")
    assert result.returncode == 1, result.stderr
    *_, where, ours, theirs, reason = result.stdout.splitlines()
    assert where.endswith("1.0 and 1.0000002 (2 units in the last place apart)")
    assert ours == "  A's value is the one that it recorded"
    assert theirs == "  B's value is of this run alone: it recorded another update 2"
    assert reason.startswith("  so the records may part elsewhere. It may be a simulator that")
