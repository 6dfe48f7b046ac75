"""How a run is shown while it goes on: a live view, plain lines, hardly anything, or JSON.

A live view needs a terminal; elsewhere, and with `--plain`, there are plain lines. Whichever it
is, the run tells it of every update and never waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from hts.config import Experiment
from hts.report import evaluations, terminal
from hts.report.live import Live
from hts.report.progress import Progress
from hts.report.say import mention, speak, tell_program
from hts.report.vitals import Vitals

How = Literal["live", "plain", "quiet", "json-log"]
_JSON_SECONDS = 5.0


class Plain:
    """A line now and then."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def begin(self, look: Callable[[], Vitals]) -> None:
        """The run is under way; it can be looked at until it is `ending`."""

    def update(self, metrics: Mapping[str, float], chain: str) -> None:
        """One more of them."""
        self._progress.tell(metrics, chain)

    def evaluated(self, line: Mapping[str, Any]) -> None:
        """One of its policies has been."""
        mention(f"hts-train: {evaluations.in_words(line)}")

    def ending(self, status: str, metrics: Mapping[str, float], chain: str) -> None:
        """It does not go on."""
        if metrics:
            self._progress.tell(metrics, chain, last=True)

    def result(self, record: Mapping[str, Any]) -> None:
        """How it ended, for a program."""

    def close(self) -> None:
        """Nothing more is shown but lines."""


class Json(Plain):
    """For a program: one object in a line of standard output."""

    _told = -_JSON_SECONDS

    def update(self, metrics: Mapping[str, float], chain: str) -> None:
        if time.monotonic() - self._told >= _JSON_SECONDS:
            self._tell(metrics, chain)

    def evaluated(self, line: Mapping[str, Any]) -> None:
        told = {name: line[name] for name in ("update", "steps", "episodes")}
        tell_program("evaluation", {**told, **evaluations.points(line)})

    def ending(self, status: str, metrics: Mapping[str, float], chain: str) -> None:
        if metrics:
            self._tell(metrics, chain)

    def result(self, record: Mapping[str, Any]) -> None:
        tell_program("result", record)

    def _tell(self, metrics: Mapping[str, float], chain: str) -> None:
        self._told = time.monotonic()
        tell_program("update", {**metrics, "digest": chain})


class Watched(Plain):
    """A view below the messages, redrawn some times in a second."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        style = terminal.style()
        self._live = Live(
            title(progress.experiment),
            progress.experiment.updates,
            progress.experiment.rows,
            style,
        )
        self._terminal: terminal.Terminal | None = terminal.Terminal(self._live.lines, style)

    def begin(self, look: Callable[[], Vitals]) -> None:
        self._live.begin(look, self._progress.steps, self._progress.spent)

    def update(self, metrics: Mapping[str, float], chain: str) -> None:
        self._live.update(metrics, chain)

    def ending(self, status: str, metrics: Mapping[str, float], chain: str) -> None:
        self._live.ending(status.partition(":")[0])

    def close(self) -> None:
        if self._terminal is not None:
            self._terminal.close()
            self._terminal = None


def shown(how: How, progress: Progress) -> Plain:
    """What was asked for, as far as standard error can show it."""
    speak(quiet=how == "quiet", as_json=how == "json-log")
    if how == "json-log":
        return Json(progress)
    if how == "live" and terminal.can_be_drawn_on():
        return Watched(progress)
    return Plain(progress)


def title(experiment: Experiment) -> str:
    """What is run, in a line."""
    return f"{experiment.algo.name} on {experiment.env}, seed {experiment.seed}"
