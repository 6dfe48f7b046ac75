"""The learner of an off-policy algorithm: V-learner and P-learner, one window behind each other.

    turn v    V-learner    D_v into the replay; the critics, with the newest policy
              P-learner    the policy, with the critics of before (hts) or of this turn (sync)

Under schedule hts neither reads what the other makes in the same turn, so the P-learner may work in
a process of its own; under schedule sync they take turns in one. Who does its part finds what the
part before has left in shared memory, and so does a successor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch

from hts.config import PQL, Experiment
from hts.errors import HtsError
from hts.learn.optimisers import is_finite
from hts.memory.learnt import Learnt
from hts.memory.room import available
from hts.memory.storage import Storage
from hts.memory.versions import Version
from hts.replay.ring import Ring, Span
from hts.roles.learner import next_scale
from hts.roles.p_learner import TOLD, PLearner
from hts.roles.replayed import columns
from hts.roles.v_learner import VLearner
from hts_envs.contract import Array


class Beside(Protocol):
    """Who makes the policy of a turn."""

    def take(self, turn: int, newest: Version, critics: Array) -> None:
        """The critics that this turn's policy is taught with are there."""

    def made(self, turn: int) -> Mapping[str, Array]:
        """What the P-learner has kept after this turn, when it has."""


class PTurns:
    """The P-learner's part of every turn, done once whoever does it."""

    def __init__(
        self, experiment: Experiment, learner: PLearner, ring: Ring, learnt: Learnt
    ) -> None:
        self._experiment = experiment
        self._learner = learner
        self._ring = ring
        self._learnt = learnt
        if learnt.updates:
            learner.take(learnt.kept())

    def take(self, turn: int, newest: Version, critics: Array) -> None:
        if self._learnt.updates > turn:
            return  # a predecessor has done it
        lag = 1 if self._experiment.schedule == "hts" else 0
        # Where both work at once, the window of this turn is being written over the oldest one.
        span = self._ring.span(turn + 1 - lag, spared=lag)
        self._learner.learn(turn, _warm(self._experiment, span), newest, critics)
        self._learnt.complete(self._learner.arrays())

    def made(self, turn: int) -> Mapping[str, Array]:
        assert self._learnt.updates == turn + 1, "this turn's policy is made"
        return self._learnt.kept()


class QLearner:
    """What makes the next version out of a rollout, and of everything before it."""

    def __init__(
        self, experiment: Experiment, critics: VLearner, ring: Ring, beside: Beside
    ) -> None:
        self.experiment = experiment
        self.kept = critics
        self._ring = ring
        self._beside = beside
        assert isinstance(experiment.algo, PQL), "learns from a replay"
        self._unused = () if experiment.algo.policy == "sac" else ("entropy", "temperature")

    def update(
        self, storage: Storage, behaviour: Version, newest: Version, updates: int
    ) -> tuple[Version, dict[str, float]]:
        """The next version, and what is to be told about how it was made."""
        assert storage.version == behaviour.number, "I3: learnt from with the version it names"
        clip = self.experiment.clip_rewards
        self._ring.write(updates, columns(storage, self._ring.names, clip))
        _have_room(self._ring, updates + 1)
        at_once = self.experiment.schedule == "hts"
        if at_once:
            self._beside.take(updates, newest, self.kept.arrays()["critics"])
        told = {"train/lag": float(newest.number - storage.version)}
        span = _warm(self.experiment, self._ring.span(updates + 1))
        if len(span):
            told |= self.kept.learn(updates, span, newest)
        if not at_once:
            self._beside.take(updates, newest, self.kept.arrays()["critics"])
        made = self._beside.made(updates)
        if len(span):
            numbers = zip(TOLD, made["told"].tolist(), strict=True)
            told |= {
                f"train/{name}": number for name, number in numbers if name not in self._unused
            }
        parameters = torch.from_numpy(np.array(made["parameters"]))
        self._finite(parameters, updates)
        scale = next_scale(storage, newest.scale)
        return Version(newest.number + 1, parameters, scale), told

    def learnt(self, made: Version) -> Array:
        """All that was learnt, as the digest sees it: the policy, then the critics."""
        return np.concatenate([made.parameters.numpy(), self.kept.arrays()["critics"]])

    def close(self) -> None:
        """End the threads of its workers."""
        self.kept.close()

    def _finite(self, parameters: torch.Tensor, updates: int) -> None:
        critics = torch.from_numpy(self.kept.arrays()["critics"])
        if not (is_finite(parameters) and is_finite(critics)):
            raise FloatingPointError(
                f"update {updates + 1} made parameters that are not finite; a lower learning "
                "rate, a smaller max_gradient_norm or a smaller reward_scale usually mends it"
            )


def _have_room(ring: Ring, windows: int) -> None:
    """Looked at whenever twice as much is written: images take memory as they come, and before the
    kernel has to end somebody for want of it, this ends with a sentence."""
    if windows & (windows - 1) or windows >= ring.windows:
        return
    grows, room = ring.grows(windows), available()
    if grows > room.size:
        raise HtsError(
            f"the images of {ring.steps * ring.replicas:,} transitions will take {_mib(grows)} "
            f"more, and {room}; train with a smaller experiment.algo.replay"
        )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _warm(experiment: Experiment, span: Span) -> Span:
    """Nothing is learnt from before random actions have filled so much."""
    assert isinstance(experiment.algo, PQL), "what is learnt from a replay"
    return span if span.end >= experiment.algo.warm_up else Span(0, 0)
