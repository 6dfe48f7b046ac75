"""A game that is slow for those who play it well: what random actions cost before a run is not what
the run costs."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

_IN_A_ROW = 8


class Growing(gymnasium.Env[Any, Any]):
    """Action 1 is rewarded; behind eight of them in a row, steps burn time."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, ms: float, length: int) -> None:
        self._seconds = ms / 1e3
        self._length = length
        self._steps = self._well = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = self._well = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._well = self._well + 1 if action else 0
        until = time.process_time() + self._seconds * (self._well > _IN_A_ROW)
        while time.process_time() < until:
            pass
        self._steps += 1
        return self._seen(), float(action), self._steps == self._length, False, {}

    def _seen(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)


def make(ms: float = 2.0, length: int = 100) -> Growing:
    return Growing(ms, length)
