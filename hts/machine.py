"""The machine on one page: what is shared, who writes it, who reads it, and what always holds.

    executors  --observation, key-->  storage  <--action, log-prob, value--  actors
                                         |
                                      learner  -->  versions of the parameters  -->  actors

One rollout lives in one storage. Sizes are named: N replicas, T steps of each (`rollout`),
A agents, H older frames that the first stacks still need (`frame_stack` - 1). Replicas are the
first axis in memory, so that what one replica did is one piece of memory: it is written by one
executor, hashed in one call, and rebuilt alone.

Invariants, cited by number where they are asserted:

I1  A place in a storage has one writer in each round.
I2  The learner reads a rollout only after every replica has filled its part.
I3  The lag is exactly one: D_v is made with version v, and makes version v + 2
    (v + 1 under schedule sync). Versions 0 and 1 are the same parameters.
I4  A published version never changes.
I5  Each replica contributes exactly T steps to each rollout.
"""

from __future__ import annotations

from dataclasses import dataclass

from hts.config import Experiment
from hts_envs.contract import Spaces

ALIVE = 3
"""Versions in memory: two that are acted with, and one being published."""


@dataclass(frozen=True)
class Sizes:
    """The named sizes of every shared array."""

    replicas: int
    steps: int
    agents: int
    history: int

    @staticmethod
    def of(experiment: Experiment, spaces: Spaces) -> Sizes:
        return Sizes(
            experiment.replicas, experiment.rollout, spaces.agents, experiment.frame_stack - 1
        )


@dataclass(frozen=True)
class SharedArray:
    """One shared array: its shape, and the roles at both ends."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    writer: str
    reader: str
    hashed: bool = True


def storage_arrays(sizes: Sizes, spaces: Spaces) -> tuple[SharedArray, ...]:
    """Everything that one storage holds, in the order in which the digest sees it."""
    n, t, a, h = sizes.replicas, sizes.steps, sizes.agents, sizes.history
    frames = [
        # Frame H + t is what step t was decided on; frame H + T belongs to the next rollout.
        SharedArray(f"frames.{name}", (n, h + t + 1, a, *s.shape), s.dtype, "executor", "all")
        for name, s in spaces.observation.items()
    ]
    finals = [
        # The observation behind a truncation, until its value is known.
        SharedArray(f"finals.{name}", (n, a, *s.shape), s.dtype, "executor", "actor", hashed=False)
        for name, s in spaces.observation.items()
    ]
    action = spaces.action
    return (
        *frames,
        SharedArray("age", (n, t + 1), "int64", "executor", "all"),
        SharedArray("key", (n, t), "uint64", "executor", "actor"),
        SharedArray("action", (n, t, a, *action.shape), action.dtype, "actor", "all"),
        SharedArray("log_prob", (n, t, a), "float32", "actor", "learner"),
        SharedArray("value", (n, t, a), "float32", "actor", "learner"),
        SharedArray("reward", (n, t, a), "float32", "executor", "learner"),
        SharedArray("terminated", (n, t), "bool", "executor", "learner"),
        SharedArray("truncated", (n, t), "bool", "executor", "learner"),
        SharedArray("bootstrap", (n, t, a), "float32", "actor", "learner"),
        *finals,
    )
