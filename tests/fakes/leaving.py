"""A simulator that leaves something behind, or waits for ever, where it is asked to."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import gymnasium
import numpy as np


class Leaving(gymnasium.Env[np.ndarray, int]):
    """Counts its steps; from the hundredth of its life on it never returns where it `hangs`."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, hangs: bool) -> None:
        self.hangs = hangs
        self.steps = 0

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        return np.zeros(2, np.float32), {}

    def step(self, action):  # type: ignore[no-untyped-def]
        self.steps += 1
        if self.hangs and self.steps == 100:
            threading.Event().wait()
        return np.zeros(2, np.float32), 0.0, self.steps % 10 == 0, False, {}


def process() -> Leaving:
    """One that has started a helper, in a session of its own, and forgets it."""
    subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True
    )
    return Leaving(hangs=False)


def file() -> Leaving:
    """One that has written a temporary file."""
    Path(tempfile.mkstemp(prefix="forgotten-")[1]).touch()
    return Leaving(hangs=False)


def hanging() -> Leaving:
    """One that stops in the middle of a step."""
    return Leaving(hangs=True)
