"""An actor and a learner without a network, for the counting world.

The actor plays the one action that the world takes; the learner holds everything that it reads in
a storage to what the counters say must be there. Both stand in the places of the real ones, in
their processes, over the same shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hts.config import Experiment
from hts.learn.kept import Kept
from hts.memory.storage import Storage
from hts.memory.versions import Version
from hts.roles.actor import due
from hts.roles.executor import Answering
from hts.runtime.jitter import Jitter
from hts.runtime.learners import Computing
from hts.runtime.shared import Inference, Shared, Terms
from hts_envs import counting
from hts_envs.contract import Array

BEHIND = 3.0
"""The value of whatever stands behind a truncation or a rollout."""


def answering(_: Terms, __: Inference, shared: Shared, pause: Jitter) -> Answering:
    """Plays the expected action of what it reads, and says by log-prob and value what it read."""

    def answer(blocks: Sequence[int]) -> None:
        pause("answer")
        for block in blocks:
            rollout, step = shared.desk.question(block)
            storage, replicas = shared.storages[rollout % 2], shared.desk.crew.blocks[block]
            asked = due(storage, [(replicas, step)])
            if asked.act is not None:
                seen = storage.gather(asked.act)["observation"]
                counting.verify(seen)
                place = (asked.act.replicas, asked.act.steps)
                storage.action[place] = counting.expected_action(seen)
                storage.log_prob[place] = seen[..., 3]
                storage.value[place] = rollout
            for rows in (asked.final, asked.behind):
                if rows is not None:
                    counting.verify(storage.gather(rows)["observation"])
                    behind = rows.steps if rows.final else rows.steps - 1
                    storage.bootstrap[rows.replicas, behind] = BEHIND
            shared.desk.answer(block)

    return answer


class Learner:
    """Learns nothing: checks that every observation, action, reward and end is in its place."""

    def __init__(
        self, experiment: Experiment, shared: Shared, computing: Computing, beside: object = None
    ) -> None:
        policy = computing.make_policy()
        self.checked = 0
        self.kept = Kept.fresh(experiment, policy.size, policy.agents)
        self._last: Array | None = None

    def update(
        self, storage: Storage, behaviour: Version, newest: Version, updates: int
    ) -> tuple[Version, dict[str, float]]:
        """The same parameters again, once everything is found to be right."""
        seen = storage.arrays["frames.observation"][:, storage.sizes.history :]
        counting.verify(seen)
        now, after = seen[:, :-1], seen[:, 1:]
        assert (storage.action == counting.expected_action(now)).all(), "another one's action"
        assert (storage.reward == counting.expected_reward(now)).all(), "another one's reward"
        assert (storage.log_prob == now[..., 3]).all(), (
            "what the actor read is not what stands here"
        )
        assert (storage.value == behaviour.number).all(), "I3: acted with another version"
        end = counting.expected_end(now[:, :, 0])
        assert (storage.terminated == end.terminated).all(), "an end is missing or too much"
        assert (storage.truncated == end.truncated).all(), "a truncation is missing or too much"
        ended = end.terminated | end.truncated
        counting.follows(now[~ended], storage.action[~ended], after[~ended])
        assert (after[ended][..., 3] == 0).all(), "an episode that ended goes on"
        self._bootstraps(storage, end, ended)
        if self._last is not None:
            assert (seen[:, 0] == self._last).all(), "a rollout begins where the last one ended"
        self._last = seen[:, -1].copy()
        self.checked += now.shape[0] * now.shape[1]
        told = {"observations": float(self.checked)}
        return Version(newest.number + 1, newest.parameters.clone()), told

    @staticmethod
    def _bootstraps(storage: Storage, end: counting.End, ended: Array) -> None:
        expected = np.where(end.truncated, BEHIND, 0.0)
        expected[:, -1] = np.where(ended[:, -1], expected[:, -1], BEHIND)
        found = storage.bootstrap
        assert (found == expected[:, :, None]).all(), "a value behind an end is missing or too much"

    def learnt(self, made: Version) -> Array:
        """What the digest sees."""
        return made.parameters.numpy()

    def close(self) -> None:
        """There is nothing to end."""
