"""The frames of one episode, as its world shows itself, or else as a policy sees it."""

from __future__ import annotations

import math
from collections.abc import Callable

from hts.report.sketch import sketch
from hts_envs.contract import Array, Observation
from hts_envs.errors import MissingPackages


class Filmed:
    """A watcher of all episodes that keeps the pictures of one, and a caption for each."""

    def __init__(self, episode: int, frame: Callable[[int], Array | None]) -> None:
        self.frames: list[Array] = []
        self.captions: list[str] = []  # step, and return up to there
        self.instead: str | None = None  # why they are of what the policy sees, where they are
        self._episode = episode
        self._frame = frame
        self._rewards: list[float] = []

    def __call__(
        self, episode: int, row: int, seen: Observation, reward: float | None = None
    ) -> None:
        if episode == self._episode:
            if reward is not None:
                self._rewards.append(reward)
            total = math.fsum(self._rewards)
            self.captions.append(f"step {len(self._rewards):,}  return {total:.5g}")
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
