"""The examination in a child process, which the simulator may end without ending `hts-check`."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from hts.errors import SimulatorFailed
from hts.runtime.process import Pipe
from hts.runtime.simulator_process import SimulatorProcess
from hts.soundness.examine import Budget, Tell, examine_into
from hts.soundness.findings import Finding, Level, Report


def examine_in_child(environment: str, seed: int, budget: Budget, tell: Tell) -> Report:
    """Examine an environment; where it ends its process, report what was found before that."""
    report, started = Report(environment, seed), time.monotonic()
    with SimulatorProcess(environment, _run, environment, seed, budget) as process:
        process.doing = "its name was looked up"
        try:
            while True:
                message = process.receive()
                report = _from_plain(message["report"])
                if message["phase"] is None:
                    return report
                process.doing = f"it was examined ({message['phase']})"
                tell(message["phase"])
        except SimulatorFailed as failure:
            detail = tuple(failure.traceback.splitlines()[-_DETAIL:])
            report.add(Level.ERROR, "raises", str(failure), detail)
            report.seconds = time.monotonic() - started
            return report


_DETAIL = 4  # lines of a traceback


def _run(pipe: Pipe, environment: str, seed: int, budget: Budget) -> None:
    """The child's side: the report as it stands before each phase, and whole at the end."""
    report = Report(environment, seed)

    def tell(phase: str | None) -> None:
        pipe.send(phase=phase, report=dataclasses.asdict(report))

    examine_into(report, budget, tell)
    tell(None)


def _from_plain(plain: dict[str, Any]) -> Report:
    findings = [
        Finding(Level(each["level"]), each["check"], each["text"], tuple(each["detail"]))
        for each in plain.pop("findings")
    ]
    return Report(**plain, findings=findings)
