"""An actor: answers observations with actions, in batches, and keeps no state.

An answer is a function of the version, the observation and the key that came with it. Which rows
are answered together changes no bit: batches are padded to the size that the probe at the start
found to be safe (hts.determinism.invariance), or, where it found none, every batch has the size
of all replicas and each of them its own place in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.models.policy import Answer, Policy, uniforms
from hts_envs.contract import Array


@dataclass(frozen=True)
class _Batch:
    """Where rows stand in the batch that is computed; all other places hold zeros."""

    size: int
    places: slice | Array

    def filled(self, rows: Array) -> Array:
        if isinstance(self.places, slice) and len(rows) == self.size:
            return rows
        whole = np.zeros((self.size, *rows.shape[1:]), rows.dtype)
        whole[self.places] = rows
        return whole

    def rows(self, answer: torch.Tensor, agents: int) -> Array:
        """The rows of an answer, as an array of (rows, agents, ...)."""
        array = answer.cpu().numpy()
        return np.asarray(array.reshape(self.size, agents, *array.shape[1:])[self.places])


class Actor:
    """One copy of the network; `padding` 0 asks for a fixed place for each of the `replicas`."""

    def __init__(self, policy: Policy, padding: int, replicas: int) -> None:
        self.policy = policy
        self.padding = padding
        self.replicas = replicas
        self._loaded = -1

    def act(self, storage: Storage, rows: Rows, version: Version) -> None:
        """Choose the action of each row and write it, its log-probability and the value."""
        assert storage.version == version.number, "I3: a rollout is made with its own version"
        batch = self._batch(rows)
        answer = self._answer(storage, rows, batch, version)
        keys = storage.key[rows.replicas, rows.steps]
        agents, actions = self.policy.agents, self.policy.distribution
        drawn = uniforms(keys, agents, actions.noise).reshape(len(rows), agents, -1)
        noise = torch.from_numpy(batch.filled(drawn).reshape(-1, actions.noise))
        with torch.inference_mode():
            action = actions.sample(answer.head, noise.to(answer.head.device))
            log_prob = actions.log_prob(answer.head, action)
        place = (rows.replicas, rows.steps)
        storage.log_prob[place] = batch.rows(log_prob, agents)
        storage.value[place] = batch.rows(answer.value, agents)
        chosen = batch.rows(action, agents)
        storage.action[place] = chosen.reshape(len(rows), agents, *storage.action.shape[3:])

    def value(self, storage: Storage, rows: Rows, version: Version) -> None:
        """Write the value behind each row's step: of its final, or of its next, observation."""
        assert storage.version == version.number, "I3: a rollout is made with its own version"
        batch = self._batch(rows)
        answer = self._answer(storage, rows, batch, version)
        behind = rows.steps if rows.final else rows.steps - 1
        found = batch.rows(answer.value, self.policy.agents)
        storage.bootstrap[rows.replicas, behind] = found

    def _batch(self, rows: Rows) -> _Batch:
        if not self.padding:
            return _Batch(self.replicas, rows.replicas)
        count = len(rows)
        return _Batch(count + -count % self.padding, slice(count))

    def _answer(self, storage: Storage, rows: Rows, batch: _Batch, version: Version) -> Answer:
        if self._loaded != version.number:
            self.policy.load(version.parameters)
            self._loaded = version.number
        seen = version.scale.apply(storage.gather(rows))
        with torch.inference_mode():
            return self.policy.answer({name: batch.filled(array) for name, array in seen.items()})
