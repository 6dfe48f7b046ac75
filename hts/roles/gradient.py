"""The gradient of a minibatch, shard after shard, on one thread or several.

A minibatch is cut into shards. Each shard's gradient is computed by itself, on one thread, and
shards are added in their order: ((g0 + g1) + g2) + ... So it does not matter how many workers
share them. They are worked in waves of one shard for each worker:

    the caller's thread    g0 onto 0    + g1    g2 onto that    + g3    ...
    a second worker        g1                   g3

The caller's thread lets autograd add its shard to the sum in place; every other worker has a
network on the same parameters with a gradient of its own, which is added when its turn has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, fields

import numpy as np

from hts.config import A2C, PPO, Experiment
from hts.learn.losses import Columns, Losses, a2c_loss, ppo_loss
from hts.learn.normalise import ObservationScale
from hts.memory.storage import Rows, Storage
from hts.models.policy import Answer, Policy
from hts_envs.contract import Array


@dataclass(frozen=True)
class Seen:
    """The observations of a rollout, as the network sees them.

    Rows are places in the flattened (replica, step). A recurrent network sees whole sequences of
    `length` steps, each from the state that it was acted with. So that rows are the same bits as
    they were when they were acted on, they are padded as they were then.
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

    def _answer(self, policy: Policy, rows: Array) -> Answer:
        places = Rows(*np.divmod(rows, self.storage.sizes.steps))
        seen = self.scale.apply(self.storage.gather(places))
        if not policy.state_size:
            return policy.answer(seen)
        whole = (-1, self.length)
        sequences = {name: array.reshape(*whole, *array.shape[1:]) for name, array in seen.items()}
        first = (places.replicas[:: self.length], places.steps[:: self.length])
        begins = self.storage.age[places.replicas, places.steps].reshape(whole) == 0
        return policy.unroll(sequences, self.storage.state[first], begins)


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
        self._algo: A2C | PPO = experiment.algo
        self._shards = experiment.shard_count
        self._policy = policy
        self._twins = [policy.twin() for _ in range(workers - 1)]
        self._threads = ThreadPoolExecutor(workers - 1, "learner") if workers > 1 else None

    def compute(self, minibatch: Minibatch) -> list[Losses]:
        """The losses of each shard; the gradient is that of the mean over all rows.

        Where every agent has a network of its own, each of them has a mean of its own.
        """
        rows = len(minibatch.columns.action) // self._policy.parts
        self._policy.gradient.zero_()
        shards, workers = minibatch.shards(self._shards), len(self._twins) + 1
        found: list[Losses] = []
        for begin in range(0, len(shards), workers):
            found += self._wave(shards[begin : begin + workers], rows)
        return found

    def _wave(self, shards: Sequence[Minibatch], rows: int) -> list[Losses]:
        """One shard for each worker; an error in any of them is raised when all have ended."""
        beside = list(zip(self._twins, shards[1:], strict=False))
        if self._threads is None or not beside:
            return [self._backward(self._policy, shards[0], rows)]
        running = [self._threads.submit(self._alone, twin, shard, rows) for twin, shard in beside]
        try:
            found = [self._backward(self._policy, shards[0], rows)]
        finally:
            wait(running)
        for (twin, _), future in zip(beside, running, strict=True):
            found.append(future.result())
            self._policy.gradient.add_(twin.gradient)
        return found

    def _alone(self, twin: Policy, shard: Minibatch, rows: int) -> Losses:
        twin.gradient.zero_()
        return self._backward(twin, shard, rows)

    def _backward(self, policy: Policy, shard: Minibatch, rows: int) -> Losses:
        """Add a shard's gradient to that of this network."""
        answer, actions = shard.seen.answer(policy, shard.rows), policy.distribution
        if isinstance(self._algo, PPO):
            losses = ppo_loss(self._algo, actions, answer, shard.columns)
        else:
            losses = a2c_loss(self._algo, actions, answer, shard.columns)
        (losses.total / rows).backward()  # type: ignore[no-untyped-call]
        return losses

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown()
