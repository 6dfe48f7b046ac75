"""Runs for people to look at: small real ones, made once, and what could have become of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from hts.config import Given
from hts.config.resolve import resolve
from hts.report.run_directory import METRICS
from hts.runtime.train import train


def run(folder: Path, **values: Any) -> Path:
    """A whole run of some updates in this process, with these values of its experiment."""
    asked = {
        "env": "gym:CartPole-v1",
        "replicas": 4,
        "rollout": 16,
        "steps": 640,
        "epochs": 1,
        "minibatches": 1,
        "serial": True,
        **values,
    }
    given = [Given(name, value, f"--set {name}") for name, value in asked.items()]
    assert train(resolve([given]), folder) == 0
    return folder


def copy(folder: Path, target: Path) -> Path:
    """One to be changed."""
    shutil.copytree(folder, target)
    return target


def lines(folder: Path) -> list[dict[str, Any]]:
    """The record of its updates."""
    return [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]


def write(folder: Path, told: list[dict[str, Any]], behind: str = "") -> None:
    """Another record, and what is being written behind it."""
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in told) + behind)


def change(folder: Path, name: str, **values: Any) -> None:
    """Other values in its manifest or its result."""
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
