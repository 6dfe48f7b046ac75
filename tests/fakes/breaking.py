"""Worlds that break down where they are told to, in every way in which a simulator can."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

import numpy as np

from hts_envs.contract import Array, BatchedStep, BatchedWorld, Observation, Step
from tests.fakes.small_worlds import Small


class Breaking(Small):
    """Breaks in this step of any episode, or in this reset of its life, counted from 1."""

    def __init__(self, how: str, step: int, reset: int, action: str, length: int) -> None:
        super().__init__(action, 2, length)
        self.how = how
        self.breaks_in = (step, reset)
        self.resets = 0

    def reset(self, seed: int) -> Observation:
        self.resets += 1
        if self.resets == self.breaks_in[1]:
            self._break()
        return super().reset(seed)

    def step(self, action: Array) -> Step:
        if self.tally.length + 1 == self.breaks_in[0]:
            self._break()
        return super().step(action)

    def observe(self) -> Observation:
        seen = super().observe()
        step, reset = self.breaks_in
        now = self.tally.length == step if self.tally.length else self.resets == reset
        if self.how == "misshapen" and now:
            seen["numbers"] = seen["numbers"][:, :1]  # which numpy would spread
        return seen

    def _break(self) -> None:
        if self.how == "raises":
            raise RuntimeError(f"the engine has lost the ball {self.tally.length}")
        if self.how == "hangs":
            time.sleep(10_000)
        elif self.how == "hangs below Python":
            ctypes.PyDLL(None).sleep(10_000)  # which keeps the interpreter to itself
        elif self.how == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.how == "dies":
            ctypes.string_at(0)
        elif self.how == "exits":
            sys.exit(3)


class BreakingBatch(BatchedWorld):
    """Some of them behind one call, of which the last one breaks."""

    def __init__(self, worlds: list[Breaking]) -> None:
        self.worlds = worlds
        self.replicas = len(worlds)
        self.spaces, self.traits = worlds[0].spaces, worlds[0].traits

    def reset(self, rows: Array, seeds: Array) -> Observation:
        chosen = zip(rows, seeds, strict=True)
        return _stacked([self.worlds[row].reset(int(seed)) for row, seed in chosen])

    def step(self, action: Array) -> BatchedStep:
        steps = [world.step(each) for world, each in zip(self.worlds, action, strict=True)]
        lengths = np.array([world.tally.length for world in self.worlds], np.float64)
        return BatchedStep(
            _stacked([step.observation for step in steps]),
            np.stack([step.reward for step in steps]),
            np.array([step.terminated for step in steps]),
            np.array([step.truncated for step in steps]),
            {"length": lengths},
        )


def _stacked(seen: list[Observation]) -> Observation:
    """As narrow as the narrowest: one shape for all."""
    width = min(one["numbers"].shape[-1] for one in seen)
    wide = {"numbers": [one["numbers"][:, :width] for one in seen]}
    return {name: np.stack(wide.get(name, [one[name] for one in seen])) for name in seen[0]}


def make(
    how: str = "not", step: int = 0, reset: int = 0, action: str = "vector", length: int = 30
) -> Breaking:
    """One of them; `built` breaks here."""
    if how == "built":
        raise RuntimeError("no licence for another engine")
    return Breaking(how, step, reset, action, length)


def batch(how: str = "not", step: int = 0, reset: int = 0, replicas: int = 1) -> BatchedWorld:
    """Several behind one call."""
    sound = [Breaking("not", 0, 0, "one", 30) for _ in range(replicas - 1)]
    return BreakingBatch([*sound, Breaking(how, step, reset, "one", 30)])
