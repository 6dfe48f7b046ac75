"""What every runner is put together from: the plan of a run, and its first versions."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from hts.config import Experiment, Machine
from hts.config.lineage import identities
from hts.determinism import numerics, settings
from hts.determinism.digest import Digest, Link
from hts.determinism.divergence import Keep
from hts.determinism.invariance import probe
from hts.determinism.strategy import Strategy
from hts.errors import BadConfig
from hts.learn.normalise import ObservationScale
from hts.machine import Sizes, normalised, storage_arrays
from hts.memory.arena import bytes_of
from hts.memory.room import available
from hts.memory.versions import Version
from hts.models.fit import misfits
from hts.models.network import Network
from hts.models.outline import outline
from hts.models.policy import Policy, initial_parameters
from hts.models.spaces import stacked
from hts.report.policies import Policies
from hts.report.start import Start, require_start
from hts.roles.blocks import Episode
from hts.runtime.crew import crew_for
from hts.runtime.learners import tables
from hts.runtime.preview import Look, look_here
from hts.runtime.shared import Blueprint, Roles
from hts_envs.contract import Spaces
from hts_envs.registry import Spec

_COPIES = 8
"""Copies of the parameters in memory: three versions, the networks of one actor and of the learner,
the gradient, and two moments of the optimiser."""


@dataclass(frozen=True)
class Updated:
    """What one update did, for people and for the record."""

    link: Link
    told: dict[str, float]
    episodes: list[Episode]
    replicas: list[bytes]  # the hash of each replica's part of the rollout
    policies: list[int] = field(default_factory=list)  # those that are on the disk since the last


@dataclass(frozen=True)
class Plan:
    """What is known before a run begins: everything that its roles agree on."""

    experiment: Experiment
    spaces: Spaces
    device: str
    jitter: float = 0.0
    keep: Keep | None = None
    roles: Roles = Roles()
    cases: Path | None = None  # where simulators that fail are written down
    policies: Policies | None = None  # which versions are written down, and where
    world: str = ""  # how its world is played, where that says it
    comes_back: bool = True  # simulators can be led to where others of its world stood
    start: Start | None = None  # what another run has made of the parameters; None: the seed's

    def policy(self, *, packs: bool = False) -> Policy:
        return Policy(self.experiment, self.spaces, self.device, packs=packs)

    def strategy(self) -> Strategy:
        """How observations may be batched, found out with the network as it begins."""
        settings.check()
        policy = self.policy()
        initial_parameters(policy, self.experiment.seed)
        return probe(policy, stacked(self.spaces, self.experiment.frame_stack))

    def first_versions(self) -> list[Version]:
        """What is there before anything is learnt: versions 0 and 1 are the same parameters."""
        alive = (0, 1) if self.experiment.schedule == "hts" else (0,)
        require_start(self.experiment, self.start)
        if self.start is not None:
            return [Version.of(number, self.start.arrays) for number in alive]
        first = initial_parameters(self.policy(), self.experiment.seed)
        return [Version(number, first, self.scale()) for number in alive]

    def outline(self) -> dict[str, str]:
        """Return what the network looks like from outside."""
        return outline(self.experiment, self.policy(), normalised(self.experiment, self.spaces))

    def digest(self) -> Digest:
        return Digest(identities(self.experiment))

    def scale(self) -> ObservationScale:
        """The statistics before any data: one entry for each field that is normalised."""
        return ObservationScale.of(normalised(self.experiment, self.spaces))

    def blueprint(self, machine: Machine) -> Blueprint:
        """What the processes of a run on this machine share."""
        policy = self.policy()
        found = tables(self.experiment, self.spaces, policy)
        return Blueprint(
            Sizes.of(self.experiment, self.spaces),
            self.spaces,
            policy.size,
            normalised(self.experiment, self.spaces),
            found.kept,
            crew_for(self.experiment, machine),
            found.beside,
            found.replay,
        )


def plan(
    experiment: Experiment,
    spec: Spec,
    device: str,
    jitter: float = 0.0,
    look: Look | None = None,
    *,
    start: Start | None = None,
) -> Plan:
    """Refuse a model that does not fit the environment, and weights of another network; without a
    look at the environment, take one here."""
    if look is None:
        look = look_here(spec, experiment.seed)
        numerics.settle()
    problems = misfits(experiment, look.spaces)
    if problems:
        raise BadConfig(problems)
    made = Plan(
        experiment,
        look.spaces,
        device,
        jitter,
        world=look.description,
        comes_back=look.reseeds,
        start=start,
    )
    if start is not None:
        start.check(made.outline(), experiment.env)
    return made


def shortage(experiment: Experiment, spaces: Spaces) -> str | None:
    """Return why a run with these spaces does not fit into memory; None if it may fit.

    Counted are both storages and the copies of the parameters. The network is built without memory
    (torch's `meta` device): a simulator from outside may name spaces of any size.
    """
    if misfits(experiment, spaces):
        return None  # `plan` says so
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        network = Network(experiment, spaces)
    parameters = sum(each.numel() for each in network.parameters())
    parts = spaces.agents if experiment.policies == "separate" else 1
    storage = sum(map(bytes_of, storage_arrays(Sizes.of(experiment, spaces), spaces)))
    size, room = 2 * storage + 4 * _COPIES * parts * parameters, available()
    if size <= room.size:
        return None
    return f"its spaces need at least {size / 2**20:,.0f} MiB of memory in this run, and {room}"
