"""The learner: from one rollout and the versions it names to the next version.

`update` starts the algorithm at the parameters that the correction names, takes its optimiser
steps there, and applies the difference to the newest parameters:

    delayed, schedule hts    theta_{v+2} = theta_{v+1} + (phi_K - theta_v),   phi_0 = theta_v
    every other              the next version is phi_K,  phi_0 = the newest parameters
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hts.config import A2C, PPO, PQL, Experiment
from hts.config.lineage import falling
from hts.determinism.keys import Purpose, keys
from hts.errors import RatioNotOne
from hts.learn.kept import Kept
from hts.learn.losses import TOLD, Columns, Losses, told
from hts.learn.normalise import ObservationScale
from hts.learn.optimisers import clip_norm, delayed, is_finite
from hts.learn.returns import Trace, advantages, normalised
from hts.memory.storage import Storage
from hts.memory.versions import Version
from hts.models.policy import Policy
from hts.roles.gradient import Gradients, Minibatch, Seen
from hts_envs.contract import Array


@dataclass(frozen=True)
class Learning:
    """A rollout as it is learnt from. Arrays are (rows, agents), tensors have both on one axis."""

    seen: Seen
    advantage: Array
    target: Array
    weight: Array  # corrects for old data
    columns: Mapping[str, Tensor]  # but for the advantage, which each minibatch has its own of

    @property
    def explained_variance(self) -> float:
        """How much of the targets' variance the values explain."""
        spread = float(np.var(self.target))
        return 1.0 - float(np.var(self.advantage)) / spread if spread > 0 else 0.0


class Learner:
    """One network, one optimiser state for the run.

    `padding` makes rows bit-equal to those that were acted on. Where the first minibatch of an
    update shows ratios further from 1 than the limit, the rollout was not made with the parameters
    that the update starts from, and RatioNotOne is raised.
    """

    def __init__(
        self,
        experiment: Experiment,
        policy: Policy,
        workers: int = 1,
        padding: int = 1,
        ratio_error_limit: float = math.inf,
    ) -> None:
        assert not isinstance(experiment.algo, PQL), "its learners are others"
        self.experiment = experiment
        self.policy = policy
        self._algo: A2C | PPO = experiment.algo
        self.kept = Kept.fresh(experiment, policy.size, policy.agents, policy.device)
        self._gradients = Gradients(experiment, policy, workers)
        self._padding = padding
        self._ratio_error_limit = ratio_error_limit

    def update(
        self, storage: Storage, behaviour: Version, newest: Version, updates: int
    ) -> tuple[Version, dict[str, float]]:
        """The next version, and what is to be told about how it was made."""
        assert storage.version == behaviour.number, "I3: learnt from with the version it names"
        start = behaviour if self.experiment.correction == "delayed" else newest
        self.policy.load(start.parameters)
        learning = self._learning(storage, behaviour.scale)
        telling = self._learn(learning, behaviour.number, self._rate(updates))
        self._check_ratios(telling["train/ratio_error_first"], behaviour, newest, updates)
        telling["train/lag"] = float(newest.number - storage.version)
        made = self._applied(start, newest)
        if not is_finite(made):
            raise FloatingPointError(
                f"update {updates + 1} made parameters that are not finite; a lower learning "
                "rate or a smaller max_gradient_norm usually mends it"
            )
        return Version(newest.number + 1, made, next_scale(storage, newest.scale)), telling

    def learnt(self, made: Version) -> Array:
        """All that was learnt, as the digest sees it."""
        return made.parameters.numpy()

    def close(self) -> None:
        """End the threads of its workers."""
        self._gradients.close()

    def _check_ratios(
        self, error: float, behaviour: Version, newest: Version, updates: int
    ) -> None:
        """Raise RatioNotOne where the parameters that acted are not those that learning began at.

        `ratio` takes ratios against the newest parameters, which are others. Log-probabilities that
        are not numbers end as parameters that are not finite.
        """
        is_other = self.experiment.correction == "ratio" and behaviour.number != newest.number
        if not is_other and error > self._ratio_error_limit:
            raise RatioNotOne(updates + 1, error, self._ratio_error_limit)

    def _applied(self, start: Version, newest: Version) -> Tensor:
        reached = self.policy.vector.detach().cpu()
        if start.number == newest.number:
            return reached.clone()
        return delayed(newest.parameters, start.parameters, reached)

    def _learning(self, storage: Storage, scale: ObservationScale) -> Learning:
        algo, reward = self._algo, storage.reward
        ended = storage.terminated | storage.truncated
        if self.experiment.clip_rewards is not None:
            limit = self.experiment.clip_rewards
            reward = np.clip(reward, -limit, limit)
        if self.experiment.normalise_rewards:
            self.kept.reward_scale = self.kept.reward_scale.with_rollout(reward, ended, algo.gamma)
            reward = self.kept.reward_scale.apply(reward)
        trace = Trace(
            reward, storage.value, storage.bootstrap, storage.terminated, storage.truncated
        )
        found = advantages(trace, algo.gamma, algo.gae_lambda)
        target = found + storage.value
        seen = Seen(storage, scale, self.experiment.sequence_length, self._padding)
        log_prob, weight = self._corrected(seen)
        columns = {
            "action": self._column(storage.action),
            "log_prob": self._column(log_prob),
            "value": self._column(storage.value),
            "target": self._column(target),
        }
        rows = (-1, self.policy.agents)
        return Learning(
            seen, found.reshape(rows), target.reshape(rows), weight.reshape(rows), columns
        )

    def _corrected(self, seen: Seen) -> tuple[Array, Array]:
        """Log-probabilities that ratios are taken against, and the weight of each row."""
        correction, behaviour = self.experiment.correction, seen.storage.log_prob
        ones = np.ones(behaviour.shape, np.float32)
        if correction in ("delayed", "ratio"):
            return behaviour, ones
        current = self._current_log_prob(seen)
        if correction == "none":
            return current, ones
        return current, np.minimum(np.exp(current - behaviour), 1.0).astype(np.float32)

    def _current_log_prob(self, seen: Seen) -> Array:
        """What the loaded parameters say about the rollout's actions, a shard's rows at a time."""
        said, action = [], self._column(seen.storage.action)
        count = self.experiment.minibatches * self.experiment.shard_count
        pieces = np.split(np.arange(self.experiment.rows), count)
        for rows, taken in zip(pieces, action.chunk(count), strict=True):
            with torch.inference_mode():
                answer = seen.answer(self.policy, rows)
                said.append(self.policy.distribution.log_prob(answer.head, taken))
        return torch.cat(said).cpu().numpy().reshape(seen.storage.log_prob.shape)

    def _learn(self, learning: Learning, version: int, rate: float) -> dict[str, float]:
        """Every optimiser step of an update; what it tells is of the last epoch."""
        algo = self._algo
        first: Tensor | None = None
        last: list[Losses] = []
        norms: list[Tensor] = []
        before_last = (self._epochs - 1) * self.experiment.minibatches
        for number, minibatch in enumerate(self._minibatches(learning, version)):
            losses = self._gradients.compute(minibatch)
            norm = clip_norm(self.policy.gradient, algo.max_gradient_norm, self.policy.parts)
            self.policy.vector.add_(self.kept.optimiser.step(self.policy.gradient, rate))
            if first is None:
                first = torch.stack([loss.ratio_error for loss in losses]).max()
            if number >= before_last:
                last += losses
                norms.append(norm)
        assert first is not None, "an update has an epoch and a minibatch"
        clip = algo.clip if isinstance(algo, PPO) else None
        means = (told(last, clip) / len(learning.columns["value"])).tolist()
        return {
            **{f"train/{name}": number for name, number in zip(TOLD, means, strict=True)},
            "train/gradient_norm": float(torch.stack(norms).mean()),
            "train/explained_variance": learning.explained_variance,
            "train/learning_rate": rate,
            "train/ratio_error_first": float(first),
        }

    @property
    def _epochs(self) -> int:
        return self._algo.epochs if isinstance(self._algo, PPO) else 1

    def _rows(self, version: int) -> Array:
        """The rows of each minibatch of each epoch, as places in the flattened (replica, step):
        whole sequences, where the network remembers."""
        asked, length = self.experiment, self.experiment.sequence_length
        sequences = np.arange(asked.rows // length)
        if isinstance(self._algo, PPO):
            epochs = np.arange(self._epochs)[:, None]
            named = keys(asked.seed, Purpose.MINIBATCH, 0, version, epochs)
            drawn = keys(named, Purpose.MINIBATCH, sequences)
            sequences = np.argsort(drawn, -1, kind="stable")
        rows = sequences[..., None] * length + np.arange(length)
        return rows.reshape(self._epochs * asked.minibatches, -1)

    def _minibatches(self, learning: Learning, version: int) -> Iterator[Minibatch]:
        """Those of all epochs, whose columns are put in order at once. Rows of every agent stand
        beside those of the others."""
        algo, agents, rows = self._algo, self.policy.agents, self._rows(version)
        advantage = learning.advantage[rows]
        if isinstance(algo, PPO) and algo.normalise_advantages:
            advantage = normalised(advantage, each=self.policy.parts > 1)
        weighted = advantage.astype(np.float32) * learning.weight[rows]
        places = (rows[..., None] * agents + np.arange(agents)).reshape(-1)
        at = torch.from_numpy(places).to(self.policy.device)
        chosen = {name: column.index_select(0, at) for name, column in learning.columns.items()}
        chosen["advantage"] = torch.from_numpy(weighted.reshape(-1)).to(self.policy.device)
        cut = zip(*(column.chunk(len(rows)) for column in chosen.values()), strict=True)
        for each, columns in zip(rows, cut, strict=True):
            named = dict(zip(chosen, columns, strict=True))
            yield Minibatch(learning.seen, each, Columns(**named))

    def _column(self, array: Array) -> Tensor:
        """(replicas, steps, agents, ...) as a tensor of (rows x agents, ...), float32 or int64."""
        flat = array.reshape(-1, *array.shape[3:])
        own = flat.astype(np.int64 if flat.dtype == np.int64 else np.float32)
        return torch.from_numpy(own).to(self.policy.device)

    def _rate(self, updates: int) -> float:
        """The learning rate as a function of absolute environment steps."""
        algo = self._algo
        if algo.learning_rate_schedule == "constant":
            return algo.learning_rate
        begin, end = falling(self.experiment, updates)
        passed = (updates * self.experiment.rows - begin) / (end - begin)
        return algo.learning_rate * max(0.0, 1.0 - passed)


def next_scale(storage: Storage, scale: ObservationScale) -> ObservationScale:
    """The statistics after one more rollout, of the fields that have any."""
    if not scale.moments:
        return scale
    first, steps = storage.sizes.history, storage.sizes.steps
    seen = {
        name: storage.arrays[f"frames.{name}"][:, first : first + steps] for name in scale.moments
    }
    return scale.with_rollout(seen)
