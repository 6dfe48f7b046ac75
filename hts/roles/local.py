"""Blocks whose simulators are in this process: single worlds in turn, or a batched one."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from hts.determinism import settings
from hts.determinism.keys import episode_seed, episode_seeds
from hts.errors import WorldFailed
from hts.memory.storage import Storage, as_declared
from hts.models.bounds import Taken
from hts.roles.blocks import Block, ChangedSetting, Left
from hts.roles.rebuilding import APART, Rebuilt, Record, Snapshot, Snapshots, latest
from hts_envs.contract import Array, BatchedStep, BatchedWorld, Observation, Step, Traits, World
from hts_envs.finite import not_finite


class LocalBlock(Block):
    """A block whose simulators are in this process: each step is over when it returns.

    What a simulator's call has changed of the settings that reach arithmetic is restored before
    anything else computes here.
    """

    _have_changed_settings = False  # its simulators, in any call so far

    def begin(self, storage: Storage) -> None:
        self._began(storage)

    def step(self, storage: Storage, step: int) -> None:
        action = self._taken(storage.action[self.slice, step])
        result = self._step(action, storage.frames(self.slice, step + 1))
        found = not_finite(result.observation, result.reward)
        if found is not None:
            self._refuse(found.row, int(self.age[found.row]) + 1, found)
        self._took(storage, step, result)

    def rebuild(self, storage: Storage, step: int, left: Left) -> Rebuilt:
        self._stand(storage, step)
        trail = left.trail
        assert trail.shape[1] >= self.age.max(), "every action of the running episodes is there"
        record = Record(storage, step, left.known, self.replicas.start, self.age)
        steps: Mapping[int, int | None] = dict.fromkeys(range(len(self.replicas)))
        rebuilt = Rebuilt()
        if self.traits.reseeds:
            rebuilt = self._replay(self._taken(trail), record, left.snapshots)
            steps = record.strayed
        self._stray(steps)
        if self._lost:
            self._reset(np.array(self._lost))
        return rebuilt

    @contextmanager
    def _rebuilding(self, row: int, step: int) -> Iterator[None]:
        """Say of what raises in here that it did so in this step of a rebuild; 0 is the reset."""
        replica = self.replicas[row]
        try:
            yield
        except Exception as error:
            cause = error.__cause__ if isinstance(error, WorldFailed) else error
            place = f"step {step}" if step else "the reset"
            episode = f"episode {self.episode[row]} of replica {replica}"
            raise WorldFailed(replica, rebuilding=f"{place} of {episode}") from cause

    def _restore_settings(self, replicas: range, call: str) -> None:
        """Undo and note what simulators of these replicas have changed in this call."""
        if not settings.are_kept():
            self._have_changed_settings = True
            self.changed += [ChangedSetting(replicas, call, each) for each in settings.restore()]

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """What may be relied on in its simulators."""

    @abstractmethod
    def _replay(self, trail: Array, record: Record, snapshots: Snapshots) -> Rebuilt:
        """Take the last `age` actions of each row's trail from its episode's begin on, or those
        behind a snapshot."""

    @abstractmethod
    def _step(self, action: Array, frames: Observation) -> BatchedStep:
        """One step of every simulator. What is seen may stand in `frames` already, where it
        belongs; the other arrays are the caller's until the next one."""


class WorldsBlock(LocalBlock):
    """Single worlds, stepped one after the other."""

    def __init__(self, worlds: Sequence[World], replicas: range, taken: Taken, seed: int) -> None:
        super().__init__(replicas, taken, seed)
        assert len(worlds) == len(replicas), "one world for each replica"
        self.worlds = worlds
        self._known: Sequence[Mapping[str, float]] = ()
        self._snapped: dict[int, tuple[int, int]] = {}  # by row: episode and age of the last one
        # Whether settings are restored after each world's step, so that no world computes with
        # what another one has set, or once for all, which costs next to nothing. The first step
        # shows which.
        self._one_by_one = True

    def _reset(self, rows: Array) -> Observation:
        seen = []
        for row in rows:
            seed = episode_seed(self.seed, self.replicas[row], int(self.episode[row]))
            try:
                seen.append(self.worlds[row].reset(seed))
            except Exception as error:
                raise WorldFailed(self.replicas[row]) from error
            self._restore_settings(self.replicas[row : row + 1], "reset")
        return {name: np.stack([each[name] for each in seen]) for name in seen[0]}

    @property
    def traits(self) -> Traits:
        return self.worlds[0].traits

    def snapshots(self) -> list[Snapshot]:
        if not (self.traits.snapshots and self.traits.reseeds):
            return []  # who cannot be rebuilt is not
        taken = []
        for row in np.flatnonzero(self.age >= APART).tolist():
            episode, age = int(self.episode[row]), int(self.age[row])
            last, behind = self._snapped.get(row, (-1, 0))
            if last != episode or age - behind >= APART:
                self._snapped[row] = episode, age
                state = self.worlds[row].snapshot()
                taken.append(Snapshot(self.replicas[row], episode, age, state))
        return taken

    def _replay(self, trail: Array, record: Record, snapshots: Snapshots) -> Rebuilt:
        rebuilt = Rebuilt()
        for row, replica in enumerate(self.replicas):
            episode, age = int(self.episode[row]), int(self.age[row])
            snapshot = latest(snapshots.get(replica, ()), episode, age)
            if snapshot is not None and self._restored(row, snapshot, trail, record):
                rebuilt += Rebuilt(snapshots=1, steps=age - snapshot.age)
                continue
            self._bring_back(row, None, trail, record)
            rebuilt += Rebuilt(begins=1, steps=age)
        return rebuilt

    def _restored(self, row: int, snapshot: Snapshot, trail: Array, record: Record) -> bool:
        """Restore this row; False if it raises or shows something else, and must begin again."""
        held = dataclasses.replace(record, strayed={})
        try:
            self._bring_back(row, snapshot, trail, held)
        except WorldFailed:
            return False
        return not held.strayed

    def _bring_back(self, row: int, snapshot: Snapshot | None, trail: Array, held: Record) -> None:
        world, alone, age = self.worlds[row], np.array([row]), int(self.age[row])
        begin = 0 if snapshot is None else snapshot.age
        with self._rebuilding(row, begin):
            seen = self._reset(alone) if snapshot is None else _alone(world.restore(snapshot.state))
            held.hold(alone, age - begin, seen)
        actions = trail[row, trail.shape[1] - (age - begin) :].copy()
        for step, action in enumerate(actions, begin + 1):
            with self._rebuilding(row, step):
                held.hold(alone, age - step, _alone(world.step(action).observation))
        self._restore_settings(self.replicas[row : row + 1], "step")

    def _step(self, action: Array, frames: Observation) -> BatchedStep:
        # Copied once: what a world keeps of its action is not changed by the next ones.
        results: list[Step] = []
        try:
            for world, each in zip(self.worlds, action.copy(), strict=True):
                # One by one: their number says who raised.
                results.append(_as_declared(world.step(each), frames, 1))
                if self._one_by_one:
                    row = len(results) - 1
                    self._restore_settings(self.replicas[row : row + 1], "step")
        except Exception as error:
            raise WorldFailed(self.replicas[len(results)]) from error
        if not self._one_by_one:
            self._restore_settings(self.replicas, "step")
        self._one_by_one = self._have_changed_settings
        seen, rewards, terminated, truncated, self._known = zip(*results, strict=True)
        for name, array in frames.items():
            for row, each in enumerate(seen):
                array[row] = each[name]
        reward = np.concatenate(rewards).reshape(len(rewards), -1)
        return BatchedStep(frames, reward, np.array(terminated), np.array(truncated), {})

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
            seen = self.world.reset(rows, seeds)
        except Exception as error:
            raise WorldFailed(self.replicas.start) from error
        self._restore_settings(self.replicas, "reset")
        return seen

    @property
    def traits(self) -> Traits:
        return self.world.traits

    def _replay(self, trail: Array, record: Record, _: Snapshots) -> Rebuilt:
        """Take all rows in one call, aligned at their ends: a row whose turn has not come plays on
        in an episode that is thrown away."""
        eldest = int(np.argmax(self.age))
        longest = int(self.age[eldest])
        with self._rebuilding(eldest, 0):
            self._reset(np.arange(self.world.replicas))
        for left in range(longest, -1, -1):
            starts = np.flatnonzero(self.age == left)
            if len(starts):
                with self._rebuilding(int(starts[0]), 0):
                    record.hold(starts, left, self._reset(starts))
            if left:
                with self._rebuilding(eldest, longest - left + 1):
                    self._again(trail[:, trail.shape[1] - left].copy(), left, record)
        return Rebuilt(begins=len(self.replicas), steps=int(self.age.sum()))

    def _again(self, action: Array, left: int, record: Record) -> None:
        """Take the first one of so many actions that are left, and compare what is seen then."""
        result = self.world.step(action)
        self._restore_settings(self.replicas, "step")
        rows = np.flatnonzero(self.age >= left)
        seen = {name: array[rows] for name, array in result.observation.items()}
        record.hold(rows, left - 1, seen)
        over = np.flatnonzero((result.terminated | result.truncated) & (self.age < left))
        if len(over):
            self._reset(over)

    def _step(self, action: Array, frames: Observation) -> BatchedStep:
        try:
            result = _as_declared(self.world.step(action.copy()), frames, 0)
        except Exception as error:
            raise WorldFailed(self.replicas.start) from error
        self._restore_settings(self.replicas, "step")
        return result

    def _facts(self, result: BatchedStep, row: int) -> dict[str, float]:
        return {name: float(array[row]) for name, array in result.facts.items()}

    def close(self) -> None:
        self.world.close()


_Stepped = TypeVar("_Stepped", Step, BatchedStep)


def _as_declared(step: _Stepped, frames: Observation, first: int) -> _Stepped:
    """What a world shows and rewards, of the shape of its places from this axis on: 1 where it is
    one replica's, 0 where it is that of all."""
    for name, array in frames.items():
        as_declared(name, step.observation[name], array.shape[first:])
        as_declared("reward", step.reward, array.shape[first:2])
    return step


def _alone(seen: Observation) -> Observation:
    """An observation of one replica, as one of several."""
    return {name: array[None] for name, array in seen.items()}
