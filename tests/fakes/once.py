"""A world that breaks down once in the life of a file, and never again."""

from __future__ import annotations

import os

from hts_envs.contract import Array, Step
from tests.fakes.breaking import Breaking

MARK = "HTS_TEST_BROKEN_ONCE"
"""The variable that names the file: where it is there, the world has broken already."""


class Once(Breaking):
    """Breaks in this step of an episode, unless it has broken before."""

    def step(self, action: Array) -> Step:
        if self.tally.length + 1 == self.breaks_in[0] and not os.path.exists(os.environ[MARK]):
            with open(os.environ[MARK], "w", encoding="utf-8"):
                self._break()
        self.breaks_in = (0, 0) if os.path.exists(os.environ[MARK]) else self.breaks_in
        return super().step(action)


def make(how: str = "raises", step: int = 17) -> Once:
    """One of them."""
    return Once(how, step, 0, "one", 30)
