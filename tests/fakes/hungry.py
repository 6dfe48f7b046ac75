"""A simulator that, once in the life of a file, takes all memory that its control group has."""

from __future__ import annotations

import os
from typing import Any

import gymnasium

from hts.memory.room import available

MARK = "HTS_TEST_EATEN"
"""The variable that names the file: where it is there, somebody has eaten already."""

_PIECE, _MOST = 2**24, 2**32


class Hungry(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Eats in this step of its life."""

    def __init__(self, eats_in: int) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.eats_in = eats_in
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == self.eats_in:
            try:
                os.close(os.open(os.environ[MARK], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return super().step(action)
            _eat()
        return super().step(action)


def _eat() -> None:
    """Nothing but what a limit keeps from others; and it is this process that is ended for it."""
    assert "below the limit" in available().limit, "this would be the machine's own memory"
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    eaten = [b"\1" * _PIECE for _ in range(_MOST // _PIECE)]
    raise AssertionError(f"{len(eaten)} pieces were eaten, and nobody minded")


def make(eats_in: int = 100) -> Hungry:
    """The factory that `python:` calls."""
    return Hungry(eats_in)
