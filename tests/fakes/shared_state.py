"""Simulators that keep state outside themselves, each in another place."""

from __future__ import annotations

import importlib
import random

import gymnasium
import numpy as np

from hts_envs.contract import Array, Observation
from tests.fakes.broken_worlds import WIDTH, Sound


class SeedsGlobals(Sound):
    """Seeds the global generators in `reset` and draws from them in `step`, as old ones do."""

    def reset(self, seed: int) -> Observation:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        return super().reset(seed)

    def drawn(self) -> Array:
        return np.random.rand(WIDTH) + random.random() - 1.0


class DrawsGlobally(SeedsGlobals):
    """Never seeds what it draws from, not even when it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = np.random.rand(WIDTH)

    def reset(self, seed: int) -> Observation:
        return Sound.reset(self, seed)

    def drawn(self) -> Array:
        return super().drawn() + self.offset - 0.5


class DrawsFromTorch(Sound):
    """Seeds and draws from torch's global generator."""

    def reset(self, seed: int) -> Observation:
        importlib.import_module("torch").manual_seed(seed)
        return super().reset(seed)

    def drawn(self) -> Array:
        return np.asarray(importlib.import_module("torch").rand(WIDTH)) - 0.5


class SharesAClass(Sound):
    """Keeps the level of the running episode in its class."""

    level = 0

    def reset(self, seed: int) -> Observation:
        type(self).level = seed % 7
        return super().reset(seed)

    def drawn(self) -> Array:
        return super().drawn() * self.level


class FirstWins(Sound):
    """The first one that is built in a process makes the map for all of them."""

    map: list[float] = []  # noqa: RUF012 - shared, which is the fault

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        if not self.map:
            self.map.append(seed % 1000 / 1000.0)

    def drawn(self) -> Array:
        return super().drawn() + self.map[0]


class ChangesGenerator(Sound):
    """Puts a generator of another kind in the place of NumPy's."""

    def reset(self, seed: int) -> Observation:
        np.random.set_bit_generator(np.random.PCG64(seed))
        return super().reset(seed)

    def drawn(self) -> Array:
        return np.random.rand(WIDTH) - 0.5


def isolated_by_itself(isolate: int = 3) -> gymnasium.Env[np.ndarray, int]:
    """A factory with an option of its own that is called `isolate`."""
    raise RuntimeError(f"isolate is {isolate}")
