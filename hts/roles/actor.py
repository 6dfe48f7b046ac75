"""An actor: answers what blocks ask, in batches, and keeps no state.

An answer is a function of the version, the observation and the key that came with it. Which rows
are answered together changes no bit: batches are padded to the size that the probe at the start
found to be safe (hts.determinism.invariance), or, where it found none, every batch has the size
of all replicas and each of them its own place in it.

A ticket names a rollout and a step. Everything else stands in the storage: the value of a final
observation is due where the step before was truncated, and at the end of the rollout the value of
the observation behind it is due where its episode goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hts.memory.desk import Desk
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


Question = tuple[range, int]
"""Replicas of a block, and the step that all of them stand at."""


@dataclass(frozen=True)
class Due:
    """What questions of one rollout ask for; None where nothing is asked."""

    act: Rows | None
    final: Rows | None
    behind: Rows | None


def due(storage: Storage, questions: Sequence[Question]) -> Due:
    """Actions; values behind truncations of the step before; values behind the rollout's end."""
    act: list[Question] = []
    final: list[_Part] = []
    behind: list[_Part] = []
    for block, step in questions:
        if step < storage.sizes.steps:
            act.append((block, step))
        if step == 0:
            continue
        mine = slice(block.start, block.stop)
        truncated = storage.truncated[mine, step - 1]
        ends = step == storage.sizes.steps
        if not (ends or np.count_nonzero(truncated)):
            continue
        replicas = np.arange(block.start, block.stop)
        terminated = storage.terminated[mine, step - 1]
        final.append((replicas[truncated & ~terminated], step - 1))
        if ends:
            behind.append((replicas[~(terminated | truncated)], step))
    return Due(_blocks(act), _rows(final, final=True), _rows(behind, final=False))


class Actor:
    """One copy of the network for each of the two versions that may be acted with at a time.

    `padding` 0 asks for a fixed place for each of the `replicas`.
    """

    def __init__(self, make_policy: Callable[[], Policy], padding: int, replicas: int) -> None:
        self.padding = padding
        self.replicas = replicas
        self._make_policy = make_policy
        self._policies: list[Policy | None] = [None, None]
        self._loaded = [-1, -1]

    def answer(
        self,
        desk: Desk,
        blocks: Sequence[int],
        storages: tuple[Storage, Storage],
        read: Callable[[int], Version],
    ) -> None:
        """Answer what these blocks have asked, and sign it."""
        questions: dict[int, list[Question]] = {}
        for block in blocks:
            rollout, step = desk.question(block)
            questions.setdefault(rollout, []).append((desk.crew.blocks[block], step))
        for rollout in sorted(questions):
            storage, version = storages[rollout % 2], read(rollout)
            storage.version = rollout
            asked = self._due(storage, questions[rollout])
            if asked.act is not None:
                self.act(storage, asked.act, version)
            for rows in (asked.final, asked.behind):
                if rows is not None:
                    self.value(storage, rows, version)
        for block in blocks:
            desk.answer(block)

    def act(self, storage: Storage, rows: Rows, version: Version) -> None:
        """Choose the action of each row and write it, its log-probability and the value."""
        assert storage.version == version.number, "I3: a rollout is made with its own version"
        batch, policy = self._batch(rows), self._policy(version)
        agents, actions = policy.agents, policy.distribution
        drawn = batch.filled(self._chances(storage, rows, policy)).reshape(-1, actions.noise)
        with torch.inference_mode():
            answer = self._answer(storage, rows, batch, version)
            noise = torch.from_numpy(drawn).to(answer.head.device)
            action = actions.sample(answer.head, noise)
            log_prob = actions.log_prob(answer.head, action)
        place = rows.place
        storage.log_prob[place] = batch.rows(log_prob, agents)
        storage.value[place] = batch.rows(answer.value, agents)
        chosen = batch.rows(action, agents)
        storage.action[place] = chosen.reshape(len(rows), agents, *storage.action.shape[3:])
        if answer.state is not None:
            storage.state[rows.replicas, rows.steps + 1] = batch.rows(answer.state, agents)

    def value(self, storage: Storage, rows: Rows, version: Version) -> None:
        """Write the value behind each row's step: of its final, or of its next, observation."""
        assert storage.version == version.number, "I3: a rollout is made with its own version"
        batch, policy = self._batch(rows), self._policy(version)
        with torch.inference_mode():
            answer = self._answer(storage, rows, batch, version)
        behind = rows.steps if rows.final else rows.steps - 1
        storage.bootstrap[rows.replicas, behind] = batch.rows(answer.value, policy.agents)

    def _due(self, storage: Storage, questions: Sequence[Question]) -> Due:
        return due(storage, questions)

    def _chances(self, storage: Storage, rows: Rows, policy: Policy) -> Array:
        """What each row's action is drawn with: (rows, agents, numbers)."""
        keys, count = storage.key[rows.place], policy.distribution.noise
        return uniforms(keys, policy.agents, count).reshape(len(rows), policy.agents, -1)

    def _batch(self, rows: Rows) -> _Batch:
        if not self.padding:
            return _Batch(self.replicas, rows.replicas)
        count = len(rows)
        return _Batch(count + -count % self.padding, slice(count))

    def _policy(self, version: Version) -> Policy:
        """The network with these parameters; two versions are acted with in turn."""
        place = version.number % 2
        policy = self._policies[place]
        if policy is None:
            policy = self._policies[place] = self._make_policy()
        if self._loaded[place] != version.number:
            policy.load(version.parameters)
            self._loaded[place] = version.number
        return policy

    def _answer(self, storage: Storage, rows: Rows, batch: _Batch, version: Version) -> Answer:
        policy = self._policy(version)
        seen = version.scale.apply(storage.gather(rows))
        whole = {name: batch.filled(array) for name, array in seen.items()}
        state = storage.state_before(rows)
        return policy.answer(whole, None if state is None else batch.filled(state))


_Part = tuple[Array, int]
"""Some replicas of a block, and the step of all of them."""


def _blocks(parts: Sequence[Question]) -> Rows | None:
    """Whole blocks as rows."""
    if not parts:
        return None
    if len(parts) == 1:
        ((block, step),) = parts
        replicas, steps = np.arange(block.start, block.stop), np.full(len(block), step)
        return Rows(replicas, steps, block=(slice(block.start, block.stop), step))
    replicas = np.array([replica for block, _ in parts for replica in block])
    return Rows(replicas, np.array([step for block, step in parts for _ in block]))


def _rows(parts: Sequence[_Part], *, final: bool) -> Rows | None:
    if not any(len(part) for part, _ in parts):
        return None
    replicas = np.concatenate([part for part, _ in parts])
    steps = np.concatenate([np.full(len(part), step) for part, step in parts])
    return Rows(replicas, steps, final)
