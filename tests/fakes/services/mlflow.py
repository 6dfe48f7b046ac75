"""What we use of MLflow, as a file: experiments hold runs, runs hold parameters and points."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_LONGEST = 6000  # letters of a parameter


class MlflowClient:
    """A client of the tracking server; what it logs is there at the latest when a run ends."""

    def __init__(self) -> None:
        self._path = Path(os.environ["SERVICES"], "mlflow.json")
        there = self._path.exists()
        self._held: dict[str, Any] = (
            json.loads(self._path.read_text()) if there else {"experiments": [], "runs": {}}
        )

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        names = self._held["experiments"]
        return SimpleNamespace(experiment_id=str(names.index(name))) if name in names else None

    def create_experiment(self, name: str) -> str:
        assert name not in self._held["experiments"], "a name is taken once"
        self._held["experiments"].append(name)
        return str(len(self._held["experiments"]) - 1)

    def create_run(self, experiment_id: str, run_name: str) -> SimpleNamespace:
        assert int(experiment_id) < len(self._held["experiments"]), "there is such an experiment"
        named = f"run{len(self._held['runs'])}"
        self._held["runs"][named] = {"name": run_name, "params": {}, "points": [], "status": []}
        return SimpleNamespace(info=SimpleNamespace(run_id=named))

    def log_param(self, run_id: str, key: str, value: object) -> None:
        params = self._run(run_id)["params"]
        assert key not in params, "a parameter is told once"
        assert len(str(value)) <= _LONGEST, "longer ones are refused"
        params[key] = str(value)

    def log_metric(
        self, run_id: str, key: str, value: float, *, step: int, synchronous: bool
    ) -> None:
        assert not synchronous, "nobody waits for the server"
        self._run(run_id)["points"].append([key, step, float(value)])

    def get_metric_history(self, run_id: str, key: str) -> list[SimpleNamespace]:
        points = self._run(run_id)["points"]
        return [SimpleNamespace(step=step, value=v) for name, step, v in points if name == key]

    def update_run(self, run_id: str, status: str) -> None:
        self._run(run_id)["status"].append(status)

    def set_terminated(self, run_id: str) -> None:
        self._run(run_id)["status"].append("FINISHED")
        self._path.write_text(json.dumps(self._held))

    def _run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._held["runs"][run_id]
        return found
