"""Blocks: what an executor steps at once, and what advances by itself.

A block takes the actions that stand in the storage, steps its simulators, and writes what came of
it: reward, ends, the next observation with its age and key. It resets what has ended, each episode
with a seed of its own. Whose values are needed behind a step can be read off the storage, so an
actor needs nothing but the number of the step (`hts.roles.actor`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hts.determinism.keys import Purpose, episode_seed, episode_seeds, stems
from hts.errors import WorldFailed
from hts.memory.storage import Storage
from hts.models.bounds import Taken
from hts_envs.contract import Array, BatchedStep, BatchedWorld, Observation, Step, Traits, World
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


class Record:
    """What stands in a storage, for rebuilt rows to be held to."""

    def __init__(self, block: Block, storage: Storage, step: int, known: int) -> None:
        self.strayed: dict[int, int] = {}  # by row: the first step that is otherwise
        self._block = block
        self._storage = storage
        self._step = step
        self._known = known

    def hold(self, rows: Array, left: int, seen: Observation) -> None:
        """These rows see this, with so many actions left to take."""
        place = self._storage.sizes.history + self._step - left
        if place < self._known:
            return  # older than what the storage holds
        first = self._block.replicas.start
        for name in self._storage.fields:
            recorded = self._storage.arrays[f"frames.{name}"][first + rows, place]
            shown = seen[name].astype(recorded.dtype, copy=False)  # as it is written there
            for row in rows[(_bytes(shown) != _bytes(recorded)).any(1)]:
                self.stray(int(row), left)

    def stray(self, row: int, left: int) -> None:
        """This row is not what it was, with so many actions left to take."""
        self.strayed.setdefault(row, int(self._block.age[row]) - left)


def _bytes(array: Array) -> Array:
    """Row by row what is in memory: a NaN equals itself."""
    flat = np.ascontiguousarray(array).reshape(len(array), -1)
    return np.asarray(flat.view(np.uint8))


class Block(ABC):
    """Consecutive replicas whose simulators are stepped together."""

    def __init__(self, replicas: range, taken: Taken, seed: int) -> None:
        self.replicas = replicas
        self.seed = seed
        self.episodes: list[Episode] = []  # that ended, and were not reported yet
        self.strayed: list[Strayed] = []  # that did not come back, and were not reported yet
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
    def rebuild(self, storage: Storage, step: int, trail: Array, known: int = 0) -> None:
        """Bring fresh simulators to where this block's replicas stand in a storage.

        Every running episode is begun again and its recorded actions are taken again; `trail`
        holds those of the latest steps, (replicas, steps, agents, ...), the last one being that of
        `step` - 1. What is seen on the way must be what stands in the storage, from the place
        `known` on. Whose episode does not come back has strayed, and is cut short by the next step.
        """

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
        if len(self._stems) == 1:  # the same, and five times as fast as an array of one
            stem, age = self._stems.item(), self.age.item()
            storage.key[self.slice.start, step] = extend_int(stem, age)
        else:
            storage.key[self.slice, step] = extend(self._stems, self.age)

    def _began(self, storage: Storage) -> None:
        """Show the first observations of the run."""
        self.turn = 0
        everyone = np.arange(len(self.replicas))
        storage.write_frame(self.slice, 0, self._begin(everyone))
        storage.age[self.slice, 0] = 0
        storage.episode[self.slice, 0] = self.episode
        if storage.sizes.state:
            storage.state[self.slice, 0] = 0.0
        self.offer(storage, 0)

    def _took(self, storage: Storage, step: int, result: BatchedStep) -> None:
        """Show what the actions of this step have led to."""
        mine = self.slice
        self.turn += 1
        if self._lost:
            self._cut_short(storage, step, result)
        storage.reward[mine, step] = result.reward
        storage.terminated[mine, step] = result.terminated
        storage.truncated[mine, step] = result.truncated
        storage.bootstrap[mine, step] = 0.0
        self.age += 1
        ended = result.terminated | result.truncated
        if np.count_nonzero(ended):
            self._end(storage, step, result, np.flatnonzero(ended))
        storage.write_frame(mine, step + 1, result.observation)
        storage.age[mine, step + 1] = self.age
        storage.episode[mine, step + 1] = self.episode
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
        for name, array in self._begin(ended).items():
            observation[name][ended] = array

    def _begin(self, rows: Array) -> Observation:
        self.episode[rows] += 1
        self.age[rows] = 0
        numbers, episodes = self._numbers[rows], self.episode[rows]
        self._stems[rows] = stems(self.seed, Purpose.ACTION, numbers, episodes)
        return self._reset(rows)

    def _stand(self, storage: Storage, step: int) -> None:
        """Be where these replicas stand in a storage."""
        mine = self.slice
        self.episode[:] = storage.episode[mine, step]
        self.age[:] = storage.age[mine, step]
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


class LocalBlock(Block):
    """A block whose simulators are in this process: each step is over when it returns."""

    def begin(self, storage: Storage) -> None:
        self._began(storage)

    def step(self, storage: Storage, step: int) -> None:
        self._took(storage, step, self._step(self._taken(storage.action[self.slice, step])))

    def rebuild(self, storage: Storage, step: int, trail: Array, known: int = 0) -> None:
        self._stand(storage, step)
        assert trail.shape[1] >= self.age.max(), "every action of the running episodes is there"
        record = Record(self, storage, step, known)
        steps: Mapping[int, int | None] = dict.fromkeys(range(len(self.replicas)))
        if self.traits.reseeds:
            self._replay(self._taken(trail), record)
            steps = record.strayed
        self._stray(steps)
        if self._lost:
            self._reset(np.array(self._lost))

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """What may be relied on in its simulators."""

    @abstractmethod
    def _replay(self, trail: Array, record: Record) -> None:
        """Take the last `age` actions of each row's trail from its episode's begin on."""

    @abstractmethod
    def _step(self, action: Array) -> BatchedStep:
        """One step of every simulator; the arrays are the caller's until the next one."""


class WorldsBlock(LocalBlock):
    """Single worlds, stepped one after the other."""

    def __init__(self, worlds: Sequence[World], replicas: range, taken: Taken, seed: int) -> None:
        super().__init__(replicas, taken, seed)
        assert len(worlds) == len(replicas), "one world for each replica"
        self.worlds = worlds
        self._seen = {
            name: np.zeros((len(worlds), worlds[0].spaces.agents, *space.shape), space.dtype)
            for name, space in worlds[0].spaces.observation.items()
        }
        self._known: Sequence[Mapping[str, float]] = ()

    def _reset(self, rows: Array) -> Observation:
        seen = []
        for row in rows:
            seed = episode_seed(self.seed, self.replicas[row], int(self.episode[row]))
            try:
                seen.append(self.worlds[row].reset(seed))
            except Exception as error:
                raise WorldFailed(self.replicas[row]) from error
        return {name: np.stack([each[name] for each in seen]) for name in seen[0]}

    @property
    def traits(self) -> Traits:
        return self.worlds[0].traits

    def _replay(self, trail: Array, record: Record) -> None:
        for row, world in enumerate(self.worlds):
            alone, left = np.array([row]), int(self.age[row])
            try:
                record.hold(alone, left, self._reset(alone))
                for action in trail[row, trail.shape[1] - left :].copy():
                    seen, left = world.step(action).observation, left - 1
                    record.hold(alone, left, {name: array[None] for name, array in seen.items()})
            except Exception:  # where it did not raise before
                record.stray(row, left)

    def _step(self, action: Array) -> BatchedStep:
        # Copied once: what a world keeps of its action is not changed by the next ones.
        results: list[Step] = []
        try:
            for world, each in zip(self.worlds, action.copy(), strict=True):
                results.append(world.step(each))  # one by one: their number says who raised
        except Exception as error:
            raise WorldFailed(self.replicas[len(results)]) from error
        seen, rewards, terminated, truncated, self._known = zip(*results, strict=True)
        for name, array in self._seen.items():
            np.stack([each[name] for each in seen], out=array)
        return BatchedStep(
            self._seen, np.stack(rewards), np.array(terminated), np.array(truncated), {}
        )

    def _facts(self, result: BatchedStep, row: int) -> dict[str, float]:
        return dict(self._known[row])

    def close(self) -> None:
        for world in self.worlds:
            world.close()


class BatchedBlock(LocalBlock):
    """A batched world: all its replicas in one call."""

    def __init__(self, world: BatchedWorld, replicas: range, taken: Taken, seed: int) -> None:
        super().__init__(replicas, taken, seed)
        assert world.replicas == len(replicas), "the world holds the block's replicas"
        self.world = world

    def _reset(self, rows: Array) -> Observation:
        seeds = episode_seeds(self.seed, self._numbers[rows], self.episode[rows])
        try:
            return self.world.reset(rows, seeds)
        except Exception as error:
            raise WorldFailed(self.replicas.start) from error

    @property
    def traits(self) -> Traits:
        return self.world.traits

    def _replay(self, trail: Array, record: Record) -> None:
        """All rows in one call, aligned at their ends: a row whose turn has not come plays on in an
        episode that is thrown away."""
        self._reset(np.arange(self.world.replicas))
        for left in range(int(self.age.max()), -1, -1):
            starts = np.flatnonzero(self.age == left)
            if len(starts):
                record.hold(starts, left, self._reset(starts))
            if not left:
                return
            result = self.world.step(trail[:, trail.shape[1] - left].copy())
            rows = np.flatnonzero(self.age >= left)
            seen = {name: array[rows] for name, array in result.observation.items()}
            record.hold(rows, left - 1, seen)
            over = np.flatnonzero((result.terminated | result.truncated) & (self.age < left))
            if len(over):
                self._reset(over)

    def _step(self, action: Array) -> BatchedStep:
        try:
            return self.world.step(action.copy())
        except Exception as error:
            raise WorldFailed(self.replicas.start) from error

    def _facts(self, result: BatchedStep, row: int) -> dict[str, float]:
        return {name: float(array[row]) for name, array in result.facts.items()}

    def close(self) -> None:
        self.world.close()
