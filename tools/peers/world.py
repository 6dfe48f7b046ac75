"""The sleeper world as a Gymnasium environment, for peers that cannot import ours.

The same sizes as `sleeper:` with its defaults: 4 numbers seen, 2 actions, episodes of a geometric
length of mean 100, a reward for the action that the first number asks for, and a step that takes an
exponential time asleep or, with a mean of 0, none. Its random numbers are others, and a step does
no more work than ours.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

LENGTH = 100  # mean steps of an episode
AHEAD = 64  # random numbers are drawn for so many steps at once


class SleeperEnv(gymnasium.Env[np.ndarray, int]):
    """One replica; `mean` is the duration of a step in milliseconds."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, mean: float, seed: int) -> None:
        self._mean = mean / 1000.0
        self._random = np.random.default_rng(seed)
        self._pattern = self._random.random(4, np.float32) / 2
        self._taken = 0
        self._left = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._left = int(self._random.geometric(1.0 / LENGTH))
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        begun = time.perf_counter()
        reward = 1.0 if action == self._asked else 0.0
        self._left -= 1
        seen = self._observe()
        if self._mean:
            duration = self._durations[self._taken % AHEAD]
            time.sleep(max(0.0, begun + duration - time.perf_counter()))
        return seen, reward, self._left == 0, False, {}

    def _observe(self) -> np.ndarray:
        place = self._taken % AHEAD
        if place == 0:
            self._shifts = (self._random.integers(256, size=AHEAD) / 512.0).tolist()
            self._clues = self._random.integers(2, size=AHEAD).tolist()
            if self._mean:
                self._durations = self._random.exponential(self._mean, AHEAD).tolist()
        self._taken += 1
        seen = self._pattern + self._shifts[place]
        seen[0] = self._asked = self._clues[place]
        return seen
