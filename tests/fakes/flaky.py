"""An environment that fails now and then: in processes that replace each other, so many times."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from hts_envs.contract import Array, BatchedWorld, Observation, Step
from tests.fakes.births import is_born
from tests.fakes.breaking import Breaking, BreakingBatch

FAULTS = "HTS_TEST_FAULTS"
"""The variable that names a folder. A file in it has a byte for each fault so far: `here` those of
a run in one process, `spawned` those of the processes that a run starts."""


def faults(folder: str | Path, name: str = "here") -> int:
    """Return how often it has failed there."""
    path = Path(folder, name)
    return path.stat().st_size if path.exists() else 0


class Flaky(Breaking):
    """Fails in `steps`, one after the other: in the first of them, later in the second, ..."""

    def __init__(self, how: str, steps: list[int]) -> None:
        super().__init__(how, 0, 0, "one", 30)
        self.steps = steps
        self.place = "spawned" if is_born(os.getpid()) else "here"

    def step(self, action: Array) -> Step:
        fails = self._fails(self.tally.length + 1)
        if fails and self.how == "raises":
            self._break()
        step = super().step(action)
        return step._replace(reward=step.reward * np.float32(np.nan)) if fails else step

    def reset(self, seed: int) -> Observation:
        seen = super().reset(seed)
        if self._fails(0):
            seen["clock"][:] = -np.inf
        return seen

    def _fails(self, step: int) -> bool:
        """Whether this is the step that fails next; it is counted if so."""
        past = faults(os.environ[FAULTS], self.place)
        if self.steps[past : past + 1] != [step]:
            return False
        with Path(os.environ[FAULTS], self.place).open("ab") as file:
            file.write(b".")
        return True


def make(how: str = "raises", steps: str = "", replica: int = 0) -> Breaking:
    """Build one; only replica 2 ever fails. `steps` are separated by dots; 0 is a reset."""
    return Flaky(how, [int(step) for step in steps.split(".") if step] if replica == 2 else [])


def batch(
    how: str = "raises", steps: str = "", replica: int = 0, replicas: int = 1
) -> BatchedWorld:
    """Build several behind one call."""
    return BreakingBatch([make(how, steps, replica + row) for row in range(replicas)])
