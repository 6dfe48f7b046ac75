"""The frames of one episode, as its world shows itself, or else as a policy sees it."""

from __future__ import annotations

from collections.abc import Callable

from hts.report.sketch import sketch
from hts_envs.contract import Array, Observation
from hts_envs.errors import MissingPackages


class Filmed:
    """Told of every step of every episode; keeps the pictures of one."""

    def __init__(self, episode: int, frame: Callable[[int], Array | None]) -> None:
        self.frames: list[Array] = []
        self.instead: str | None = None  # why they are of what the policy sees, where they are
        self._episode = episode
        self._frame = frame

    def __call__(self, episode: int, row: int, seen: Observation) -> None:
        if episode == self._episode:
            picture = None if self.instead else self._pictured(row)
            self.frames.append(sketch(seen) if picture is None else picture)

    def _pictured(self, row: int) -> Array | None:
        try:
            picture = self._frame(row)
        except MissingPackages as missing:
            self.instead = str(missing)
            return None
        if picture is None:
            self.instead = "this world makes no pictures of itself"
        return picture
