"""An actor: answers what blocks ask, in batches, and keeps no state.

An answer is a function of the version, the observation and the key that came with it. Which rows
are answered together changes no bit: batches are padded to the size that the probe at the start
found to be safe (hts.determinism.invariance), or, where it found none, every batch has the size
of all replicas and each of them its own place in it.

A ticket names a rollout and a step. Everything else stands in the storage: the value of a final
observation is due where the step before was truncated, and at the end of the rollout the value of
the observation behind it is due where its episode goes on. Where values have layers of their own,
nobody computes them with the actions: those of the whole rollout are due at its end, too, and cost
little together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from hts.determinism import settings
from hts.determinism.strategy import LARGEST_BATCH
from hts.memory.desk import Desk
from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.models.policy import Policy, uniforms
from hts_envs.contract import Array, Observation


class _Batch(NamedTuple):
    """Where rows stand in the batch that is computed; all other places hold zeros."""

    size: int
    places: slice | Array

    def filled(self, rows: Array) -> Array:
        if len(rows) == self.size and isinstance(self.places, slice):
            return rows
        whole = np.zeros((self.size, *rows.shape[1:]), rows.dtype)
        whole[self.places] = rows
        return whole

    def observation(self, seen: Observation) -> Observation:
        return {name: self.filled(array) for name, array in seen.items()}

    def state(self, state: Array | None) -> Array | None:
        return None if state is None else self.filled(state)

    def rows(self, answer: Array, agents: int) -> Array:
        """The rows of an answer, as (rows, agents, ...)."""
        return np.asarray(answer.reshape(self.size, agents, *answer.shape[1:])[self.places])


Question = tuple[range, int]
"""Replicas of a block, and the step that all of them stand at."""


class Due(NamedTuple):
    """What questions of one rollout ask for; None where nothing is asked."""

    act: Rows | None
    final: Rows | None = None
    behind: Rows | None = None
    whole: Sequence[range] = ()  # blocks that ask for the values of all of their rollout


def due(storage: Storage, questions: Sequence[Question], *, apart: bool = False) -> Due:
    """Actions; values behind truncations of the step before; values behind the rollout's end, or,
    where values are apart from actions, all of those of the rollout."""
    act: list[Question] = []
    final: list[_Part] = []
    behind: list[_Part] = []
    whole: list[range] = []
    for block, step in questions:
        if step < storage.sizes.steps:
            act.append((block, step))
        if step == 0:
            continue
        mine = slice(block.start, block.stop)
        truncated = storage.truncated[mine, step - 1]
        ends = step == storage.sizes.steps
        if ends and apart:
            whole.append(block)
            ends = False
        if not (ends or np.count_nonzero(truncated)):
            continue
        replicas = np.arange(block.start, block.stop)
        terminated = storage.terminated[mine, step - 1]
        final.append((replicas[truncated & ~terminated], step - 1))
        if ends:
            behind.append((replicas[~(terminated | truncated)], step))
    if not final:
        return Due(_blocks(act), whole=whole)
    return Due(_blocks(act), _rows(final, final=True), _rows(behind, final=False), whole)


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
        self._unrecorded = torch.inference_mode()  # to make one takes as long as a product

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
            apart = self._apart(self.policy(version))
            asked = self._due(storage, questions[rollout], apart=apart)
            if asked.act is not None:
                self.act(storage, asked.act, version)
            for rows in (asked.final, asked.behind):
                if rows is not None:
                    self.value(storage, rows, version)
            for replicas in asked.whole:
                self.values(storage, replicas, version)
        for block in blocks:
            desk.answer(block)

    def act(self, storage: Storage, rows: Rows, version: Version) -> None:
        """Choose the action of each row and write it, its log-probability and, unless values are
        asked apart, the value."""
        assert storage.version == version.number, "I3: a rollout is made with its own version"
        batch, policy = self._batch(rows), self.policy(version)
        agents, actions = policy.agents, policy.distribution
        chances = batch.filled(self._chances(storage, rows, policy)).reshape(-1, actions.noise)
        seen, place = batch.observation(_seen(storage, rows, version)), rows.place
        with self._unrecorded:
            if self._apart(policy):
                head = policy.head(seen)
            else:
                answer = policy.answer(seen, batch.state(storage.state_before(rows)))
                head = answer.head
                storage.value[place] = batch.rows(answer.value.cpu().numpy(), agents)
                if answer.state is not None:
                    after = batch.rows(answer.state.cpu().numpy(), agents)
                    storage.state[rows.replicas, rows.steps + 1] = after
            action, log_prob = actions.draw(head, chances)
        storage.log_prob[place] = batch.rows(log_prob, agents)
        chosen = batch.rows(action, agents)
        storage.action[place] = chosen.reshape(rows.count, agents, *storage.action.shape[3:])

    def value(self, storage: Storage, rows: Rows, version: Version) -> None:
        """Write the value behind each row's step: of its final, or of its next, observation."""
        behind = rows.steps if rows.final else rows.steps - 1
        storage.bootstrap[rows.replicas, behind] = self._value(storage, rows, version)

    def _value(self, storage: Storage, rows: Rows, version: Version) -> Array:
        assert storage.version == version.number, "I3: a rollout is made with its own version"
        batch, policy = self._batch(rows), self.policy(version)
        seen, state = _seen(storage, rows, version), storage.state_before(rows)
        with self._unrecorded:
            value = policy.value(batch.observation(seen), batch.state(state)).cpu().numpy()
        return batch.rows(value, policy.agents)

    def values(self, storage: Storage, block: range, version: Version) -> None:
        """Write the value in front of each step of a block's rollout, and behind the last one where
        the episode goes on.

        In batches as large as the probe looks at, or as the block's answers are.
        """
        steps, most = storage.sizes.steps, max(LARGEST_BATCH, len(block))
        value = np.empty((len(block), steps + 1, storage.value.shape[-1]), np.float32)
        across, along = max(1, most // (steps + 1)), min(steps + 1, most)
        for first in range(0, len(block), across):
            for step in range(0, steps + 1, along):
                replicas = block[first : first + across]
                asked = range(steps + 1)[step : step + along]
                found = self._value(storage, Rows(replicas, asked), version)
                place = slice(first, first + across), slice(step, step + along)
                value[place] = found.reshape(len(replicas), len(asked), -1)
        mine, last = slice(block.start, block.stop), steps - 1
        storage.value[mine] = value[:, :-1]
        goes_on = ~(storage.terminated[mine, last] | storage.truncated[mine, last])
        np.copyto(storage.bootstrap[mine, last], value[:, -1], where=goes_on[:, None])

    def _apart(self, policy: Policy) -> bool:
        """Values are not answered with actions. Where places are fixed they cost no less later."""
        return policy.values_apart and self.padding > 0

    def _due(self, storage: Storage, questions: Sequence[Question], *, apart: bool) -> Due:
        return due(storage, questions, apart=apart)

    def _chances(self, storage: Storage, rows: Rows, policy: Policy) -> Array:
        """What each row's action is drawn with: (rows, agents, numbers)."""
        keys, count = storage.key[rows.place], policy.distribution.noise
        return uniforms(keys, policy.agents, count).reshape(rows.count, policy.agents, -1)

    def _batch(self, rows: Rows) -> _Batch:
        if not self.padding:
            return _Batch(self.replicas, rows.replicas)
        return _Batch(rows.count + -rows.count % self.padding, slice(rows.count))

    def policy(self, version: Version) -> Policy:
        """The network with these parameters; two versions are acted with in turn."""
        place = version.number % 2
        policy = self._policies[place]
        if policy is None:
            policy = self._policies[place] = self._make_policy()
        if self._loaded[place] != version.number:
            settings.check()
            policy.load(version.parameters)
            self._loaded[place] = version.number
        return policy


def _seen(storage: Storage, rows: Rows, version: Version) -> Observation:
    return version.scale.apply(storage.gather(rows))


_Part = tuple[Array, int]
"""Some replicas of a block, and the step of all of them."""


def _blocks(parts: Sequence[Question]) -> Rows | None:
    """Whole blocks as rows."""
    if not parts:
        return None
    if len(parts) == 1:
        return Rows(*parts[0])
    replicas = np.array([replica for block, _ in parts for replica in block])
    return Rows(replicas, np.array([step for block, step in parts for _ in block]))


def _rows(parts: Sequence[_Part], *, final: bool) -> Rows | None:
    if not any(len(part) for part, _ in parts):
        return None
    replicas = np.concatenate([part for part, _ in parts])
    steps = np.concatenate([np.full(len(part), step) for part, step in parts])
    return Rows(replicas, steps, final=final)
