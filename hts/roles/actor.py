"""An actor: answers observations with actions, in batches, and keeps no state.

An answer is a function of the version, the observation and the key that came with it. Which rows
are answered together changes no bit: batches are padded to the size that the probe at the start
found to be safe (hts.determinism.invariance).
"""

from __future__ import annotations

import numpy as np
import torch

from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.models.policy import Answer, Policy, uniforms
from hts_envs.contract import Array, Observation


class Actor:
    """One copy of the network."""

    def __init__(self, policy: Policy, padding: int) -> None:
        self.policy = policy
        self.padding = padding
        self._loaded = -1

    def act(self, storage: Storage, rows: Rows, version: Version) -> None:
        """Choose the action of each row and write it, its log-probability and the value."""
        assert storage.version == version.number, "I3: a rollout is made with its own version"
        answer = self._answer(storage, rows, version)
        keys = storage.key[rows.replicas, rows.steps]
        policy, actions = self.policy, self.policy.distribution
        noise = torch.from_numpy(uniforms(keys, policy.agents, actions.noise))
        padded = torch.zeros(len(answer.head), actions.noise)
        padded[: len(noise)] = noise
        with torch.inference_mode():
            action = actions.sample(answer.head, padded.to(answer.head.device))
            log_prob = actions.log_prob(answer.head, action)
        count = len(rows)
        place = (rows.replicas, rows.steps)
        storage.log_prob[place] = _rows(log_prob, count, policy.agents)
        storage.value[place] = _rows(answer.value, count, policy.agents)
        chosen = _rows(action, count, policy.agents)
        storage.action[place] = chosen.reshape(storage.action[place].shape)

    def value(self, storage: Storage, rows: Rows, version: Version) -> None:
        """Write the value behind each row's step: of its final, or of its next, observation."""
        assert storage.version == version.number, "I3: a rollout is made with its own version"
        answer = self._answer(storage, rows, version)
        behind = rows.steps if rows.final else rows.steps - 1
        found = _rows(answer.value, len(rows), self.policy.agents)
        storage.bootstrap[rows.replicas, behind] = found

    def _answer(self, storage: Storage, rows: Rows, version: Version) -> Answer:
        if self._loaded != version.number:
            self.policy.load(version.parameters)
            self._loaded = version.number
        seen = version.scale.apply(storage.gather(rows))
        with torch.inference_mode():
            return self.policy.answer(_padded(seen, self.padding))


def _padded(observation: Observation, multiple: int) -> Observation:
    """Rows of zeros at the end, up to the next multiple."""
    count = len(next(iter(observation.values())))
    more = -count % multiple
    if not more:
        return observation
    return {
        name: np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)])
        for name, array in observation.items()
    }


def _rows(tensor: torch.Tensor, count: int, agents: int) -> Array:
    """The unpadded rows of an answer, as an array of (rows, agents, ...)."""
    array = tensor.cpu().numpy()
    return np.asarray(array[: count * agents].reshape(count, agents, *array.shape[1:]))
