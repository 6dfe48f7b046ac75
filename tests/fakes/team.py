"""A world of three agents, each with its own observation and reward."""

from __future__ import annotations

import numpy as np

from hts_envs.contract import Array, Box, Discrete, Observation, Spaces, Step, Tally, Traits, World
from hts_envs.randomness import fold_rows, uniform

AGENTS = 3


class Team(World):
    """Each agent sees four numbers that follow from the seed, the step and everybody's action."""

    def __init__(self) -> None:
        self.spaces = Spaces({"observation": Box((4,))}, Discrete(3), AGENTS)
        self.traits = Traits()
        self._seed = 0
        self._sum = 0
        self._tally = Tally()

    def reset(self, seed: int) -> Observation:
        self._seed, self._sum = seed, 0
        self._tally.start()
        return self._observe()

    def step(self, action: Array) -> Step:
        self._sum = self._sum * 3 + int(action @ [1, 5, 25])
        reward = (action == self._tally.length % 3).astype(np.float32)
        self._tally.add(float(reward.mean()))
        terminated = self._tally.length >= 3 + self._seed % 5
        truncated = not terminated and self._tally.length == 6
        return Step(self._observe(), reward, terminated, truncated, self._tally.facts())

    def _observe(self) -> Observation:
        length = self._tally.length
        keys = fold_rows(self._seed, length, self._sum & (2**62 - 1), np.arange(AGENTS))
        return {"observation": uniform(keys, 4).astype(np.float32)}


def make() -> Team:
    """The factory that `python:` calls."""
    return Team()
