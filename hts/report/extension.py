"""A finished run that is extended: the experiment that goes on from it with more steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hts.config import Given
from hts.config.extended import Count
from hts.config.lineage import has_schedule
from hts.config.resolve import values_of
from hts.errors import WrongUsage
from hts.report.recorded import Recorded
from hts_envs.options import coerce

HORIZONS: Mapping[str, str] = {
    "stretch": "goes on as in a run planned for all steps",
    "restart": "falls again, from its first value to zero over the new steps",
}
"""Choices for a linear learning rate in an extension. Without one it would stay at zero."""


@dataclass(frozen=True)
class Extension:
    """The end of the finished run, from which the extension goes on."""

    experiment: str  # the identity of the finished run
    updates: int
    digest: str
    steps: int
    horizon: str
    config: Mapping[str, Any]  # values of the extended experiment that differ from the finished one

    def record(self) -> dict[str, Any]:
        """Return what the manifest says about the run that was extended."""
        names = ("experiment", "updates", "digest", "steps", "horizon")
        return {name: getattr(self, name) for name in names}


def extension(run: Recorded, given: Sequence[Given], horizon: str | None) -> Extension | None:
    """Return how the given values extend a finished run; None where they ask for no other number
    of steps. WrongUsage where the run cannot be extended like that."""
    values = values_of(given, "experiment.steps")
    if not values and horizon is None:
        return None
    experiment = run.configuration().experiment
    steps = _steps(values[-1]) if values else experiment.steps
    if steps is None or steps == experiment.steps:
        if horizon not in (None, *experiment.extended.horizons[-1:]):
            raise WrongUsage(
                "--schedule-horizon: is for a run that is extended; give --steps with the new total"
            )
        return None
    _check(run, steps, experiment.updates, experiment.rows)
    chosen = _horizon(has_schedule(experiment), horizon)
    extended, digest = experiment.extended, str(run.result["digest"])
    config = {
        "experiment.steps": steps,
        "experiment.extended.from_steps": [*extended.from_steps, experiment.steps],
        "experiment.extended.from_digests": [*extended.from_digests, digest],
        "experiment.extended.horizons": [*extended.horizons, chosen],
    }
    return Extension(run.identity, experiment.updates, digest, experiment.steps, chosen, config)


def _steps(text: str) -> int | None:
    """Return the number; None where it is none, which is reported with the other values."""
    try:
        return int(coerce(text, Count))
    except ValueError:
        return None


def _check(run: Recorded, steps: int, updates: int, rows: int) -> None:
    """Refuse to extend a run that is not finished, or by no update."""
    if run.result.get("status") != "done":
        raise WrongUsage(
            f"{run.path}: this run is not finished ({run.status}); finish it with "
            f"hts-train --resume {run.path}, then extend it with --steps {steps}"
        )
    if steps <= updates * rows:
        raise WrongUsage(
            f"--steps {steps}: this run has made {updates * rows:,} steps, and --steps is the new "
            f"total; give at least {updates * rows + 1}"
        )


def _horizon(falls: bool, horizon: str | None) -> str:
    """Return what the learning rate does from here on."""
    if not falls:
        if horizon is not None:
            raise WrongUsage(
                "--schedule-horizon: the learning rate of this run is constant; leave it out"
            )
        return "constant"
    if horizon is None:
        choices = ", or ".join(f"{name} ({what})" for name, what in HORIZONS.items())
        raise WrongUsage(
            "--schedule-horizon: the learning rate of this run has fallen to zero; say whether it "
            f"is to {choices}"
        )
    return horizon
