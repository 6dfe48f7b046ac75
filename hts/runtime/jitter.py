"""Random delays at named points of the machine: a test of the promise, never part of a result.

They follow from the role's name and the count of pauses, so that a run with delays can be repeated.
"""

from __future__ import annotations

import time
import zlib

from hts_envs.randomness import fold

POINTS = ("ask", "step", "answer", "report", "update", "publish")
"""Before a block asks, or steps; before an answer; before a rollout is reported; before an update,
and its publishing."""


class Jitter:
    """Sleeps up to `milliseconds` at each point; not at all when that is zero."""

    def __init__(self, milliseconds: float, role: str) -> None:
        self._milliseconds = milliseconds
        self._role = zlib.crc32(role.encode())
        self._pauses = 0

    def __call__(self, point: str) -> None:
        assert point in POINTS, f"{point!r} is not a point of the machine"
        if not self._milliseconds:
            return
        self._pauses += 1
        share = fold(self._role, POINTS.index(point), self._pauses) / 2**64
        time.sleep(share * self._milliseconds / 1e3)
