"""The V-learner: teaches two critics what actions are worth, from a replay of transitions.

In its turn v it reads the window D_v, everything before it in the replay, and the newest policy,
which stays the same for the whole turn: it is the lagged policy that targets are made with. What
it makes is the critics after turn v; the policy is taught with them in turn v + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from hts.config import PQL, Experiment
from hts.learn.critics import (
    Atoms,
    chances_loss,
    follow,
    target_chances,
    target_values,
    value_loss,
    worth,
)
from hts.learn.kept import state_of, take_state
from hts.learn.optimisers import clip_norm, make_optimiser
from hts.memory.versions import Version
from hts.models.critics import Critics, initial_critics
from hts.models.exploring import Deterministic, Taught
from hts.models.policy import Policy
from hts.replay.ring import Asked, Ring, Span
from hts.roles.pace import Pace, by_count
from hts.roles.replayed import Batch, Replayed
from hts.roles.sharded import Sharded
from hts_envs.contract import Array

TOLD = ("critic_loss", "value")


class VLearner:
    """Critics, target critics, and the optimiser of the critics."""

    def __init__(
        self,
        experiment: Experiment,
        make_policy: Callable[[], Policy],
        ring: Ring,
        workers: int = 1,
        pace: Pace = by_count,
    ) -> None:
        algo = experiment.algo
        assert isinstance(algo, PQL), "what is learnt from a replay"
        self._algo: PQL = algo
        self._updates = algo.beta_av * experiment.rollout
        self._shards = experiment.shard_count
        self._policy = make_policy()
        self._actions = taught(self._policy)
        device, spaces = str(self._policy.device), self._policy.world
        self.critics = Critics(experiment, spaces, device)
        self._target = Critics(experiment, spaces, device)
        self.critics.load(initial_critics(self.critics, experiment.seed))
        self._target.load(self.critics.vector)
        self._sharded = Sharded(self.critics, workers)
        self._optimiser = make_optimiser(
            algo.optimiser, self.critics.size, algo.optimiser_epsilon, device
        )
        self._replayed = Replayed(experiment, ring, self._actions.noise, pace)
        self._atoms = atoms_of(algo)
        both = dict.fromkeys([*self._policy.network.spaces, *self.critics.seen])
        self._asked = Asked(seen=tuple(self.critics.seen), behind=tuple(both))

    def learn(self, turn: int, span: Span, newest: Version) -> dict[str, float]:
        """All updates of a turn; what is to be told about the last of them."""
        self._policy.load(newest.parameters)
        sums = torch.zeros(len(TOLD))
        norm = torch.zeros(1)
        updates = 0
        batches = self._replayed.transitions(turn, self._updates, span, newest.scale, self._asked)
        for batch in batches:
            self.critics.gradient.zero_()
            found = self._sharded.add(batch.shards(self._shards), self._backward)
            norm = clip_norm(self.critics.gradient, self._algo.max_gradient_norm)
            rate = self._algo.learning_rate
            self.critics.vector.add_(self._optimiser.step(self.critics.gradient, rate))
            follow(self._target.vector, self.critics.vector, self._algo.tau)
            sums = torch.stack(found).sum(0)
            updates += 1
        told = (sums / self._algo.batch).tolist()
        return {
            **{f"train/{name}": number for name, number in zip(TOLD, told, strict=True)},
            "train/critic_gradient_norm": float(norm.mean()),
            "train/critic_updates": float(updates),
        }

    def arrays(self) -> dict[str, Array]:
        """All that a successor needs, by name; to be copied before the next turn."""
        return {
            "critics": self.critics.vector.detach().cpu().numpy(),
            "target": self._target.vector.detach().cpu().numpy(),
            **state_of(self._optimiser),
        }

    def take(self, arrays: Mapping[str, Array]) -> None:
        """Go on from what another one kept; the arrays are copied."""
        self.critics.load(torch.from_numpy(np.array(arrays["critics"])))
        self._target.load(torch.from_numpy(np.array(arrays["target"])))
        take_state(self._optimiser, arrays)

    def close(self) -> None:
        """End the threads of its workers."""
        self._sharded.close()

    def _backward(self, critics: Critics, batch: Batch) -> Tensor:
        """Add a shard's gradient; returns the sums that are told."""
        said = critics.judge(critics.features(batch.seen), self._tensor(batch.action))
        with torch.no_grad():
            target = self._targets(batch)
        if self._atoms is None:
            loss = value_loss(said, target)
        else:
            loss = chances_loss(said, target)
        (loss / self._algo.batch).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            value = worth(said, self._atoms).amin(0).sum()
            return torch.stack([loss, value]).cpu()

    def _targets(self, batch: Batch) -> Tensor:
        """What the critics should say: rewards, and what the lagged policy makes of the rest."""
        reward, discount = self._tensor(batch.reward), self._tensor(batch.discount)
        shown = {name: array[:, None] for name, array in batch.behind.items()}
        head, chances = self._policy.answer(shown).head, self._tensor(batch.chances)
        if self._algo.smoothing and isinstance(self._actions, Deterministic):
            limit = self._algo.smoothing_clip
            action = self._actions.smoothed(head, chances, self._algo.smoothing, limit)
        else:
            action, log_prob = self._actions.drawn(head, chances)
            log_temperature = self._policy.network.log_temperature
            if log_temperature is not None:
                reward = reward - discount * log_temperature.exp() * log_prob
        said = self._target.judge(self._target.features(batch.behind), action)
        if self._atoms is None:
            return target_values(said, reward, discount)
        return target_chances(said, reward, discount, self._atoms)

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self.critics.device, non_blocking=True)


def atoms_of(algo: PQL) -> Atoms | None:
    """Of a categorical critic; none where critics say one value."""
    if algo.critic == "twin":
        return None
    return Atoms(algo.value_low, algo.value_high, algo.atoms)


def taught(policy: Policy) -> Taught:
    """What the heads of a policy mean that critics teach."""
    assert isinstance(policy.distribution, Taught), "a policy that critics teach"
    return policy.distribution
