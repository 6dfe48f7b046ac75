"""The one contract between a world and whoever steps it.

A *world* is one replica of a simulator; a *batched world* is many replicas behind one call.
Both speak of the same things:

* An observation is a dict of named arrays. A world with one plain observation calls it
  "observation"; nested ones are flattened to dotted names. The leading axes are agents for a
  world, and replicas then agents for a batched world; a world with one agent has an axis of 1.
* terminated and truncated are told apart, always. There is no `done`.
* Resets are the caller's business: a world never resets itself. After terminated or truncated,
  the next call is `reset`; every episode is given its seed.
* What a world returns belongs to the caller: the next step changes none of it.
* Observations and rewards are finite: a NaN or an infinity counts as raising.
* Rewards are the world's own; clipping, frame stacks and normalisation are the machine's.
* The facts of an ended episode hold at least "return" (raw, summed over the agents' mean) and
  "length" (steps); a world adds what it knows ("score", "lives", ...). Where rewards are shaped,
  "shaped_return" is what they add up to; where an end for learning is not the end of a game,
  "game_over" says so, and "game_return" and "game_length" come with its true end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Observation: TypeAlias = dict[str, Array]

SEED_LIMIT = 2**63
"""Seeds of episodes lie in [0, SEED_LIMIT)."""


@dataclass(frozen=True)
class Box:
    """An array of numbers; `low` and `high` bound every element, or are arrays as nested tuples."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | tuple[Any, ...] = float("-inf")
    high: float | tuple[Any, ...] = float("inf")


@dataclass(frozen=True)
class Discrete:
    """One whole number in [0, n), held as int64."""

    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> str:
        return "int64"


@dataclass(frozen=True)
class MultiDiscrete:
    """Several whole numbers, each in its own [0, n), held as int64."""

    nvec: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    @property
    def dtype(self) -> str:
        return "int64"


Space: TypeAlias = Box | Discrete | MultiDiscrete


@dataclass(frozen=True)
class Spaces:
    """What goes in and out of one agent, and how many agents a replica has."""

    observation: Mapping[str, Space]
    action: Space
    agents: int = 1


@dataclass(frozen=True)
class Traits:
    """What a caller may rely on.

    `snapshots`: `snapshot` and `restore` work, and what follows a restore is bit-equal.
    `time_limit`: after how many steps an episode ends by the clock; None where there is no clock.
    `clock_ends`: the clock is part of the task, so its end is `terminated`, not `truncated`.
    `frame_skip`: simulator frames for each step.
    `reseeds`: every episode gets its own seed; False where a library only takes one when built.
    """

    snapshots: bool = False
    time_limit: int | None = None
    clock_ends: bool = False
    frame_skip: int = 1
    reseeds: bool = True


class Step(NamedTuple):
    """What one step of a world returns; `reward` holds one float32 for each agent."""

    observation: Observation
    reward: Array
    terminated: bool
    truncated: bool
    facts: Mapping[str, float]


class BatchedStep(NamedTuple):
    """What one step of a batched world returns: every array has the replicas as first axis."""

    observation: Observation
    reward: Array
    terminated: Array
    truncated: Array
    facts: Mapping[str, Array]


@dataclass(frozen=True)
class Place:
    """Where a world is built: its first replica, how many it holds, a seed known beforehand.

    The seed of a single world is its replica's own. That of a batched world is the run's, which
    it folds with the number of each of its replicas, so that a run cut into other blocks is the
    same run. Where it is `shown`, somebody will ask it for frames.
    """

    replica: int = 0
    replicas: int = 1
    seed: int = 0
    shown: bool = False


class World(ABC):
    """One replica of a simulator."""

    spaces: Spaces
    traits: Traits
    frame_rate: float = 30.0  # pictures in a second of its own time

    @abstractmethod
    def reset(self, seed: int) -> Observation:
        """Begin an episode that depends on nothing but `seed`."""

    @abstractmethod
    def step(self, action: Array) -> Step:
        """Take one action of each agent: (agents, *action shape)."""

    def snapshot(self) -> bytes:
        """The whole state of the episode; only where `traits.snapshots`."""
        raise NotImplementedError(f"{type(self).__name__} has no snapshots")

    def restore(self, state: bytes) -> Observation:
        """Return to a snapshot and to the observation that belonged to it."""
        raise NotImplementedError(f"{type(self).__name__} has no snapshots")

    def frame(self) -> Array | None:
        """A picture of this moment for people, (height, width, 3) uint8, where there is one.

        It changes nothing; a world may need to be built as one that is `shown`.
        """
        return None

    def close(self) -> None:
        """Give back what the simulator holds; the world is not used afterwards."""
        return None


class BatchedWorld(ABC):
    """Many replicas behind one call."""

    spaces: Spaces
    traits: Traits
    replicas: int
    frame_rate: float = 30.0  # pictures in a second of its own time

    @abstractmethod
    def reset(self, rows: Array, seeds: Array) -> Observation:
        """Begin an episode in each of `rows` (int64) with its seed (uint64); returns these rows."""

    @abstractmethod
    def step(self, action: Array) -> BatchedStep:
        """Step every replica: (replicas, agents, *action shape). Ended rows were reset before."""

    def frame(self, row: int) -> Array | None:
        """A picture of this row's moment for people, (height, width, 3) uint8, if there is one."""
        return None

    def close(self) -> None:
        """Give back what the simulator holds; the world is not used afterwards."""
        return None


@dataclass
class Tally:
    """Return and length of the running episode, for the facts at its end."""

    total: float = 0.0
    length: int = 0

    def start(self) -> None:
        self.total = 0.0
        self.length = 0

    def add(self, reward: float) -> None:
        self.total += reward
        self.length += 1

    def facts(self) -> dict[str, float]:
        return {"return": self.total, "length": float(self.length)}


@dataclass
class BatchedTally:
    """The same for the rows of a batched world, in float64."""

    replicas: int
    total: Array = field(init=False)
    length: Array = field(init=False)

    def __post_init__(self) -> None:
        self.total = np.zeros(self.replicas, np.float64)
        self.length = np.zeros(self.replicas, np.int64)

    def start(self, rows: Array) -> None:
        self.total[rows] = 0.0
        self.length[rows] = 0

    def add(self, reward: Array) -> None:
        self.total += reward
        self.length += 1

    def facts(self) -> dict[str, Array]:
        return {"return": self.total.copy(), "length": self.length.astype(np.float64)}
