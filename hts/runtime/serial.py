"""The serial runner: every role in one process, in a fixed order.

It is the reference that every other arrangement of the same roles must equal, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hts.config import Experiment
from hts.determinism.digest import Digest, Link, rollout_digest
from hts.determinism.invariance import Strategy, probe
from hts.errors import BadConfig
from hts.learn.normalise import ObservationScale
from hts.machine import Sizes
from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.models.fit import misfits
from hts.models.policy import Policy, initial_parameters
from hts.models.spaces import stacked
from hts.roles.actor import Actor
from hts.roles.blocks import BatchedBlock, Block, Episode, Needed, WorldBlock, next_rows
from hts.roles.learner import Learner
from hts_envs.contract import BatchedWorld, Box, Place, Spaces
from hts_envs.registry import Spec, make


@dataclass(frozen=True)
class Updated:
    """What one update did, for people and for the record."""

    link: Link
    told: dict[str, float]
    episodes: list[Episode]


class SerialRun:
    """One run, from its first observation to its last update."""

    def __init__(self, experiment: Experiment, spec: Spec, device: str = "cpu") -> None:
        self.experiment = experiment
        self.blocks = build_blocks(spec, range(experiment.replicas), experiment.seed)
        spaces = self.blocks[0].world.spaces
        problems = misfits(experiment, spaces)
        if problems:
            self.close()
            raise BadConfig(problems)
        sizes = Sizes.of(experiment, spaces)
        self.storages = (Storage(sizes, spaces), Storage(sizes, spaces))
        acting = Policy(experiment, spaces, device)
        self.strategy: Strategy = probe(acting, stacked(spaces, experiment.frame_stack))
        self.actor = Actor(acting, self.strategy.padding or experiment.replicas)
        self.learner = Learner(experiment, Policy(experiment, spaces, device))
        first = initial_parameters(acting, experiment.seed)
        # Nothing is learnt before rollout 1 begins: versions 0 and 1 are the same parameters.
        alive = (0, 1) if experiment.schedule == "hts" else (0,)
        self.versions = [Version(number, first, _scale(experiment, spaces)) for number in alive]
        self.digest = Digest(experiment.identity())

    def __iter__(self) -> Iterator[Updated]:
        """Rollout after rollout, each with the version that the schedule names."""
        for block in self.blocks:
            block.begin(self.storages[0])
        for rollout in range(self.experiment.updates):
            behaviour, newest = self.versions[0], self.versions[-1]
            storage = self.storages[rollout % 2]
            storage.version = behaviour.number
            if rollout:
                storage.take_over(self.storages[(rollout - 1) % 2], slice(None))
            episodes = self._fill(storage, behaviour)
            made, told = self.learner.update(storage, behaviour, newest, rollout)
            parameters = made.parameters.numpy().tobytes()
            link = self.digest.fold(rollout_digest(storage), parameters)
            self.versions = [*self.versions[1:], made]
            yield Updated(link, told, episodes)

    def _fill(self, storage: Storage, version: Version) -> list[Episode]:
        everyone = np.arange(self.experiment.replicas)
        episodes: list[Episode] = []
        for step in range(self.experiment.rollout):
            for block in self.blocks:
                block.offer(storage, step)
            self.actor.act(storage, Rows(everyone, np.full(len(everyone), step)), version)
            needed = Needed([], episodes)
            for block in self.blocks:
                block.step(storage, step, needed)
            for rows in next_rows(storage, step, needed.final):
                if rows is not None:
                    self.actor.value(storage, rows, version)
        return episodes

    def close(self) -> None:
        for block in self.blocks:
            block.close()


def build_blocks(spec: Spec, replicas: range, seed: int) -> list[Block]:
    """The blocks for these replicas: one batched world for all, or one world for each."""
    if spec.batched:
        world = make(spec, Place(replicas.start, len(replicas), seed))
        assert isinstance(world, BatchedWorld), f"{spec.canonical()} said it was batched"
        return [BatchedBlock(world, replicas.start, seed)]
    blocks: list[Block] = []
    for replica in replicas:
        world = make(spec, Place(replica, 1, seed))
        assert not isinstance(world, BatchedWorld), f"{spec.canonical()} said it was single"
        blocks.append(WorldBlock(world, replica, seed))
    return blocks


def _scale(experiment: Experiment, spaces: Spaces) -> ObservationScale:
    if not experiment.normalise_observations:
        return ObservationScale()
    seen = stacked(spaces, experiment.frame_stack)
    return ObservationScale.of(
        {
            name: space.shape
            for name, space in seen.items()
            if isinstance(space, Box) and space.dtype.startswith("float")
        }
    )
