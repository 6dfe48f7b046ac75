"""The learner: from one rollout and the versions it names to the next version.

`update` starts the algorithm at the parameters that the correction names, takes its optimiser
steps there, and applies the difference to the newest parameters:

    delayed, schedule hts    theta_{v+2} = theta_{v+1} + (phi_K - theta_v),   phi_0 = theta_v
    every other              the next version is phi_K,  phi_0 = the newest parameters
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hts.config import A2C, PPO, Experiment
from hts.determinism.keys import Purpose, key, keys
from hts.learn.losses import Losses, Shard, a2c_loss, ppo_loss
from hts.learn.normalise import ObservationScale, RewardScale
from hts.learn.optimisers import clip_norm, make_optimiser
from hts.learn.returns import Trace, advantages
from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.models.policy import Policy
from hts_envs.contract import Array


class Sums:
    """What an update says about itself, summed over the rows of its last epoch.

    The sums stay tensors on the policy's device until they are told: a number asked for earlier
    would make the host wait for a GPU.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.sums: dict[str, Tensor] = {}
        self.norms: list[Tensor] = []

    def add(self, losses: Losses, rows: int) -> None:
        self.rows += rows
        for name in ("policy", "value", "entropy", "kl", "clipped"):
            found = getattr(losses, name).detach()
            self.sums[name] = self.sums[name] + found if name in self.sums else found

    def mean(self, name: str) -> float:
        return float(self.sums[name]) / self.rows


@dataclass(frozen=True)
class Learning:
    """A rollout as it is learnt from; its own columns are (replica, step, agent)."""

    storage: Storage
    scale: ObservationScale
    advantage: Array
    target: Array
    log_prob: Array
    weight: Array


class Learner:
    """One network, one optimiser state for the run."""

    def __init__(self, experiment: Experiment, policy: Policy) -> None:
        self.experiment = experiment
        self.policy = policy
        algo = experiment.algo
        self.optimiser = make_optimiser(
            algo.optimiser, policy.size, algo.optimiser_epsilon, policy.device
        )
        self.reward_scale = RewardScale(np.zeros((experiment.replicas, policy.agents)))

    def update(
        self, storage: Storage, behaviour: Version, newest: Version, updates: int
    ) -> tuple[Version, dict[str, float]]:
        """The next version, and what is to be told about how it was made."""
        assert storage.version == behaviour.number, "I3: learnt from with the version it names"
        algo = self.experiment.algo
        delayed = self.experiment.correction == "delayed"
        start = behaviour if delayed else newest
        published = start.parameters.clone()
        self.policy.load(start.parameters)
        learning = self._learning(storage, behaviour.scale)
        rate = self._rate(updates)
        errors: list[Tensor] = []
        for epoch in range(algo.epochs if isinstance(algo, PPO) else 1):
            sums = Sums()
            for rows in self._minibatches(behaviour.number, epoch):
                errors.append(self._step(learning, rows, sums, rate))
        made = self._applied(start, newest)
        assert torch.equal(start.parameters, published), "I4: a published version never changes"
        if not bool(torch.isfinite(made).all()):
            raise FloatingPointError(
                f"update {updates + 1} made parameters that are not finite; a lower learning "
                "rate or a smaller max_gradient_norm usually mends it"
            )
        scale = self._next_scale(storage, newest.scale)
        told = self._told(learning, sums, rate)
        told["train/ratio_error_first"] = float(errors[0])
        return Version(newest.number + 1, made, scale), told

    def _applied(self, start: Version, newest: Version) -> Tensor:
        reached = self.policy.vector.detach().cpu()
        if start.number == newest.number:
            return reached.clone()
        return newest.parameters + (reached - start.parameters)

    def _learning(self, storage: Storage, scale: ObservationScale) -> Learning:
        algo, reward = self.experiment.algo, storage.reward
        ended = storage.terminated | storage.truncated
        if self.experiment.clip_rewards is not None:
            limit = self.experiment.clip_rewards
            reward = np.clip(reward, -limit, limit)
        if self.experiment.normalise_rewards:
            self.reward_scale = self.reward_scale.with_rollout(reward, ended, algo.gamma)
            reward = self.reward_scale.apply(reward)
        trace = Trace(
            reward, storage.value, storage.bootstrap, storage.terminated, storage.truncated
        )
        found = advantages(trace, algo.gamma, algo.gae_lambda)
        log_prob, weight = self._corrected(storage, scale)
        return Learning(storage, scale, found, found + storage.value, log_prob, weight)

    def _corrected(self, storage: Storage, scale: ObservationScale) -> tuple[Array, Array]:
        """Log-probabilities that ratios are taken against, and the weight of each row."""
        correction = self.experiment.correction
        ones = np.ones(storage.log_prob.shape, np.float32)
        if correction in ("delayed", "ratio"):
            return storage.log_prob, ones
        current = self._current_log_prob(storage, scale)
        if correction == "none":
            return current, ones
        return current, np.minimum(np.exp(current - storage.log_prob), 1.0).astype(np.float32)

    def _current_log_prob(self, storage: Storage, scale: ObservationScale) -> Array:
        """What the loaded parameters say about the rollout's actions."""
        found = np.empty(storage.log_prob.shape, np.float32)
        for replica in range(storage.sizes.replicas):
            steps = np.arange(storage.sizes.steps)
            rows = Rows(np.full(len(steps), replica), steps)
            with torch.inference_mode():
                answer = self.policy.answer(scale.apply(storage.gather(rows)))
                action = self._column(storage.action[replica])
                said = self.policy.distribution.log_prob(answer.head, action)
            found[replica] = said.cpu().numpy().reshape(found[replica].shape)
        return found

    def _minibatches(self, version: int, epoch: int) -> Iterator[Array]:
        """The rows of each minibatch, as places in the flattened (replica, step)."""
        algo, count = self.experiment.algo, self.experiment.rows
        if isinstance(algo, A2C):
            yield np.arange(count)
            return
        named = key(self.experiment.seed, Purpose.MINIBATCH, 0, version, epoch)
        drawn = keys(named, Purpose.MINIBATCH, np.arange(count))
        yield from np.argsort(drawn, kind="stable").reshape(algo.minibatches, -1)

    def _step(self, learning: Learning, rows: Array, sums: Sums, rate: float) -> Tensor:
        """One optimiser step; returns the largest |ratio - 1| before it."""
        algo = self.experiment.algo
        advantage = learning.advantage.reshape(-1, self.policy.agents)[rows]
        if isinstance(algo, PPO) and algo.normalise_advantages and advantage.size > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        self.policy.gradient.zero_()
        errors = []
        whole = len(rows) * self.policy.agents
        parts = zip(
            np.split(rows, self.experiment.shards),
            np.split(advantage, self.experiment.shards),
            strict=True,
        )
        for part, shard_advantage in parts:
            places = Rows(*np.divmod(part, self.experiment.rollout))
            answer = self.policy.answer(learning.scale.apply(learning.storage.gather(places)))
            shard = self._shard(learning, places, shard_advantage)
            loss = ppo_loss if isinstance(algo, PPO) else a2c_loss
            losses = loss(algo, self.policy.distribution, answer, shard)  # type: ignore[arg-type]
            (losses.total / whole).backward()  # type: ignore[no-untyped-call]
            sums.add(losses, len(shard.action))
            errors.append(losses.ratio_error)
        sums.norms.append(clip_norm(self.policy.gradient, algo.max_gradient_norm))
        self.policy.vector.add_(self.optimiser.step(self.policy.gradient, rate))
        return torch.stack(errors).max()

    def _shard(self, learning: Learning, places: Rows, advantage: Array) -> Shard:
        storage, at = learning.storage, (places.replicas, places.steps)
        columns = (learning.log_prob, storage.value, learning.target, learning.weight)
        log_prob, value, target, weight = (self._column(column[at]) for column in columns)
        action = self._column(storage.action[at])
        return Shard(
            action=action,
            log_prob=log_prob,
            value=value,
            advantage=self._column(advantage),
            target=target,
            weight=weight,
        )

    def _column(self, array: Array) -> Tensor:
        """(rows, agents, ...) as a tensor of (rows x agents, ...), float32 or int64."""
        flat = array.reshape(-1, *array.shape[2:])
        if flat.dtype != np.int64:
            flat = flat.astype(np.float32, copy=False)
        return torch.from_numpy(np.ascontiguousarray(flat)).to(self.policy.device)

    def _rate(self, updates: int) -> float:
        """The learning rate as a function of absolute environment steps."""
        algo = self.experiment.algo
        if algo.learning_rate_schedule == "constant":
            return algo.learning_rate
        passed = updates * self.experiment.rows / self.experiment.steps
        return algo.learning_rate * max(0.0, 1.0 - passed)

    def _next_scale(self, storage: Storage, scale: ObservationScale) -> ObservationScale:
        if not scale.moments:
            return scale
        first, steps = storage.sizes.history, storage.sizes.steps
        seen = {
            name: storage.arrays[f"frames.{name}"][:, first : first + steps]
            for name in scale.moments
        }
        return scale.with_rollout(seen)

    def _told(self, learning: Learning, sums: Sums, rate: float) -> dict[str, float]:
        spread = float(np.var(learning.target))
        left = float(np.var(learning.target - learning.storage.value))
        return {
            "train/policy_loss": sums.mean("policy"),
            "train/value_loss": sums.mean("value"),
            "train/entropy": sums.mean("entropy"),
            "train/kl": sums.mean("kl"),
            "train/clip_fraction": sums.mean("clipped"),
            "train/gradient_norm": float(torch.stack(sums.norms).mean()),
            "train/explained_variance": 1.0 - left / spread if spread > 0 else 0.0,
            "train/learning_rate": rate,
        }
