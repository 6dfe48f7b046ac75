"""What a run leaves behind: one directory, written as the run goes.

manifest.json    what was run: configuration, origins, identity, versions, numerics
metrics.jsonl    a line for each update
digests.jsonl    a line for each update: update, rollout, parameters, chain, replicas
result.json      how it ended: status, steps, updates, digest, steps/s, seconds, return
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from hts.config import Config, Resolved, flatten
from hts.determinism import numerics
from hts.determinism.digest import Link, marks
from hts.errors import WrongUsage

PACKAGES = ("hts", "torch", "numpy", "gymnasium", "gfootball", "ale-py", "mujoco", "envpool")


def default_path(config: Config) -> Path:
    """runs/<algorithm>-<environment>-s<seed>-<when>: new for every run."""
    experiment = config.experiment
    world = "".join(c if c.isalnum() else "-" for c in experiment.env).strip("-")
    when = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{experiment.algo.name}-{world}-s{experiment.seed}-{when}"


class RunDirectory:
    """The directory of one run; it must not exist before."""

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise WrongUsage(f"--run-dir {path}: it exists already; name a new one") from None
        except OSError as error:
            raise WrongUsage(f"--run-dir {path}: cannot be made: {error.strerror}") from None
        self.path = path
        self._metrics = (path / "metrics.jsonl").open("w", encoding="utf-8")
        self._digests = (path / "digests.jsonl").open("w", encoding="utf-8")

    def manifest(self, resolved: Resolved, device: str) -> None:
        """What is run, and under which numerics."""
        experiment = resolved.config.experiment
        record = {
            "experiment": experiment.identity(),
            "config": flatten(resolved.config),
            "origins": dict(resolved.origins),
            "numerics": numerics.describe(device),
            "versions": _versions(),
            "commit": _commit(),
        }
        self._write("manifest.json", record)

    def update(self, link: Link, metrics: Mapping[str, float], replicas: Sequence[bytes]) -> None:
        """One line in each record; flushed, so that a killed run has told all it did."""
        digests = {**dataclasses.asdict(link), "replicas": marks(replicas)}
        for file, record in ((self._digests, digests), (self._metrics, metrics)):
            file.write(json.dumps(record) + "\n")
            file.flush()

    def failure(self, text: str) -> None:
        """What went wrong, with its traceback."""
        (self.path / "failure.txt").write_text(text.rstrip() + "\n", encoding="utf-8")

    def result(self, record: Mapping[str, Any]) -> None:
        """How the run ended."""
        self._write("result.json", record)
        self._metrics.close()
        self._digests.close()

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        """Whole or not at all: written beside its place, then moved there."""
        beside = self.path / f".{name}"
        beside.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        os.replace(beside, self.path / name)


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str | None:
    """The commit of the checkout that runs, where it is one."""
    here = Path(__file__).resolve().parent
    asked = ["git", "-C", str(here), "describe", "--always", "--dirty"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() or None
