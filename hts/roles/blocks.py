"""Blocks: what an executor steps at once, and what advances by itself.

A block takes the actions that stand in the storage, steps its simulators, and writes what came of
it: reward, ends, the next observation with its age and key. It resets what has ended, each episode
with a seed of its own. Whose values are needed behind a step can be read off the storage, so an
actor needs nothing but the number of the step (`hts.roles.actor`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from hts.determinism.keys import Purpose, stems
from hts.determinism.settings import Change
from hts.errors import WorldFailed
from hts.memory.storage import Storage, as_declared
from hts.models.bounds import Taken
from hts.roles.rebuilding import Rebuilt, Snapshot, Snapshots
from hts_envs.contract import Array, BatchedStep, Observation
from hts_envs.errors import BrokenSimulator
from hts_envs.finite import NotFinite, not_finite
from hts_envs.randomness import extend, extend_int


@dataclass(frozen=True)
class Episode:
    """An episode that ended: whose it was, when, and what the world knows about it."""

    replica: int
    step: int
    facts: dict[str, float]

    def order(self) -> tuple[int, int]:
        """Episodes are told in the order of steps, then replicas."""
        return self.step, self.replica


@dataclass(frozen=True)
class Strayed:
    """A replica that does not come back: its episode and the step that first shows something else.

    Without a step it could not be tried, since its world has no seed for each episode.
    """

    replica: int
    episode: int
    step: int | None

    def __str__(self) -> str:
        why = (
            "its world has no seed for each episode, or goes on in the same game behind one"
            if self.step is None
            else f"after step {self.step} of episode {self.episode} it shows something else than "
            "before: the simulator is not deterministic (hts-check says more)"
        )
        return f"replica {self.replica} cannot be rebuilt: {why}"


BUILDING = "its construction"
"""The call of a simulator before which nothing has been computed."""


@dataclass(frozen=True)
class ChangedSetting:
    """A global setting that a call of one of these replicas' simulators changed; it is restored."""

    replicas: range
    call: str
    change: Change

    def sentence(self, environment: str) -> str:
        """Return who changed what, for the user."""
        first, last = self.replicas[0], self.replicas[-1]
        who = f"replica {first}" if first == last else f"one of replicas {first} to {last}"
        return self.change.by(f"{who} ({environment})", f"in {self.call}")


@dataclass(frozen=True)
class Left:
    """What simulators are brought back from.

    `trail` holds the actions of the latest steps, (replicas, steps, agents, ...), those of all
    running episodes among them, the last one being that of the step before; frames stand in the
    storage from the place `known` on.
    """

    trail: Array
    known: int = 0
    snapshots: Snapshots = field(default_factory=dict)


class Block(ABC):
    """Consecutive replicas whose simulators are stepped together."""

    def __init__(self, replicas: range, taken: Taken, seed: int) -> None:
        self.replicas = replicas
        self.seed = seed
        self.episodes: list[Episode] = []  # that ended, and were not reported yet
        self.strayed: list[Strayed] = []  # that did not come back, and were not reported yet
        self.changed: list[ChangedSetting] = []  # by its simulators, and not reported yet
        self.turn = -1  # steps that each replica has taken in the run; -1: none has begun
        self.episode = np.full(len(replicas), -1, np.int64)
        self.age = np.zeros(len(replicas), np.int64)
        self.slice = slice(replicas.start, replicas.stop)
        self._numbers = np.arange(replicas.start, replicas.stop)
        self._stems = np.zeros(len(replicas), np.uint64)
        self._taken = taken
        self._lost: list[int] = []  # rows whose episodes did not come back

    @abstractmethod
    def begin(self, storage: Storage) -> None:
        """The first observations of a run, in the first place of its first rollout."""

    @abstractmethod
    def step(self, storage: Storage, step: int) -> None:
        """Take the actions of this step, and show what they led to."""

    @abstractmethod
    def rebuild(self, storage: Storage, step: int, left: Left) -> Rebuilt:
        """Bring fresh simulators to where this block's replicas stand in a storage.

        What is seen on the way must be what stands there. Whose episode does not come back has
        strayed, and is cut short by the next step.
        """

    def snapshots(self) -> list[Snapshot]:
        """Of the replicas that can be brought back from one, and are far from their last one."""
        return []

    @abstractmethod
    def _reset(self, rows: Array) -> Observation:
        """Begin the episode of each of these rows; returns their observations."""

    @abstractmethod
    def _facts(self, result: BatchedStep, row: int) -> dict[str, float]:
        """What is known about the episode that ended in this row."""

    @abstractmethod
    def close(self) -> None:
        """Give back the simulators."""

    def take_over(self, storage: Storage, older: Storage) -> None:
        """Go on in this storage where the older one ended."""
        storage.take_over(older, self.slice)
        self.offer(storage, 0)

    def offer(self, storage: Storage, step: int) -> None:
        """The keys with which the actions of this step are to be drawn."""
        if len(self.replicas) == 1:  # the same, and five times as fast as an array of one
            stem, age = self._stems.item(), self.age.item()
            storage.key[self.replicas.start, step] = extend_int(stem, age)
        else:
            storage.key[self.slice, step] = extend(self._stems, self.age)

    def _began(self, storage: Storage) -> None:
        """Show the first observations of the run."""
        self.turn = 0
        storage.no_ends(self.slice, 0)
        everyone = np.arange(len(self.replicas))
        seen = self._begin(everyone)
        self._hold(everyone, seen, storage.frames(self.slice, 0))
        storage.write_frame(self.slice, 0, seen)
        storage.age[self.slice, 0] = 0
        storage.episode[self.slice, 0] = self.episode
        if storage.sizes.state:
            storage.state[self.slice, 0] = 0.0
        self.offer(storage, 0)

    def _took(self, storage: Storage, step: int, result: BatchedStep) -> None:
        """Show what the actions of this step have led to."""
        if self._lost:
            self._cut_short(storage, step, result)
        self._counts_one()
        ended = result.terminated | result.truncated
        if np.count_nonzero(ended):
            storage.terminated[self.slice, step] = result.terminated
            storage.truncated[self.slice, step] = result.truncated
            self._end(storage, step, result, np.flatnonzero(ended))
        self._show(storage, step, result.observation, result.reward)

    def _went_on(self, storage: Storage, step: int, seen: Observation, reward: Array) -> None:
        """The same, where no episode has ended and none is lost."""
        self._counts_one()
        self._show(storage, step, seen, reward)

    def _counts_one(self) -> None:
        self.turn += 1
        self.age += 1

    def _show(self, storage: Storage, step: int, seen: Observation, reward: Array) -> None:
        storage.reward[self.slice, step] = reward
        storage.write_frame(self.slice, step + 1, seen)
        storage.age[self.slice, step + 1] = self.age
        storage.episode[self.slice, step + 1] = self.episode
        if step + 1 < storage.sizes.steps:
            self.offer(storage, step + 1)

    def _end(self, storage: Storage, step: int, result: BatchedStep, ended: Array) -> None:
        """Report these rows' episodes, keep what truncations cut off, and begin the next ones."""
        observation = result.observation
        final = np.flatnonzero(result.truncated & ~result.terminated)
        if len(final):
            behind = {name: array[final] for name, array in observation.items()}
            storage.write_final(self._numbers[final], step, behind)
        for row in ended:
            if row not in self._lost:
                facts = self._facts(result, int(row))
                self.episodes.append(Episode(self.replicas[row], step, facts))
        self._lost = []
        begun = self._begin(ended)
        self._hold(ended, begun, observation)
        for name, array in begun.items():
            observation[name][ended] = array

    def _hold(self, rows: Array, seen: Observation, places: Observation) -> None:
        """Refuse a first observation of another shape than its place, or with a NaN or infinity."""
        try:
            for name, array in places.items():
                as_declared(name, seen[name], (len(rows), *array.shape[1:]))
        except BrokenSimulator as error:
            raise WorldFailed(self.replicas[int(rows[0])]) from error
        found = not_finite(seen)
        if found is not None:
            self._refuse(int(rows[found.row]), 0, found)

    def _refuse(self, row: int, step: int, found: NotFinite) -> NoReturn:
        """Fail as a simulator does that raises in this step of the row's episode."""
        replica = self.replicas[row]
        raise WorldFailed(replica) from found.error(replica, int(self.episode[row]), step)

    def _begin(self, rows: Array) -> Observation:
        self.episode[rows] += 1
        self.age[rows] = 0
        numbers, episodes = self._numbers[rows], self.episode[rows]
        self._stems[rows] = stems(self.seed, Purpose.ACTION, numbers, episodes)
        return self._reset(rows)

    def _stand(self, storage: Storage, step: int) -> None:
        """Be where these replicas stand in a storage."""
        self.episode[:] = storage.episode[self.slice, step]
        self.age[:] = storage.age[self.slice, step]
        storage.no_ends(self.slice, step)  # one that was written down may not come again
        self._stems[:] = stems(self.seed, Purpose.ACTION, self._numbers, self.episode)

    def _stray(self, steps: Mapping[int, int | None]) -> None:
        """These rows have not come back: the first step of each that is otherwise."""
        self._lost = sorted(steps)
        self.strayed += [
            Strayed(self.replicas[row], int(self.episode[row]), steps[row]) for row in self._lost
        ]

    def _cut_short(self, storage: Storage, step: int, result: BatchedStep) -> None:
        """The lost rows' episodes end here, in front of what they saw last."""
        place = storage.sizes.history + step
        for name, array in result.observation.items():
            array[self._lost] = storage.arrays[f"frames.{name}"][self._numbers[self._lost], place]
        result.reward[self._lost] = 0.0
        result.terminated[self._lost] = False
        result.truncated[self._lost] = True
