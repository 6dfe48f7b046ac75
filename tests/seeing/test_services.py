"""Weights & Biases and MLflow, told by a real run: every point once, along environment steps.

The packages are fakes of ours that hold to what the real ones take; `hts/report/services.py` finds
them where it would find those.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hts.report import evaluations
from tests.limits import HANG

FAKES = Path(__file__).parents[1] / "fakes" / "services"
COMMAND = (sys.executable, "-W", "error", "-m", "hts.cli.train")
TASK = ("--config", "smoke", "--evaluate", "8", "--set", "log=wandb,mlflow,tensorboard")


def train(folder: Path, *typed: str) -> subprocess.CompletedProcess[str]:
    """A run that finds the services' packages, and a place where they keep what they are told."""
    known = os.pathsep.join([str(FAKES), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": known, "SERVICES": str(folder)}
    command = [*COMMAND, *typed]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, env=environment)


def curves(points: list[list[Any]]) -> dict[str, dict[float, float]]:
    """By name: values by step, each step once."""
    found: dict[str, dict[float, float]] = {}
    for name, step, value in points:
        assert step not in found.setdefault(name, {}), f"{name} has step {step} twice"
        found[name][step] = value
    return found


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is done but for its last two evaluations, and then for none."""
    folder = tmp_path_factory.mktemp("services")
    run = folder / "run"
    said = train(folder, *TASK, "--run-dir", str(run))
    assert said.returncode == 0, said.stderr
    lines = (run / "eval.jsonl").read_text().splitlines(keepends=True)
    (run / "eval.jsonl").write_text("".join(lines[:2]))
    return folder


def services(folder: Path) -> dict[str, dict[str, dict[float, float]]]:
    (wandb,) = folder.glob("wandb-*.json")
    mlflow = json.loads((folder / "mlflow.json").read_text())
    (run,) = mlflow["runs"].values()
    history = json.loads(wandb.read_text())["history"]
    return {"wandb": curves(history), "mlflow": curves(run["points"])}


def test_services_are_told_what_the_record_says(told: Path) -> None:
    """The last update is there, every point is the record's, and evaluations stand at the steps
    that made their policies; both know the configuration and the run's name."""
    record = [json.loads(line) for line in (told / "run/metrics.jsonl").read_text().splitlines()]
    by_steps = {line["steps"]: line for line in record}
    for found in services(told).values():
        entropy = found["train/entropy"]
        assert max(entropy) == record[-1]["steps"]
        assert all(value == by_steps[step]["train/entropy"] for step, value in entropy.items())
        assert list(found["eval/return"]) == [1024.0, 2048.0, 3072.0, 4096.0]
        lines = evaluations.read(told / "run").values()
        assert all(found["eval/return"][line["steps"]] == line["eval/return"] for line in lines)
    mlflow = json.loads((told / "mlflow.json").read_text())
    (run,) = mlflow["runs"].values()
    assert mlflow["experiments"] == ["hts"]
    assert (run["name"], run["status"][-1]) == ("run", "FINISHED")
    assert run["params"]["experiment.env"] == "gym:CartPole-v1"
    (wandb,) = told.glob("wandb-*.json")
    (leg,) = json.loads(wandb.read_text())["legs"]
    assert (leg["name"], leg["config"]["experiment.env"]) == ("run", "gym:CartPole-v1")


def test_a_run_that_goes_on_is_the_same_run_there(told: Path) -> None:
    """What is evaluated once more is not told twice, and there is no second run."""
    before = services(told)
    said = train(told, "--resume", str(told / "run"))
    assert said.returncode == 0, said.stderr
    assert "2 policies wait to be evaluated" in said.stderr
    assert services(told) == before
    (wandb,) = told.glob("wandb-*.json")
    assert [leg["goes_on"] for leg in json.loads(wandb.read_text())["legs"]] == [False, True]
