"""Worlds whose episodes are long, and which can be snapshotted: rightly, wrongly, not at all."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import numpy as np

from hts_envs.contract import Array, Observation, Step, Traits
from tests.fakes.broken_worlds import Sound

LENGTH = 1500
FATAL = (850, 1350)
"""The first simulator that comes to such a step of an episode is killed there, with its process."""

MARKS = "HTS_TEST_FATAL"
"""The variable that names a folder for who was killed; without it nobody is."""


class Long(Sound):
    """A walk that stays within its bounds for so many steps."""

    def __init__(self) -> None:
        super().__init__()
        self.traits = Traits(snapshots=True, time_limit=LENGTH)

    def drawn(self) -> Array:
        return np.asarray(super().drawn() * 1e-3)

    def step(self, action: Array) -> Step:
        if self.tally.length + 1 in FATAL and MARKS in os.environ:
            with suppress(FileExistsError):
                mark = os.path.join(os.environ[MARKS], str(self.tally.length))
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
        self.place = self.place + self.drawn() + 1e-4 * float(action[0])
        reward = np.array([self.place[0, 0]], np.float32)
        self.tally.add(float(reward[0]))
        late = self.tally.length >= LENGTH
        return Step(self.observe(), reward, False, late, self.tally.facts() if late else {})


class Misremembering(Long):
    """Comes back beside where it was."""

    def restore(self, state: bytes) -> Observation:
        super().restore(state)
        self.place = self.place + 1e-3
        return self.observe()


class Refusing(Long):
    """Takes no snapshot back."""

    def restore(self, state: bytes) -> Observation:
        raise RuntimeError("this snapshot is of another build")
