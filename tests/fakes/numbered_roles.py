"""The counting roles with parameters that say which version they are.

Every parameter of version v is the number v. The actor writes what they say beside each action,
so the learner finds out with what was acted, and both find out when they read a version, or
something kept, that is half one and half another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from hts.config import Experiment
from hts.learn.normalise import Moments, RewardScale
from hts.learn.optimisers import Adam
from hts.memory.storage import Rows, Storage
from hts.memory.versions import Published, Version
from hts.roles.actor import due
from hts.roles.executor import Answering
from hts.runtime.jitter import Jitter
from hts.runtime.learners import Computing
from hts.runtime.shared import Inference, Shared, Terms
from hts_envs import counting
from hts_envs.contract import Array
from tests.fakes import counting_roles


def numbered(number: int, size: int) -> Version:
    """A version whose parameters say its number."""
    return Version(number, torch.full((size,), float(number)))


def said(version: Version) -> float:
    """What the parameters say; all of them must agree."""
    found = version.parameters.numpy()
    assert (found == found[0]).all(), f"version {version.number} is torn"
    return float(found[0])


def read(published: Published, rollouts: Iterable[int]) -> dict[int, Version]:
    """The version that each of these rollouts is made with."""
    return {rollout: published.read(rollout) for rollout in rollouts}


def newest(stack: Array, width: int) -> Array:
    """The last frame of stacked observations, once the others are found to lead to it."""
    frames = stack.reshape(*stack.shape[:-1], -1, width)
    counting.verify(frames)
    last = frames[..., -1:, :]
    back = np.arange(frames.shape[-2] - 1, -1, -1)
    step = counting.FIELDS.index("step")
    assert (frames[..., :step] == last[..., :step]).all(), "a frame of another episode"
    assert (frames[..., step] == np.maximum(last[..., step] - back, 0)).all(), "another frame"
    return np.asarray(last[..., 0, :])


def age(storage: Storage, rows: Rows) -> Array | None:
    """What is remembered of these rows, if anything is: how many steps their episodes have."""
    state = storage.state_before(rows)
    if state is not None:
        expected = storage.age[rows.replicas, rows.steps] + int(rows.final)
        assert (state == expected[:, None, None]).all(), "another one's memory"
    return state


def count(storage: Storage, rows: Rows) -> None:
    """Remember one step more."""
    state = age(storage, rows)
    if state is not None:
        storage.state[rows.replicas, rows.steps + 1] = state + 1.0


def answering(terms: Terms, _: Inference, shared: Shared, pause: Jitter) -> Answering:
    """Plays what the observation asks for; the value is what the parameters say."""
    published = Published(shared.versions, tuple(terms.memory.blueprint.scaled))
    (width,) = terms.memory.blueprint.spaces.observation["observation"].shape

    def answer(blocks: Sequence[int]) -> None:
        pause("answer")
        questions = {block: shared.desk.question(block) for block in blocks}
        acted_with = read(published, {rollout for rollout, _ in questions.values()})
        for block, (rollout, step) in questions.items():
            storage, replicas = shared.storages[rollout % 2], shared.desk.crew.blocks[block]
            asked = due(storage, [(replicas, step)])
            number = said(acted_with[rollout])
            if asked.act is not None:
                seen = newest(storage.gather(asked.act)["observation"], width)
                place = asked.act.place
                storage.action[place] = counting.expected_action(seen)
                storage.log_prob[place] = seen[..., 3]
                storage.value[place] = number
                count(storage, asked.act)
            for rows in (asked.final, asked.behind):
                if rows is not None:
                    newest(storage.gather(rows)["observation"], width)
                    age(storage, rows)
                    behind = rows.steps if rows.final else rows.steps - 1
                    storage.bootstrap[rows.replicas, behind] = counting_roles.BEHIND
            shared.desk.answer(block)

    return answer


class Learner(counting_roles.Learner):
    """Makes the next number, and keeps how many updates there were in everything that is kept."""

    def __init__(
        self, experiment: Experiment, shared: Shared, computing: Computing, beside: object = None
    ) -> None:
        super().__init__(experiment, shared, computing)
        self._size = computing.make_policy().size

    def update(
        self, storage: Storage, behaviour: Version, newest: Version, updates: int
    ) -> tuple[Version, dict[str, float]]:
        """The next version, once everything is found to be right."""
        assert said(behaviour) == updates, "I3: another version was to be acted with"
        assert said(newest) == newest.number, "I3: another version is the newest"
        self._hold(updates)
        super().update(storage, behaviour, newest, updates)
        self._keep(updates + 1)
        return numbered(newest.number + 1, self._size), {"updates": float(updates + 1)}

    def _hold(self, updates: int) -> None:
        kept = self.kept.arrays()
        wrong = {name: found.tolist() for name, found in kept.items() if (found != updates).any()}
        assert not wrong, f"after {updates} updates was kept: {wrong}"

    def _keep(self, updates: int) -> None:
        optimiser, one = self.kept.optimiser, np.array(float(updates))
        assert isinstance(optimiser, Adam), "the optimiser of these runs"
        optimiser.mean.fill_(updates)
        optimiser.square.fill_(updates)
        optimiser.steps = updates
        running = np.full_like(self.kept.reward_scale.running, updates)
        self.kept.reward_scale = RewardScale(running, Moments(float(updates), one, one))
