"""Small sound worlds of every shape of action and observation, and one that plays a script."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hts_envs.contract import (
    Array,
    BatchedStep,
    BatchedWorld,
    Box,
    Discrete,
    MultiDiscrete,
    Observation,
    Space,
    Spaces,
    Step,
    Tally,
    Traits,
    World,
)
from hts_envs.randomness import fold, fold_rows, uniform

ACTIONS: dict[str, Space] = {
    "one": Discrete(3),
    "many": MultiDiscrete((2, 3, 4)),
    "number": Box((), low=-1.0, high=1.0),
    "vector": Box((2,), low=(-1.0, -0.5), high=(1.0, 0.5)),
    "table": Box((2, 3), low=-1.0, high=1.0),
}


class Small(World):
    """Three numbers and a symbol for each agent, all functions of seed, step and agent.

    The reward is the sum of the action, so that a wrongly shaped action is not learnt from by
    accident. The seed decides how long an episode is and which of both flags ends it.
    """

    def __init__(
        self, action: str = "one", agents: int = 1, length: int = 9, takes: float = 0.0
    ) -> None:
        seen: dict[str, Space] = {"numbers": Box((3,)), "symbol": Discrete(5), "clock": Box(())}
        self.spaces = Spaces(seen, ACTIONS[action], agents)
        self.traits = Traits()
        self.length = length
        self.takes = takes  # seconds of a step
        self.tally = Tally()
        self.seed = 0

    def reset(self, seed: int) -> Observation:
        self.seed = seed
        self.tally.start()
        return self.observe()

    def observe(self) -> Observation:
        keys = fold_rows(self.seed, self.tally.length, np.arange(self.spaces.agents))
        drawn = uniform(keys, 4)
        return {
            "numbers": (drawn[:, :3] * 4 - 1).astype(np.float32),
            "symbol": (drawn[:, 3] * 5).astype(np.int64),
            "clock": np.full(self.spaces.agents, self.tally.length, np.float32),
        }

    def step(self, action: Array) -> Step:
        space = self.spaces.action
        assert action.shape == (self.spaces.agents, *space.shape), f"an action of {action.shape}"
        time.sleep(self.takes)
        if isinstance(space, Box):
            assert np.all(action >= np.asarray(space.low)), "below the bounds"
            assert np.all(action <= np.asarray(space.high)), "above the bounds"
        reward = action.reshape(len(action), -1).sum(-1).astype(np.float32)
        self.tally.add(float(reward.mean()))
        word = fold(self.seed, 5)
        over = self.tally.length >= 1 + word % self.length
        truncated = bool(word >> 32 & 1)
        facts = self.tally.facts() if over else {}
        return Step(self.observe(), reward, over and not truncated, over and truncated, facts)


class Ending(Small):
    """The seed decides whether an end shows one flag, the other, or both at once."""

    def step(self, action: Array) -> Step:
        step = super().step(action)
        if not (step.terminated or step.truncated):
            return step
        kind = fold(self.seed, 6) % 3
        return step._replace(terminated=kind != 0, truncated=kind != 1)


class Announcing(Small):
    """Tells the terminal when step 300 of its life is played."""

    played = 0

    def step(self, action: Array) -> Step:
        self.played += 1
        if self.played == 300:
            print("step 300 is played", file=sys.stderr, flush=True)
        return super().step(action)


@dataclass(frozen=True)
class Act:
    """An episode of a script: how many steps it has, and which flags its end shows."""

    length: int
    end: Literal["terminated", "truncated", "both"] = "terminated"


class Scripted(World):
    """Plays acts in turn, whatever the action; everything shown is kept, act by act, in `shown`.

    No two frames are alike: the number counts all frames that were ever shown.
    """

    spaces = Spaces(
        {"pair": Box((2,)), "number": Box(()), "symbol": Discrete(1 << 20)}, Discrete(2)
    )
    traits = Traits()

    def __init__(self, acts: Sequence[Act], first: int = 0) -> None:
        self.acts = acts
        self.count = first
        self.seeds: list[int] = []
        self.shown: list[list[Observation]] = []

    def reset(self, seed: int) -> Observation:
        self.seeds.append(seed)
        self.shown.append([])
        return self._show()

    def step(self, action: Array) -> Step:
        act = self.acts[(len(self.shown) - 1) % len(self.acts)]
        seen = self._show()
        length = len(self.shown[-1]) - 1
        over = length == act.length
        facts = {"return": float(length), "length": float(length)} if over else {}
        reward = np.array([length], np.float32)
        return Step(
            seen,
            reward,
            over and act.end in ("terminated", "both"),
            over and act.end in ("truncated", "both"),
            facts,
        )

    def _show(self) -> Observation:
        self.count += 1
        seen = {
            "pair": np.array([[self.count, -self.count]], np.float32),
            "number": np.array([self.count / 2], np.float32),
            "symbol": np.array([self.count], np.int64),
        }
        self.shown[-1].append(seen)
        return {name: array.copy() for name, array in seen.items()}


class ScriptedBatch(BatchedWorld):
    """Scripted worlds behind one call."""

    spaces = Scripted.spaces
    traits = Traits()

    def __init__(self, worlds: Sequence[Scripted]) -> None:
        self.worlds = worlds
        self.replicas = len(worlds)

    def reset(self, rows: Array, seeds: Array) -> Observation:
        chosen = zip(rows, seeds, strict=True)
        return _stacked([self.worlds[row].reset(int(seed)) for row, seed in chosen])

    def step(self, action: Array) -> BatchedStep:
        steps = [world.step(a) for world, a in zip(self.worlds, action, strict=True)]
        lengths = np.array([len(world.shown[-1]) - 1 for world in self.worlds], np.float64)
        return BatchedStep(
            _stacked([step.observation for step in steps]),
            np.stack([step.reward for step in steps]),
            np.array([step.terminated for step in steps]),
            np.array([step.truncated for step in steps]),
            {"return": lengths, "length": lengths},
        )


def _stacked(seen: list[Observation]) -> Observation:
    return {name: np.stack([one[name] for one in seen]) for name in seen[0]}
