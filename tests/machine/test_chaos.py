"""`tools/chaos`: real runs are disturbed in every way, and what shows afterwards is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hts.config import Machine
from tests.fakes.runs import experiment
from tests.house.sources import ROOT
from tests.limits import HANG
from tools.havoc import draws, processes

SMALL = ("--config", "smoke", "--steps", "12800")
MACHINES = draws.machines(experiment(), ("turns", "threads"), (0, 1, 2))


def chaos(folder: Path, *typed: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with a place for its folders."""
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "chaos"), *typed],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )


def test_nothing_shows_in_a_run_that_was_disturbed(tmp_path: Path) -> None:
    """Kills, stops and resumes in two rounds: the same digests, and nothing left, also of ours."""
    said = chaos(tmp_path, "--seed", "3799", "--rounds", "2", *SMALL)
    assert said.returncode == 0, said.stdout + said.stderr
    reported = [line for line in said.stdout.splitlines() if line.startswith("round ")]
    assert len(reported) == 2
    assert all(line.endswith("same digest") for line in reported)
    assert "rounds: 2, failed: 0\n" in said.stdout
    for figure in (
        r"kills survived: [1-9]\d*; successors started: [1-9]",
        r"stops: [1-9]",
        r"whole runs ended: [1-9]\d* .* gone on with from [1-9]",
        r"time to recover: p50 \d+\.\d\d s, p99 ",
        r"time to return: p50 \d+\.\d\d s, p99 ",
    ):
        assert re.search(figure, said.stdout), said.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_world_that_is_not_deterministic_fails(tmp_path: Path) -> None:
    """Exit code 1, with the seed and the round that repeat it; the round's folder is kept."""
    world = ("--env", "python:tests.fakes.unsteady:make")
    said = chaos(tmp_path, "--seed", "6", "--round", "1", *SMALL, *world)
    assert said.returncode == 1, said.stdout + said.stderr
    again = "tools/chaos --seed 6 --round 1 --config smoke --steps 12800 --env"
    assert f"again with: {again} python:tests.fakes.unsteady:make\n" in said.stdout
    assert "rounds: 1, failed: 1 (1)\n" in said.stdout
    assert re.search(r"FAILED: (another digest|its result is done, interrupted)", said.stdout)
    (kept,) = re.findall(r"kept: (.*)", said.stdout)
    for run in ("run", "undisturbed"):
        assert (Path(kept) / run / "result.json").exists()
    assert list(tmp_path.iterdir()) == [Path(kept)]


@pytest.mark.parametrize(
    ("world", "patience", "sentence"),
    [
        ("process", 20, r"it has ended, and these have not:\n\d+ \(parent \d+\): .*signal.pause"),
        ("file", 20, r"left behind: .*/temporary/forgotten-"),
        (
            "hanging",
            10,
            r"nothing moved for 10 s\n(.*\n)+\d+ \(parent \d+\): (.*\n)+  thread \d+: S, in",
        ),
    ],
)
def test_what_a_run_leaves_is_found(
    world: str, patience: int, sentence: str, tmp_path: Path
) -> None:
    """A process, a file, or everybody where they wait: told, and then cleared away."""
    typed = ("--env", f"python:tests.fakes.leaving:{world}", "--patience", str(patience))
    said = chaos(tmp_path, *SMALL, *typed)
    assert said.returncode == 1, said.stdout + said.stderr
    assert re.search(f"the undisturbed run FAILED: {sentence}", said.stdout), said.stdout
    assert list(tmp_path.iterdir()) == []
    mark = f"TMPDIR={tmp_path}".encode()
    assert not [each for each in processes.everybody() if _is_marked(each.pid, mark)]


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    """hts-train's own sentence, and exit code 2."""
    said = chaos(tmp_path, "--config", "smoke", "--steps", "x")
    assert said.returncode == 2
    assert said.stderr.startswith("chaos: --steps: ")


def test_a_round_is_the_same_every_time() -> None:
    """The acts follow from the seed and the round, and from each of them."""

    def script(seed: int, number: int) -> draws.Script:
        return draws.script(draws.Draws(seed, number), 100, MACHINES)

    assert script(1, 2) == script(1, 2)
    assert len({script(seed, number) for seed in range(4) for number in range(4)}) == 16


def test_rounds_do_everything_there_is() -> None:
    """In a hundred rounds: every kind of act, every end, the start, every layout that can be."""
    scripts = [draws.script(draws.Draws(0, number), 100, MACHINES) for number in range(100)]
    acts = [act for script in scripts for act in script.acts]
    assert all(sorted(script.acts, key=lambda act: act.at) == [*script.acts] for script in scripts)
    assert {act.what for act in acts} == set(draws.WHAT)
    assert {(act.number, act.group) for act in acts} >= {(end, True) for end in draws.ENDS}
    assert min(act.at for act in acts) == 0
    assert max(act.at for act in acts) < 100
    used = {tuple(draws.flags(act.on)[:12]) for act in acts}
    assert used >= {
        tuple(draws.flags(machine)[:12]) for machine in (*MACHINES, Machine(serial=True))
    }


def test_a_name_in_shared_memory_is_held_or_left() -> None:
    """Somebody has it open, or maps it, or nobody does."""
    path = processes.SHARED / f"hts-test-{os.getpid()}"
    with path.open("w"):
        assert processes.orphans([path.name]) == []
    assert processes.orphans([path.name]) == [path.name]
    path.unlink()
