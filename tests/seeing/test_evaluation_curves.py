"""Evaluations beside everything else that is seen of a run: in curves, and for programs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hts.config import Machine
from hts.report import evaluations
from hts.report.progress import Progress
from hts.report.recorded import read
from hts.runtime.telling import Telling
from tests.limits import HANG
from tests.seeing.test_tensorboard import points

COMMAND = (sys.executable, "-W", "error", "-m", "hts.cli.train")
TASK = ("--config", "smoke", "--evaluate", "8", "--json-log")


def train(*typed: str) -> list[dict[str, object]]:
    said = subprocess.run([*COMMAND, *typed], capture_output=True, text=True, timeout=HANG)
    assert said.returncode == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, object]]]:
    """A run, and what a program has heard of it."""
    path = tmp_path_factory.mktemp("runs") / "run"
    return path, train(*TASK, "--run-dir", str(path))


def curve(path: Path) -> list[tuple[int, float]]:
    return points(path / "tensorboard", "eval/return")


def expected(path: Path) -> list[tuple[int, object]]:
    lines = evaluations.read(path).values()
    return [(line["steps"], pytest.approx(line["eval/return"], rel=1e-6)) for line in lines]


def test_evaluations_are_curves_at_the_steps_that_made_them(
    told: tuple[Path, list[dict[str, object]]],
) -> None:
    """All four policies, in TensorBoard as in eval.jsonl."""
    path, _ = told
    assert [steps for steps, _ in curve(path)] == [1024, 2048, 3072, 4096]
    assert curve(path) == expected(path)


def test_programs_hear_of_each_evaluation(told: tuple[Path, list[dict[str, object]]]) -> None:
    """An object of its own with the names of the table, and no sentence beside it."""
    path, said = told
    heard = [each for each in said if each["kind"] == "evaluation"]
    lines = list(evaluations.read(path).values())
    names = ("update", "steps", "episodes", "eval/return", "eval/length")
    assert [each["eval/return"] for each in heard] == [line["eval/return"] for line in lines]
    assert all(set(each) == {"kind", *names} for each in heard)
    assert not any("evaluated at" in str(each.get("text")) for each in said)


def test_what_is_evaluated_when_a_run_is_over_is_told_too(
    told: tuple[Path, list[dict[str, object]]], tmp_path: Path
) -> None:
    """By --resume of a run that is done and was not evaluated."""
    path = shutil.copytree(told[0], tmp_path / "run")
    (path / "eval.jsonl").unlink()
    shutil.rmtree(path / "tensorboard")
    train("--resume", str(path), "--quiet")
    assert [steps for steps, _ in curve(path)] == [1024, 2048, 3072, 4096]
    assert curve(path) == expected(path)


def test_a_leg_that_goes_on_has_no_evaluation_twice_and_loses_none(
    told: tuple[Path, list[dict[str, object]]], tmp_path: Path
) -> None:
    """Curves are taken back to where it begins; what was evaluated behind that is told again. Of
    updates that follow each other quickly some are no points."""
    path = shutil.copytree(told[0], tmp_path / "run")
    experiment = read(path).configuration().experiment
    before = [steps for steps, _ in points(path / "tensorboard", "update")]
    behind = Progress(experiment, updates=20)
    Telling(behind, Machine(log=("tensorboard",)), path, "quiet").close()
    assert len(list((path / "tensorboard").iterdir())) == 2
    assert curve(path) == expected(path)
    kept = [steps for steps, _ in points(path / "tensorboard", "update")]
    assert kept == [steps for steps in before if steps <= 2560]
    assert 0 < len(kept) < len(before)
