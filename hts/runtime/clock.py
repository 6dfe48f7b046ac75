"""Where the time of one process goes, written where everybody can read it."""

from __future__ import annotations

import time
from typing import Protocol

from hts.machine import TIMES
from hts_envs.contract import Array


class Door(Protocol):
    """What a process waits at: its doorbell, or that and more."""

    def wait(self) -> None:
        """Until there may be something to do."""


class Clock:
    """Time is worked until the process waits, and waited for somebody until it is woken."""

    def __init__(self, times: Array) -> None:
        self._times = times
        self._since = time.perf_counter()

    def wait(self, door: Door, column: str) -> None:
        """Wait there, for whom the column says."""
        self._add("worked")
        door.wait()
        self._add(column)

    def _add(self, column: str) -> None:
        now = time.perf_counter()
        self._times[TIMES.index(column)] += now - self._since
        self._since = now
