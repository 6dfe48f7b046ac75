"""The gradient of a minibatch of a rollout, shard after shard (`hts.roles.sharded`)."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from hts.config import A2C, PPO, PQL, Experiment
from hts.learn.losses import Columns, Descended, Losses, a2c_loss, ppo_loss
from hts.learn.normalise import ObservationScale
from hts.memory.storage import Rows, Storage
from hts.models.network import Answer, Back, by_autograd
from hts.models.policy import Policy
from hts.roles.sharded import Sharded
from hts_envs.contract import Array, Observation


@dataclass(frozen=True)
class Seen:
    """The observations of a rollout, as the network sees them.

    Rows are places in the flattened (replica, step). A recurrent network sees whole sequences of
    `length` steps, each from the state that it was acted with. They are padded so that rows are the
    same bits as they were when they were acted on.
    """

    storage: Storage
    scale: ObservationScale
    length: int
    padding: int = 1

    def answer(self, policy: Policy, rows: Array) -> Answer:
        """What the network says about these rows: (row, agent)."""
        missing = -(len(rows) // self.length) % self.padding
        if not missing:
            return self._answer(policy, rows)
        # Whole sequences, of which nothing is said in the end, and which no gradient comes from.
        padded = np.concatenate([rows, np.tile(rows[: self.length], missing)])
        answer, said = self._answer(policy, padded), len(rows) * policy.agents
        return Answer(answer.head[:said], answer.value[:said])

    def with_back(self, policy: Policy, rows: Array) -> tuple[Answer, Back]:
        """The same, and what adds its gradient to the policy's."""
        if policy.state_size or -(len(rows) // self.length) % self.padding:
            answer = self.answer(policy, rows)
            return answer.alone(), by_autograd(answer)
        return policy.with_back(self._shown(rows)[1])

    def _answer(self, policy: Policy, rows: Array) -> Answer:
        places, seen = self._shown(rows)
        if not policy.state_size:
            return policy.answer(seen)
        whole = (-1, self.length)
        sequences = {name: array.reshape(*whole, *array.shape[1:]) for name, array in seen.items()}
        first = (places.replicas[:: self.length], places.steps[:: self.length])
        begins = self.storage.age[places.replicas, places.steps].reshape(whole) == 0
        return policy.unroll(sequences, self.storage.state[first], begins)

    def _shown(self, rows: Array) -> tuple[Rows, Observation]:
        places = Rows(*np.divmod(rows, self.storage.sizes.steps))
        return places, self.scale.apply(self.storage.gather(places))


@dataclass(frozen=True)
class Minibatch:
    """Rows of a rollout, and what is learnt from them: a row of `columns` for each agent."""

    seen: Seen
    rows: Array
    columns: Columns

    def shards(self, count: int) -> list[Minibatch]:
        """Parts of equal size, in order."""
        if count == 1:
            return [self]
        names = [field.name for field in fields(Columns)]
        cut = zip(*(getattr(self.columns, name).chunk(count) for name in names), strict=True)
        parts = [Columns(*columns) for columns in cut]
        return [
            Minibatch(self.seen, rows, part)
            for rows, part in zip(np.split(self.rows, count), parts, strict=True)
        ]


class Gradients:
    """Leaves the gradient of a minibatch's mean loss in the policy's gradient."""

    def __init__(self, experiment: Experiment, policy: Policy, workers: int) -> None:
        assert not isinstance(experiment.algo, PQL), "its learners are others"
        self._algo: A2C | PPO = experiment.algo
        self._shards = experiment.shard_count
        self._policy = policy
        self._sharded = Sharded(policy, workers)

    def compute(self, minibatch: Minibatch) -> list[Losses]:
        """The losses of each shard; the gradient is that of the mean over all rows.

        Where every agent has a network of its own, each of them has a mean of its own.
        """
        rows = len(minibatch.columns.action) // self._policy.parts
        self._policy.gradient.zero_()

        def backward(policy: Policy, shard: Minibatch) -> Losses:
            answer, back = shard.seen.with_back(policy, shard.rows)
            losses, slopes = self._descended(policy, answer, shard.columns, rows)
            back(*slopes)
            return losses

        return self._sharded.add(minibatch.shards(self._shards), backward)

    def _descended(self, policy: Policy, answer: Answer, columns: Columns, rows: int) -> Descended:
        if isinstance(self._algo, PPO):
            return ppo_loss(self._algo, policy.distribution, answer, columns, rows)
        return a2c_loss(self._algo, policy.distribution, answer, columns, rows)

    def close(self) -> None:
        """End the threads."""
        self._sharded.close()
