"""Where the time of one process goes, written where everybody can read it."""

from __future__ import annotations

import time
from typing import Protocol

from hts.machine import DOING, SINCE, TIMES
from hts_envs.contract import Array


class Door(Protocol):
    """What a process waits at: its doorbell, or that and more."""

    def wait(self) -> None:
        """Until there may be something to do."""


class Clock:
    """Time is worked until the process waits, and waited for somebody until it is woken."""

    def __init__(self, times: Array) -> None:
        self._times = times
        self._since = times[SINCE] = time.perf_counter()
        self._doing = times[DOING] = TIMES.index("worked")

    def wait(self, door: Door, column: str) -> None:
        """Wait there, for whom the column says."""
        self.turns_to(column)
        door.wait()
        self.turns_to("worked")

    def turns_to(self, column: str) -> None:
        """From now on, time is of this column."""
        now = time.perf_counter()
        self._times[self._doing] += now - self._since
        self._since = self._times[SINCE] = now
        self._doing = self._times[DOING] = TIMES.index(column)


def until_now(times: Array) -> Array:
    """Rows of clocks, with the time since each was written last; all read the same clock."""
    found, now = times.copy(), time.perf_counter()
    for row in found:
        if row[SINCE]:
            row[int(row[DOING])] += max(0.0, now - row[SINCE])
    return found[:, : len(TIMES)]
