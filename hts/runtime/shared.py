"""What the processes of a run share, and how each finds its way in it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hts.config import Experiment
from hts.determinism.strategy import Strategy
from hts.machine import (
    SharedArray,
    Sizes,
    clock_arrays,
    desk_arrays,
    storage_arrays,
    version_arrays,
)
from hts.memory.arena import Arena
from hts.memory.desk import Bells, Crew, Desk
from hts.memory.learnt import Learnt
from hts.memory.storage import Storage
from hts_envs.contract import Array, Spaces


@dataclass(frozen=True)
class Blueprint:
    """Everything that the shared arrays follow from."""

    sizes: Sizes
    spaces: Spaces
    parameters: int
    scaled: dict[str, tuple[int, ...]]
    kept: tuple[SharedArray, ...]
    crew: Crew
    beside: tuple[SharedArray, ...] = ()  # of a P-learner, where there is one
    replay: tuple[SharedArray, ...] = ()  # of an off-policy algorithm

    @property
    def roles(self) -> int:
        return self.crew.executors + self.crew.actors + bool(self.beside) + 1

    def tables(self) -> list[tuple[SharedArray, ...]]:
        """Storages, desk, clock, versions, what is learnt and the replay, as memory has them."""
        storage = storage_arrays(self.sizes, self.spaces)
        crew = self.crew
        desk = desk_arrays(len(crew.blocks), crew.executors, crew.replicas)
        versions = version_arrays(self.parameters, self.scaled)
        return [
            storage,
            storage,
            desk,
            clock_arrays(self.roles),
            versions,
            self.kept,
            self.beside,
            self.replay,
        ]


@dataclass(frozen=True)
class Memory:
    """What a child is given: the memory, what lies in it, and everybody's doorbell."""

    blueprint: Blueprint
    arena: Arena
    bells: Bells

    def view(self) -> Shared:
        """The arrays in it, the same in every process; asked for once in each."""
        sizes, spaces = self.blueprint.sizes, self.blueprint.spaces
        tables = [self.arena.arrays(table) for table in self.blueprint.tables()]
        first, second = (Storage(sizes, spaces, arrays) for arrays in tables[:2])
        desk = Desk(self.blueprint.crew, sizes.steps, tables[2])
        learnt, beside = (Learnt(table) if table else None for table in tables[5:7])
        assert learnt is not None, "every run has a learner"
        return Shared(
            (first, second), desk, tables[3]["times"], tables[4], learnt, beside, tables[7]
        )

    def close(self) -> None:
        """Let go of it in the process that allocated it, when everybody else is gone."""
        self.arena.close()
        self.bells.close()


@dataclass(frozen=True)
class Shared:
    """Views of the shared memory in one process."""

    storages: tuple[Storage, Storage]
    desk: Desk
    times: Array
    versions: Mapping[str, Array]
    learnt: Learnt
    beside: Learnt | None
    replay: Mapping[str, Array]


def allocate(blueprint: Blueprint) -> Memory:
    """Memory and doorbells for a run, in the process that starts it."""
    return Memory(blueprint, Arena.create(blueprint.tables()), Bells.of(blueprint.crew))


class Tell(Protocol):
    """Whoever listens: a message of plain values, and bytes beside them."""

    def __call__(self, raw: bytes | None = None, **message: Any) -> None: ...


@dataclass(frozen=True)
class Roles:
    """Who answers and who learns, by module and name, found in the process that needs it."""

    answering: str = "hts.runtime.answering:answering"
    learner: str = "hts.runtime.learners:learner_for"


def load(name: str) -> Any:
    """What a role is named for."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


@dataclass(frozen=True)
class Terms:
    """What every process of a run is told."""

    experiment: Experiment
    memory: Memory
    roles: Roles
    jitter: float


@dataclass(frozen=True)
class Inference:
    """What it takes to answer observations: where, and how they are batched."""

    device: str
    strategy: Strategy
