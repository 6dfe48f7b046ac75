"""Where curves are written besides the record: TensorBoard, and services that ask for a package.

The run hands over a line and goes on; a thread of its own writes. A log that fails is told once:
the record in `metrics.jsonl` is whole without it. Curves have so many points in a second at the
most; the record has every update.
"""

from __future__ import annotations

import importlib.util
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hts.errors import WrongUsage
from hts.report.say import say
from hts.report.tensorboard import Events

_POINTS_PER_SECOND = 20.0
_SECONDS_TO_SYNC = 5.0
_SECONDS_TO_END = 30.0
_AXIS = "steps"
_FOLDER = "tensorboard"


class Log(Protocol):
    """Somewhere that curves are written."""

    @property
    def trouble(self) -> str | None:
        """Why points wait, where they do."""

    def add(self, steps: int, values: Mapping[str, float]) -> None:
        """One point of each curve."""

    def evaluated(self, steps: int, values: Mapping[str, float]) -> None:
        """One point of each curve under `eval/`, behind or between others: a policy is evaluated
        some time after it was made, and stands where it was made."""

    def close(self) -> None:
        """There will be no more."""


@dataclass(frozen=True)
class _Evaluated:
    """The evaluation of a policy that was made behind so many steps."""

    steps: int
    values: Mapping[str, float]


class Logs:
    """All of them, behind one thread."""

    def __init__(self, logs: Mapping[str, Log]) -> None:
        self._logs = dict(logs)
        self._troubles: set[str] = set()
        self._last = -1.0
        self._left: Mapping[str, float] | None = None  # the latest line, where it was too early
        self._lines: queue.SimpleQueue[Mapping[str, float] | _Evaluated | threading.Event | None]
        self._lines = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="logs", daemon=True)
        self._thread.start()

    def add(self, line: Mapping[str, float]) -> None:
        """One line of the record; some are left out, where there are very many."""
        now = time.monotonic()
        if now - self._last < 1 / _POINTS_PER_SECOND and not _tells_of_machine(line):
            self._left = line
            return
        self._last, self._left = now, None
        self._lines.put(line)

    def evaluated(self, steps: int, values: Mapping[str, float]) -> None:
        """What an evaluation came to; none is left out."""
        self._lines.put(_Evaluated(steps, values))

    def sync(self) -> None:
        """Until what was handed over is written, or it takes too long."""
        written = threading.Event()
        self._lines.put(written)
        written.wait(_SECONDS_TO_SYNC)

    def close(self) -> None:
        """Until everybody has written what there was, or it takes too long."""
        if not self._thread.is_alive():
            return
        if self._left is not None:
            self._lines.put(self._left)
        self._lines.put(None)
        self._thread.join(_SECONDS_TO_END)
        if self._thread.is_alive():
            say(f"hts-train: {', '.join(self._logs)} did not end in {_SECONDS_TO_END:.0f} s")

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            if isinstance(line, _Evaluated):
                self._each(lambda log, told=line: log.evaluated(told.steps, told.values))
                continue
            values = {name: value for name, value in line.items() if name != _AXIS}
            self._each(lambda log, at=int(line[_AXIS]), v=values: log.add(at, v))
        self._each(lambda log: log.close())

    def _each(self, work: Any) -> None:
        """With every log; whoever raises is left out from here on."""
        for name, log in list(self._logs.items()):
            try:
                work(log)
            except Exception as error:  # of a service's own package: anything
                del self._logs[name]
                say(f"hts-train: {name}: {_short(error)}: no more curves there")
            else:
                self._tell(log.trouble)

    def _tell(self, trouble: str | None) -> None:
        if trouble is not None and trouble not in self._troubles:
            self._troubles.add(trouble)
            say(f"hts-train: {trouble}: the run goes on, and tries again")


def _tells_of_machine(line: Mapping[str, float]) -> bool:
    """Few lines do, and none of them is left out."""
    return any(name.startswith("machine/") for name in line)


def check(names: Sequence[str]) -> None:
    """WrongUsage where a package is not there, with what installs it."""
    for name in names:
        if name != _FOLDER and importlib.util.find_spec(name) is None:
            raise WrongUsage(
                f"machine.log: {name} is not installed here. Install it with: pip install {name}"
            )


def logs_of(names: Sequence[str], path: Path, config: Mapping[str, Any], behind: int) -> Logs:
    """Those that a run in this directory was asked for, behind so many steps."""
    made: dict[str, Log] = {}
    for name in dict.fromkeys(names):
        try:
            made[name] = _made(name, path, config, behind)
        except Exception as error:  # of a service's own package: anything
            say(f"hts-train: {name}: {_short(error)}: no curves there")
    return Logs(made)


def _made(name: str, path: Path, config: Mapping[str, Any], behind: int) -> Log:
    if name == _FOLDER:
        return Events(path / _FOLDER, behind)
    from hts.report.services import SERVICES

    return SERVICES[name](path, config)


def _short(error: Exception) -> str:
    """Its first sentence: services explain themselves at length."""
    first = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return first.partition(". ")[0]
