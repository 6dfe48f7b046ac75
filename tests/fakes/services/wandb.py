"""What we use of Weights & Biases, as a file: a run has a summary of the latest values, and a
history of what was logged. A name that was given a step metric is drawn along that one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


class Settings:
    """Of the client."""

    def __init__(self, *, console: str, silent: bool) -> None:
        assert (console, silent) == ("off", True), "a run keeps its terminal to itself"


class Run:
    """One run of the service; a run with the same id goes on."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        there = path.exists()
        self._path = path
        self._held: dict[str, Any] = (
            json.loads(path.read_text()) if there else {"history": [], "summary": {}, "legs": []}
        )
        self._held["legs"].append({**about, "goes_on": there})
        self._axes: dict[str, str | None] = {}
        self._is_finished = False

    @property
    def summary(self) -> Mapping[str, Any]:
        return dict(self._held["summary"])

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self._axes[name] = step_metric

    def log(self, values: Mapping[str, float]) -> None:
        assert not self._is_finished, "a finished run takes no values"
        for name, value in values.items():
            axis = self._axis(name)
            if axis is not None:
                assert axis in values, f"{name} is drawn along {axis}, which is not told"
                self._held["history"].append([name, values[axis], value])
        self._held["summary"].update(values)

    def finish(self) -> None:
        self._is_finished = True
        self._path.write_text(json.dumps(self._held))

    def _axis(self, name: str) -> str | None:
        """Its own definition first, then a pattern's."""
        if name in self._axes:
            return self._axes[name]
        return next((a for p, a in self._axes.items() if fnmatchcase(name, p)), None)


_TAKES = {"project", "name", "id", "resume", "dir", "config", "settings"}


def init(**told: Any) -> Run:
    """Begin a run, or go on with the one of this id."""
    assert told.keys() == _TAKES, "what is used, by the names that it has there"
    assert told["resume"] == "allow", "a run that goes on is the same run"
    assert isinstance(told["settings"], Settings), "settings are of their own type"
    about = {name: told[name] for name in ("project", "name", "dir")}
    return Run(
        Path(os.environ["SERVICES"], f"wandb-{told['id']}.json"),
        {**about, "config": dict(told["config"])},
    )
