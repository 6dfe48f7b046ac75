"""hts-verify as a person meets it: equal runs, and a simulator that is not deterministic."""

from __future__ import annotations

import subprocess
import sys


def verify(*typed: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "hts.cli.verify", *typed],
        capture_output=True,
        text=True,
        timeout=110,
    )


def test_delays_everywhere_change_no_digest() -> None:
    """Two executors with the paper's barrier and random delays agree with the serial runner."""
    result = verify(
        "--config", "smoke", "--executors", "2", "--schedule", "hts_barrier", "--jitter", "2"
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 executors, barrier" in result.stdout
    assert "seed 1" in result.stdout
    assert result.stdout.splitlines()[-1] == "equal on every layout"


def test_a_simulator_with_hidden_randomness_is_found_out() -> None:
    """The first difference is named: update, replica, step, field, both values."""
    world = "python:tests.fakes.unsteady:make"
    result = verify("--config", "smoke", "--env", world, "--executors", "2", "--updates", "2")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "DIFFERENT" in result.stdout
    assert "update 1, replica 0, step 7, observation[0, 1]: " in result.stdout
    assert "units in the last place apart" in result.stdout
    assert result.stdout.splitlines()[-1] == "NOT equal"


def test_wrong_lists_are_told() -> None:
    """A layout without executors, and two experiments in one matrix."""
    assert "must be whole numbers" in verify("--config", "smoke", "--executors", "0").stderr
    mixed = verify("--config", "smoke", "--schedule", "sync,hts")
    assert mixed.returncode == 2
    assert "another experiment" in mixed.stderr
