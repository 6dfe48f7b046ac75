"""How a lost simulator comes back: what it is brought back from, and what it is held to.

From the seed of its episode and all its actions since; or from a snapshot, where its world has
one that is younger than that, and the actions behind it. Either way, what it shows must be what
stands in the storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hts.memory.storage import Storage
from hts_envs.contract import Array, Observation

APART = 256
"""Steps of an episode between its snapshots: so many are taken again at most."""


@dataclass(frozen=True)
class Snapshot:
    """A simulator's whole state behind so many steps of an episode, as its world writes it."""

    replica: int
    episode: int
    age: int
    state: bytes


Snapshots = Mapping[int, Sequence[Snapshot]]
"""The latest ones of each replica that has any, the oldest first."""


def latest(taken: Sequence[Snapshot], episode: int, age: int) -> Snapshot | None:
    """The last one of this episode that is not ahead of its age."""
    fitting = [each for each in taken if each.episode == episode and each.age <= age]
    return fitting[-1] if fitting else None


@dataclass(frozen=True)
class Rebuilt:
    """How many replicas came back, from what, and the steps that were taken again for it."""

    snapshots: int = 0
    begins: int = 0
    steps: int = 0

    def __add__(self, other: Rebuilt) -> Rebuilt:
        return Rebuilt(
            self.snapshots + other.snapshots, self.begins + other.begins, self.steps + other.steps
        )

    def __str__(self) -> str:
        its = "the start of their episodes" if self.begins > 1 else "the start of its episode"
        sources = [(self.snapshots, "from snapshots"), (self.begins, f"from {its}")]
        restored = [
            f"{count} {'replica' if count == 1 else 'replicas'} restored {source}"
            for count, source in sources
            if count
        ]
        steps = "1 step" if self.steps == 1 else f"{self.steps:,} steps"
        return f"{', '.join(restored)}; {steps} replayed"


@dataclass
class Record:
    """What stands in a storage at a step, for rebuilt rows to be held to.

    Frames from the place `known` on are there; `ages` are those of the rows' running episodes.
    """

    storage: Storage
    step: int
    known: int
    first: int  # the replica in row 0
    ages: Array
    strayed: dict[int, int] = field(default_factory=dict)  # by row: the first step that is not so

    def hold(self, rows: Array, left: int, seen: Observation) -> None:
        """These rows see this, with so many actions left to take."""
        place = self.storage.sizes.history + self.step - left
        if place < self.known:
            return  # older than what the storage holds
        for name in self.storage.fields:
            recorded = self.storage.arrays[f"frames.{name}"][self.first + rows, place]
            shown = seen[name].astype(recorded.dtype, copy=False)  # as it is written there
            for row in rows[(_bytes(shown) != _bytes(recorded)).any(1)]:
                self.stray(int(row), left)

    def stray(self, row: int, left: int) -> None:
        """This row is not what it was, with so many actions left to take."""
        self.strayed.setdefault(row, int(self.ages[row]) - left)


def _bytes(array: Array) -> Array:
    """Row by row what is in memory: a NaN equals itself."""
    flat = np.ascontiguousarray(array).reshape(len(array), -1)
    return np.asarray(flat.view(np.uint8))
