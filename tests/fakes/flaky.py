"""An environment that fails now and then, as often in all processes together as it is told to."""

from __future__ import annotations

import os

import numpy as np

from hts_envs.contract import Array, BatchedWorld, Observation, Step
from tests.fakes.breaking import Breaking, BreakingBatch

FAULTS = "HTS_TEST_FAULTS"
"""The variable that names the file with a byte for each fault so far."""


class Flaky(Breaking):
    """Fails in `steps`, one after the other: in the first of them, later in the second, ..."""

    def __init__(self, how: str, steps: list[int]) -> None:
        super().__init__(how, 0, 0, "one", 30)
        self.steps = steps

    def step(self, action: Array) -> Step:
        fails = self._next() == self.tally.length + 1
        if fails:
            with open(os.environ[FAULTS], "ab") as file:
                file.write(b".")
        if fails and self.how == "raises":
            self._break()
        step = super().step(action)
        return step._replace(reward=step.reward * np.float32(np.nan)) if fails else step

    def reset(self, seed: int) -> Observation:
        seen = super().reset(seed)
        if self._next() == 0:
            with open(os.environ[FAULTS], "ab") as file:
                file.write(b".")
            seen["clock"][:] = -np.inf
        return seen

    def _next(self) -> int | None:
        """Return the step that fails next."""
        past = os.path.getsize(os.environ[FAULTS])
        return self.steps[past] if past < len(self.steps) else None


def make(how: str = "raises", steps: str = "", replica: int = 0) -> Breaking:
    """Build one; only replica 2 ever fails. `steps` are separated by dots; 0 is a reset."""
    return Flaky(how, [int(step) for step in steps.split(".") if step] if replica == 2 else [])


def batch(
    how: str = "raises", steps: str = "", replica: int = 0, replicas: int = 1
) -> BatchedWorld:
    """Build several behind one call."""
    return BreakingBatch([make(how, steps, replica + row) for row in range(replicas)])
