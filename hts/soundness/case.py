"""A case: what it takes to let a simulator fail again as it did in a run.

A world depends on its place, its episode's seed and the actions that it took, so a case is small:
which replicas, which episodes, their actions up to the failure, and what went wrong. Worlds that
are stepped one by one are independent of each other: then the case holds the one that failed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from hts.config import Experiment
from hts.errors import WrongUsage
from hts.memory.storage import Storage
from hts.models.bounds import Bounds
from hts.report.run_directory import versions
from hts.report.sealed import Damaged, Sealed, seal, unseal
from hts_envs.contract import Array
from hts_envs.registry import parse

_KIND = "case"
_SEEN = "seen."


class Kind(StrEnum):
    """How a simulator fails."""

    RAISES = "raises"
    HANGS = "hangs"
    DIES = "dies"  # and its process with it
    STRAYS = "strays"  # rebuilt, it showed something else than before


@dataclass(frozen=True)
class Failure:
    """What went wrong in a run: a traceback, or a sentence."""

    kind: Kind
    words: str


@dataclass(frozen=True)
class Question:
    """What a block asked last, and its actions of older rollouts: what it was doing follows."""

    storage: Storage
    rollout: int
    step: int
    past: Mapping[int, Array]  # by rollout: (replicas, steps, agents, ...)


@dataclass(frozen=True, eq=False)
class Case:
    """Consecutive replicas in the moment of a failure; every array has a row for each of them."""

    env: str
    seed: int
    bounds: Bounds
    replicas: range
    failed: int | None  # the replica; None where it is not known, or a whole batched world did
    failure: Failure
    versions: Mapping[str, str]
    episode: Array
    age: Array
    trail: Array  # (replicas, steps, agents, ...): the last `age` ones are the running episode's
    action: Array | None  # being taken; None where episodes were being begun
    seen: Mapping[str, Array]  # what the action was decided on; empty before the first episode

    @staticmethod
    def of(
        experiment: Experiment,
        replicas: range,
        question: Question | None,
        failure: Failure,
        *,
        row: int | None = None,
    ) -> Case:
        """Of a block of a run, in this row of it if that is known.

        Without a question it had not asked yet: it was built, or its first episodes were begun.
        """
        nothing = np.zeros(len(replicas), np.int64)
        case = Case(
            experiment.env,
            experiment.seed,
            experiment.bounds,
            replicas,
            None if row is None else replicas[row],
            failure,
            versions(),
            episode=nothing,
            age=nothing,
            trail=nothing[:, None][:, :0],
            action=None,
            seen={},
        )
        if question is not None:
            case = case._behind(question)
        return case if row is None or parse(case.env).batched else case.alone(row)

    def _behind(self, question: Question) -> Case:
        """What stands in the storage, copied: a run may go on to write there."""
        storage, step = question.storage, question.step
        mine = slice(self.replicas.start, self.replicas.stop)
        age = storage.age[mine, step].copy()
        older = [question.past[at] for at in sorted(question.past) if at < question.rollout]
        trail = np.concatenate([*older, storage.action[mine, :step]], axis=1)
        assert trail.shape[1] >= age.max(), "every action of the running episodes is there"
        place = storage.sizes.history + step
        return dataclasses.replace(
            self,
            episode=storage.episode[mine, step].copy(),
            age=age,
            trail=trail[:, trail.shape[1] - int(age.max()) :],
            action=storage.action[mine, step].copy() if step < storage.sizes.steps else None,
            seen={
                name: storage.arrays[f"frames.{name}"][mine, place].copy()
                for name in storage.fields
            },
        )

    def alone(self, row: int) -> Case:
        """Of one replica; only where it does not share its world."""
        rows = slice(row, row + 1)
        age = int(self.age[row])
        return dataclasses.replace(
            self,
            replicas=self.replicas[rows],
            episode=self.episode[rows],
            age=self.age[rows],
            trail=self.trail[rows, self.trail.shape[1] - age :],
            action=None if self.action is None else self.action[rows],
            seen={name: array[rows] for name, array in self.seen.items()},
        )

    def write(self, path: Path) -> None:
        """One file, whole or not at all."""
        facts = {
            "env": self.env,
            "seed": self.seed,
            "bounds": self.bounds,
            "first": self.replicas.start,
            "failed": self.failed,
            "kind": self.failure.kind.value,
            "words": self.failure.words,
            "versions": dict(self.versions),
        }
        arrays = {"episode": self.episode, "age": self.age, "trail": self.trail}
        if self.action is not None:
            arrays["action"] = self.action
        arrays |= {f"{_SEEN}{name}": array for name, array in self.seen.items()}
        seal(path, _KIND, Sealed(facts, arrays))

    @staticmethod
    def read(path: Path) -> Case:
        """WrongUsage says what is wrong with a file that holds none."""
        try:
            found = unseal(path, _KIND)
        except Damaged as damaged:
            raise WrongUsage(f"no case can be read: {damaged}") from None
        facts, arrays = found.facts, found.arrays
        first = facts["first"]
        return Case(
            facts["env"],
            facts["seed"],
            facts["bounds"],
            range(first, first + len(arrays["episode"])),
            facts["failed"],
            Failure(Kind(facts["kind"]), facts["words"]),
            facts["versions"],
            arrays["episode"],
            arrays["age"],
            arrays["trail"],
            arrays.get("action"),
            {
                name.removeprefix(_SEEN): array
                for name, array in arrays.items()
                if name.startswith(_SEEN)
            },
        )
