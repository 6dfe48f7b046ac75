"""Everybody who is told of a run's updates besides its record: the person, curves, programs.

Nobody here is waited for. How the machine is doing is looked at once in a second, and stands in
the line of the next update.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hts.config import Config, Experiment, Machine, flatten
from hts.report import evaluations
from hts.report.logs import logs_of
from hts.report.progress import Progress
from hts.report.shown import How, Plain, shown
from hts.report.vitals import Setting
from hts.runtime.vitals import Crewed, Look
from hts_envs.registry import parse

_LOOK_SECONDS = 1.0
_SHOWN_SECONDS = 10.0  # what a bar of the live view is the mean of


class Telling:
    """Of one leg of a run."""

    def __init__(self, progress: Progress, machine: Machine, path: Path, how: How) -> None:
        self._progress = progress
        self._machine = machine
        experiment = progress.experiment
        config = flatten(Config(experiment=experiment, machine=machine))
        self._logs = logs_of(machine.log or (), path, config, progress.steps)
        self._look: Look | None = None
        self._looked = 0.0
        self.shown: Plain = shown(how, progress)
        for line in evaluations.read(path).values():
            if line["steps"] > progress.steps:  # curves are taken back to where the run goes on
                self._logs.evaluated(line["steps"], evaluations.points(line))

    def begin(self, seen: Crewed) -> None:
        """Everybody is ready, and the run is under way."""
        setting = _setting(self._progress.experiment, self._machine)
        self._look, self._looked = Look(seen, setting), time.monotonic()
        self.shown.begin(Look(seen, setting, _SHOWN_SECONDS))

    def machine(self) -> dict[str, float]:
        """What the next line says of the machine, when it is time for that."""
        last = self._progress.updates + 1 >= self._progress.experiment.updates
        now = time.monotonic()
        if self._look is None or not (last or now - self._looked >= _LOOK_SECONDS):
            return {}
        self._looked = now
        return self._look().metrics()

    def update(self, metrics: Mapping[str, float], chain: str) -> None:
        """One more of them."""
        self._logs.add(metrics)
        self.shown.update(metrics, chain)

    def evaluated(self, line: Mapping[str, Any]) -> None:
        """One of the run's policies has been, however long ago it was made."""
        self._logs.evaluated(line["steps"], evaluations.points(line))
        self.shown.evaluated(line)

    def ending(self, status: str, metrics: Mapping[str, float], chain: str) -> None:
        """The run does not go on, and cannot be looked at any more."""
        self._look = None
        self.shown.ending(status, metrics, chain)

    def sync(self) -> None:
        """Curves are as far as the record is."""
        self._logs.sync()

    def result(self, record: Mapping[str, Any]) -> None:
        """How it ended."""
        self.shown.result(record)

    def close(self) -> None:
        """The terminal is the person's again, and every curve is written."""
        self._look = None
        self.shown.close()
        self._logs.close()


def _setting(experiment: Experiment, machine: Machine) -> Setting:
    return Setting(
        replicas=experiment.replicas,
        shards=experiment.shard_count,
        schedule=experiment.schedule,
        barrier=machine.barrier,
        threads=machine.stepping == "threads",
        batched=parse(experiment.env).batched,
        remote=bool(machine.dialled_in(experiment.replicas)),
        device=machine.device,
        replayed=bool(experiment.windows),
    )
