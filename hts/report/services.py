"""Services that keep curves: Weights & Biases and MLflow, each behind its own package.

Both are told the run's directory name, its configuration, and then points along environment
steps. A run that goes on is the same run there. What it says again about steps that were sent
before is what it said then, so it is not sent twice.
"""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hts.report.logs import Log

_PROJECT = "hts"
_AXIS = "steps"
_EVALUATED_AXIS = "eval/steps"
_EVALUATED = ("eval/return", "eval/length", "eval/score")


class WandB:
    """Weights & Biases; `WANDB_MODE=offline` keeps everything in the run's directory."""

    trouble: str | None = None

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        wandb: Any = importlib.import_module("wandb")
        named = _identity(path / "wandb.id", lambda: uuid.uuid4().hex[:8])
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=path.name,
            id=named,
            resume="allow",
            dir=str(path),
            config=dict(config),
            settings=wandb.Settings(console="off", silent=True),
        )
        for axis in (_AXIS, _EVALUATED_AXIS):
            self._run.define_metric(axis)
        self._run.define_metric("*", step_metric=_AXIS)
        for name in _EVALUATED:  # along environment steps too, but behind those of training
            self._run.define_metric(name, step_metric=_EVALUATED_AXIS)
        self._sent = int(self._run.summary.get(_AXIS) or 0)
        self._evaluated = int(self._run.summary.get(_EVALUATED_AXIS) or 0)

    def add(self, steps: int, values: Mapping[str, float]) -> None:
        if steps > self._sent:
            self._run.log({_AXIS: steps, **values})

    def evaluated(self, steps: int, values: Mapping[str, float]) -> None:
        if steps > self._evaluated:
            self._run.log({_EVALUATED_AXIS: steps, **values})

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """MLflow, where `MLFLOW_TRACKING_URI` says."""

    trouble: str | None = None

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        mlflow: Any = importlib.import_module("mlflow")
        self._client = mlflow.MlflowClient()
        self._run = _identity(path / "mlflow.id", lambda: self._begun(path.name, config))
        self._sent, self._evaluated = self._latest("time/seconds"), self._latest(_EVALUATED[0])
        self._client.update_run(self._run, status="RUNNING")

    def add(self, steps: int, values: Mapping[str, float]) -> None:
        if steps > self._sent:
            self._log(steps, values)

    def evaluated(self, steps: int, values: Mapping[str, float]) -> None:
        if steps > self._evaluated:
            self._log(steps, values)

    def close(self) -> None:
        self._client.set_terminated(self._run)

    def _log(self, steps: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=steps, synchronous=False)

    def _latest(self, name: str) -> int:
        """The step of the newest point that is there of a curve."""
        told = self._client.get_metric_history(self._run, name)
        return max((point.step for point in told), default=0)

    def _begun(self, name: str, config: Mapping[str, Any]) -> str:
        there = self._client.get_experiment_by_name(_PROJECT)
        experiment = (
            there.experiment_id if there is not None else self._client.create_experiment(_PROJECT)
        )
        run: str = self._client.create_run(experiment, run_name=name).info.run_id
        for key, value in config.items():
            self._client.log_param(run, key, value)
        return run


def _identity(path: Path, begun: Callable[[], str]) -> str:
    """What the run is called there; kept in its directory, for when it goes on."""
    if not path.exists():
        path.write_text(begun(), encoding="utf-8")
    return path.read_text(encoding="utf-8")


SERVICES: Mapping[str, Callable[[Path, Mapping[str, Any]], Log]] = {
    "wandb": WandB,
    "mlflow": MLflow,
}
