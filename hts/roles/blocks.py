"""Blocks: what an executor steps. One world is a block of one replica, a batched world of many.

A block takes the actions that stand in the storage, steps its simulator, and writes what came of
it: reward, ends, the next observation with its age and key. It resets what has ended, each
episode with a seed of its own, and says which values are needed where the rollout cannot say them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hts.determinism.keys import Purpose, episode_seed, episode_seeds, key, keys
from hts.memory.storage import Rows, Storage
from hts_envs.contract import Array, BatchedWorld, Box, Observation, Spaces, World


@dataclass(frozen=True)
class Episode:
    """An episode that ended: whose it was, when, and what the world knows about it."""

    replica: int
    step: int
    facts: dict[str, float]


@dataclass
class Needed:
    """What a block asks of an actor after a step."""

    final: list[Array]
    episodes: list[Episode]


class WorldBlock:
    """One world, one replica."""

    def __init__(self, world: World, replica: int, seed: int) -> None:
        self.world = world
        self.replica = replica
        self.seed = seed
        self.episode = -1
        self.age = 0
        self._bounds = _bounds(world.spaces)
        self._rows = np.array([replica])

    def begin(self, storage: Storage) -> None:
        """The first observation of a run, in the first place of its first rollout."""
        storage.write_frame(self.replica, 0, self._reset())
        storage.age[self.replica, 0] = 0

    def offer(self, storage: Storage, step: int) -> None:
        """The key with which the action of this step is to be drawn."""
        drawn = key(self.seed, Purpose.ACTION, self.replica, self.episode, self.age)
        storage.key[self.replica, step] = drawn

    def step(self, storage: Storage, step: int, needed: Needed) -> None:
        """Take the action of this step."""
        r = self.replica
        action = storage.action[r, step]
        result = self.world.step(np.clip(action, *self._bounds) if self._bounds else action.copy())
        storage.reward[r, step] = result.reward
        storage.terminated[r, step] = result.terminated
        storage.truncated[r, step] = result.truncated
        storage.bootstrap[r, step] = 0.0
        observation = result.observation
        if result.terminated or result.truncated:
            if not result.terminated:
                storage.write_final(self._rows, _batch(observation))
                needed.final.append(self._rows)
            needed.episodes.append(Episode(r, step, dict(result.facts)))
            observation = self._reset()
        else:
            self.age += 1
        storage.write_frame(r, step + 1, observation)
        storage.age[r, step + 1] = self.age

    def _reset(self) -> Observation:
        self.episode += 1
        self.age = 0
        return self.world.reset(episode_seed(self.seed, self.replica, self.episode))

    def close(self) -> None:
        self.world.close()


class BatchedBlock:
    """A batched world: replicas `first` and following, stepped in one call."""

    def __init__(self, world: BatchedWorld, first: int, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.replicas = np.arange(first, first + world.replicas)
        self.slice = slice(first, first + world.replicas)
        self.episode = np.full(world.replicas, -1, np.int64)
        self.age = np.zeros(world.replicas, np.int64)
        self._bounds = _bounds(world.spaces)

    def begin(self, storage: Storage) -> None:
        """The first observations of a run, in the first place of its first rollout."""
        rows = np.arange(self.world.replicas)
        storage.write_frame(self.slice, 0, self._reset(rows))
        storage.age[self.slice, 0] = 0

    def offer(self, storage: Storage, step: int) -> None:
        """The keys with which the actions of this step are to be drawn."""
        drawn = keys(self.seed, Purpose.ACTION, self.replicas, self.episode, self.age)
        storage.key[self.slice, step] = drawn

    def step(self, storage: Storage, step: int, needed: Needed) -> None:
        """Take the actions of this step."""
        action = storage.action[self.slice, step]
        result = self.world.step(np.clip(action, *self._bounds) if self._bounds else action.copy())
        storage.reward[self.slice, step] = result.reward
        storage.terminated[self.slice, step] = result.terminated
        storage.truncated[self.slice, step] = result.truncated
        storage.bootstrap[self.slice, step] = 0.0
        observation = result.observation
        ended = result.terminated | result.truncated
        self.age += 1
        if ended.any():
            final = np.flatnonzero(result.truncated & ~result.terminated)
            if len(final):
                rows = self.replicas[final]
                storage.write_final(rows, {n: a[final] for n, a in observation.items()})
                needed.final.append(rows)
            rows = np.flatnonzero(ended)
            for row in rows:
                facts = {name: float(array[row]) for name, array in result.facts.items()}
                needed.episodes.append(Episode(int(self.replicas[row]), step, facts))
            for name, array in self._reset(rows).items():
                observation[name][rows] = array
        storage.write_frame(self.slice, step + 1, observation)
        storage.age[self.slice, step + 1] = self.age

    def _reset(self, rows: Array) -> Observation:
        self.episode[rows] += 1
        self.age[rows] = 0
        seeds = episode_seeds(self.seed, self.replicas[rows], self.episode[rows])
        return self.world.reset(rows, seeds)

    def close(self) -> None:
        self.world.close()


Block = WorldBlock | BatchedBlock


def next_rows(
    storage: Storage, step: int, replicas: Array, finals: list[Array]
) -> tuple[Rows | None, Rows | None]:
    """Whose values are needed behind `step`: of final observations, and behind a rollout's end."""
    final = None
    if finals:
        ended = np.sort(np.concatenate(finals))
        final = Rows(ended, np.full(len(ended), step), final=True)
    if step + 1 < storage.sizes.steps:
        return final, None
    over = storage.terminated[replicas, step] | storage.truncated[replicas, step]
    going_on = replicas[~over]
    return final, Rows(going_on, np.full(len(going_on), step + 1)) if len(going_on) else None


def _bounds(spaces: Spaces) -> tuple[Any, Any] | None:
    """The bounds of a continuous action: what was drawn is stored, what is done lies within."""
    if not isinstance(spaces.action, Box):
        return None
    return np.asarray(spaces.action.low, np.float32), np.asarray(spaces.action.high, np.float32)


def _batch(observation: Observation) -> Observation:
    return {name: array[None] for name, array in observation.items()}
