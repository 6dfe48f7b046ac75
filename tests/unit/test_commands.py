"""The commands as a person meets them: real processes, real messages, real exit codes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from hts.cli import doctor
from tests.house.sources import ROOT
from tests.limits import HANG

COMMANDS = sorted(path.name.removeprefix("hts-") for path in (ROOT / "tools").glob("hts-*"))


def run(command: str, *typed: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", f"hts.cli.{command}", *typed],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=HANG,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_for_a_newcomer(command: str) -> None:
    """--help works, fits 80 columns and names the command as it is typed."""
    result = run(command, "--help")
    assert result.returncode == 0, result.stderr
    assert f"usage: hts-{command}" in result.stdout
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []


def test_show_config_prints_values_with_their_origin() -> None:
    """The file and line, the flag, or the default behind each value."""
    result = run("train", "--algo", "ppo", "--env", "gfootball:3v1", "--show-config")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert any("learning_rate: 0.000343" in x and "ppo-gfootball.yaml:" in x for x in lines)
    assert any('env: "gfootball:3v1"' in x and x.endswith("# --env") for x in lines)
    assert any("executors: auto" in x and x.endswith("# default") for x in lines)


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (("--evn", "gfootball:3v1"), "there is no option '--evn' (did you mean '--env'?)"),
        (("--env", "gfotball:3v1"), "did you mean 'gfootball'"),
        (("--env", "gfootball:3v1?agnets=2"), "did you mean 'agents'"),
        (("--env", "gym:CartPole-v1", "--algo", "pp0"), "did you mean 'ppo'"),
        (("--config", "smoke", "--seed", "x"), "--seed: must be a whole number from 0"),
        (("--config", "smoke", "--set", "lr=1"), "there is no setting 'lr'"),
        (
            ("--config", "smoke", "--schedule", "fast"),
            "--schedule: must be hts, hts_barrier or sync, not 'fast'",
        ),
        (("--config", "smoke", "--device", "cuda:9"), "cuda:9 is not there"),
        (("--config", "smoke", "--run-dir", "."), "--run-dir . already exists; choose another"),
        (("ppo-cartpole",), "belongs to no option (did you mean '--config ppo-cartpole'?)"),
        (("gym:CartPole-v1",), "belongs to no option (did you mean '--env gym:CartPole-v1'?)"),
        (("--config", "smoke", "--checkpoint", "3"), "hts-train: --checkpoint needs --resume"),
        (("--config", "smoke", "--executors", "0"), "--executors: must be auto or a whole number"),
        (("--env", "nonsense"), "hts-train: --env: 'nonsense' is not an environment: write"),
        (("--plain", "--quiet"), "hts-train: --quiet cannot be combined with --plain; --help"),
        (("--config", "smoke", "--seeds", "1,1"), "names a seed twice"),
        (("--resume", ".", "--seeds", "1,2"), "--seeds cannot be combined with --resume"),
        (("--resume", ".", "--run-dir", "x"), "--run-dir cannot be combined with --resume"),
        (("--resume", ".", "--config", "x"), "--resume: a resumed run keeps its configuration"),
        (("--config", "smokee"), "did you mean 'smoke'"),
    ],
)
def test_wrong_usage_gets_a_sentence_and_exit_code_2(typed: tuple[str, ...], sentence: str) -> None:
    """Whatever can be mistyped: one clear sentence, the nearest right value, no traceback."""
    result = run("train", *typed)
    assert result.returncode == 2, result.stdout
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_a_bare_hts_train_prints_its_usage() -> None:
    """It starts nothing that was not named: exit code 2, three lines of usage, one of advice."""
    result = run("train")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("usage: hts-train --algo NAME --env ENV [options]\n")
    assert result.stderr.endswith("--help lists the options and gives examples\n")


def test_help_lists_bases_apart() -> None:
    """Ready configurations and bases are lists of their own."""
    _, _, listed = run("train", "--help").stdout.partition("\nready configurations:\n")
    whole, _, bases = listed.partition("\nbases, which need --env:\n")
    assert bases.strip() == "pql-gym, pql-paper, pql-remote"
    assert "ppo-cartpole," in whole


def test_schedule_hts_barrier_is_the_same_experiment() -> None:
    """The barrier belongs to the machine: the identity of the run does not change."""
    plain = run("train", "--config", "smoke", "--schedule", "hts", "--show-config")
    barrier = run("train", "--config", "smoke", "--schedule", "hts_barrier", "--show-config")
    assert plain.stdout.splitlines()[0] == barrier.stdout.splitlines()[0]
    assert "barrier: true" in barrier.stdout


def test_doctor_shows_every_subject_on_one_screen() -> None:
    """Python, torch, devices, cores, memory, shared memory, limits, disk and the families."""
    result = run("doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    for subject in ("python", "torch", "device", "cores", "memory", "shared memory", "open files"):
        assert subject in result.stdout
    assert "gfootball:" in result.stdout
    assert len(result.stdout.splitlines()) <= 40


def test_doctor_mends_what_is_missing() -> None:
    """A blocker prints the command that mends it and is counted in the verdict: here a process
    that may not open one more file asks for shared memory."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        (line,) = doctor.shared_memory()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    text = doctor.screen([doctor.Line("python", "3"), line], colour=False)
    assert line.verdict == "blocker"
    assert "shared memory  cannot be had: Too many open files" in text
    assert "mend: ulimit -n 4096" in text
    assert text.endswith("Not ready: shared memory.")


def test_doctor_counts_warnings() -> None:
    """A warning does not prevent training, and the verdict says how many there are."""
    lines = [doctor.Line("a", "fine"), doctor.Line("b", "odd", "warning", "do this")]
    assert doctor.screen(lines, colour=False).endswith("Ready, with 1 warning.")
    assert doctor.screen(lines[:1], colour=True).endswith("Ready.")
