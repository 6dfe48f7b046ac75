"""The command line that runs an experiment again, as short as it can be, and checked to do so."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import Any

from hts.config import Given, configure, flatten
from hts.config.resolve import full_path
from hts.errors import BadConfig
from hts.report.recorded import Recorded
from hts_envs.errors import WorldError

_FLAGS = {
    "experiment.algo.name": "--algo",
    "experiment.env": "--env",
    "experiment.seed": "--seed",
    "experiment.replicas": "--envs",
    "experiment.steps": "--steps",
}
_START, _EXTENDED = "experiment.start_from", "experiment.extended."


def arguments(run: Recorded) -> str | None:
    """What `hts-train` and `hts-verify` take for this experiment; None where this version of the
    product makes another experiment of it."""
    wanted = {path: value for path, value in run.config.items() if path.startswith("experiment.")}
    if any(path not in wanted for path in _FLAGS):
        return None
    typed = {path: _text(wanted[path]) for path in _FLAGS}
    flags = [Given(path, text, _FLAGS[path]) for path, text in typed.items()]
    if _START in wanted:
        flags.append(Given(_START, wanted[_START], "--start-from"))
    try:
        stages = {path: wanted.pop(path) for path in list(wanted) if path.startswith(_EXTENDED)}
        # Only all of these together, with everything else, are a configuration.
        sets = [*_sets(flags, wanted), *(f"{path}={_text(stages[path])}" for path in stages)]
        made = configure(None, sets, flags).config.experiment
    except (BadConfig, WorldError):
        return None
    if made.identity() != run.identity:
        return None
    words = [word for path, text in typed.items() for word in (_FLAGS[path], text)]
    words += ["--start-from", f"{run.path}:0"] if _START in wanted else []
    return shlex.join([*words, *(word for each in sets for word in ("--set", each))])


def _sets(flags: list[Given], wanted: dict[str, Any]) -> list[str]:
    """What differs from what the flags alone ask for; a model first, it decides what else is."""
    sets: list[str] = []
    for path in sorted(wanted, key=lambda path: not path.endswith(".name")):
        given = flatten(configure(None, sets, flags).config)
        if path not in given or _text(given[path]) != _text(wanted[path]):
            sets.append(f"{_short(path)}={_text(wanted[path])}")
    return sets


def _short(path: str) -> str:
    """Its last word, where that says as much."""
    word = path.rpartition(".")[2]
    with suppress(KeyError):
        return word if full_path(word) == path else path
    return path


def _text(value: Any) -> str:
    """A value as it is typed."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value)
