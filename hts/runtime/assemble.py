"""The parts that every runner is put together from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hts.config import Experiment
from hts.determinism.digest import Digest, Link
from hts.determinism.invariance import Strategy, probe
from hts.determinism.keys import Purpose, key
from hts.errors import BadConfig
from hts.learn.normalise import ObservationScale
from hts.machine import Sizes
from hts.memory.storage import Storage
from hts.memory.versions import Version
from hts.models.fit import misfits
from hts.models.policy import Policy, initial_parameters
from hts.models.spaces import stacked
from hts.roles.actor import Actor
from hts.roles.blocks import BatchedBlock, Block, Episode, WorldBlock
from hts.roles.executor import Executor
from hts.runtime.jitter import Jitter
from hts_envs.contract import SEED_LIMIT, BatchedWorld, Box, Place, Spaces
from hts_envs.registry import Spec, make


@dataclass(frozen=True)
class Updated:
    """What one update did, for people and for the record."""

    link: Link
    told: dict[str, float]
    episodes: list[Episode]
    replicas: list[bytes]  # the hash of each replica's part of the rollout


Watch = Callable[[int, Storage], None]
"""Called with each rollout when it is complete, before anything is learnt from it."""


def look_away(rollout: int, storage: Storage) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Plan:
    """What is known before a run begins: everything that its roles agree on."""

    experiment: Experiment
    spaces: Spaces
    device: str
    jitter: float = 0.0
    watch: Watch = look_away

    @property
    def sizes(self) -> Sizes:
        return Sizes.of(self.experiment, self.spaces)

    def policy(self) -> Policy:
        return Policy(self.experiment, self.spaces, self.device)

    def strategy(self) -> Strategy:
        """How observations may be batched, found out with the network as it begins."""
        policy = self.policy()
        initial_parameters(policy, self.experiment.seed)
        return probe(policy, stacked(self.spaces, self.experiment.frame_stack))

    def first_versions(self) -> list[Version]:
        """What is there before anything is learnt: versions 0 and 1 are the same parameters."""
        alive = (0, 1) if self.experiment.schedule == "hts" else (0,)
        first = initial_parameters(self.policy(), self.experiment.seed)
        return [Version(number, first, self.scale()) for number in alive]

    def digest(self) -> Digest:
        return Digest(self.experiment.identity())

    def scale(self) -> ObservationScale:
        """The statistics before any data: one entry for each field that is normalised."""
        if not self.experiment.normalise_observations:
            return ObservationScale()
        return ObservationScale.of(
            {
                name: space.shape
                for name, space in self.spaces.observation.items()
                if isinstance(space, Box) and space.dtype.startswith("float")
            }
        )


def plan(experiment: Experiment, spec: Spec, device: str, jitter: float = 0.0) -> Plan:
    """Look at one world, and refuse a model that cannot see it."""
    world = make(spec, Place(0, 1, experiment.seed))
    spaces = world.spaces
    world.close()
    problems = misfits(experiment, spaces)
    if problems:
        raise BadConfig(problems)
    return Plan(experiment, spaces, device, jitter)


def make_executor(
    found: Plan,
    spec: Spec,
    replicas: range,
    strategy: Strategy,
    storages: tuple[Storage, Storage],
) -> Executor:
    """An executor for these replicas, with worlds and a network of its own."""
    actor = Actor(found.policy(), strategy.padding, found.experiment.replicas)
    blocks = _blocks(spec, replicas, found.experiment.seed)
    pause = Jitter(found.jitter, f"executor of {replicas}")
    return Executor(replicas, blocks, actor, storages, pause)


def _blocks(spec: Spec, replicas: range, seed: int) -> list[Block]:
    """One batched world for all of these replicas, or one world for each."""
    if spec.batched:
        world = make(spec, Place(replicas.start, len(replicas), seed))
        assert isinstance(world, BatchedWorld), f"{spec.canonical()} said it was batched"
        return [BatchedBlock(world, replicas.start, seed)]
    blocks: list[Block] = []
    for replica in replicas:
        built_with = key(seed, Purpose.BUILD, replica) % SEED_LIMIT
        world = make(spec, Place(replica, 1, built_with))
        assert not isinstance(world, BatchedWorld), f"{spec.canonical()} said it was single"
        blocks.append(WorldBlock(world, replica, seed))
    return blocks
