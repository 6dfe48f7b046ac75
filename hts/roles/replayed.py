"""What both learners of an off-policy algorithm draw from the replay, by keys alone.

Update j of turn v draws its rows with keys that name the run, the learner, v and j. So what is
drawn does not depend on who draws it, when, or how often it had to be drawn again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hts.config import PQL, Experiment
from hts.determinism.keys import Purpose, key, keys
from hts.learn.normalise import ObservationScale
from hts.memory.storage import Rows, Storage
from hts.models.policy import uniforms
from hts.replay.ring import BEHIND, SEEN, Asked, Places, Ring, Span
from hts.roles.pace import Pace
from hts_envs.contract import Array, Observation
from hts_envs.randomness import uniform

CRITICS, POLICY = 0, 1
"""Whose update draws."""


@dataclass(frozen=True)
class Batch:
    """Transitions as critics are taught with them; arrays of (rows, ...)."""

    seen: Observation
    action: Array
    reward: Array
    discount: Array
    behind: Observation
    chances: Array  # what the action behind is drawn with

    def shards(self, count: int) -> list[Batch]:
        """Parts of equal size, in order."""
        if count == 1:
            return [self]
        rows = np.split(np.arange(len(self.action)), count)
        return [self._part(slice(part[0], part[-1] + 1)) for part in rows]

    def _part(self, rows: slice) -> Batch:
        seen, behind = (
            {name: array[rows] for name, array in shown.items()}
            for shown in (self.seen, self.behind)
        )
        plain = (self.action[rows], self.reward[rows], self.discount[rows])
        return Batch(seen, *plain, behind, self.chances[rows])


class Replayed:
    """Draws what one of the learners is taught with."""

    def __init__(self, experiment: Experiment, ring: Ring, noise: int, pace: Pace) -> None:
        assert isinstance(experiment.algo, PQL), "what is learnt from a replay"
        self._algo: PQL = experiment.algo
        self._seed = experiment.seed
        self._ring = ring
        self._noise = noise
        self._pace = pace

    def transitions(
        self, turn: int, updates: int, span: Span, scale: ObservationScale, asked: Asked
    ) -> Iterator[Batch]:
        """For the updates of the critics in this turn, where so many are counted."""
        n, gamma = self._algo.n_step, self._algo.gamma
        for places, chances in self._places(CRITICS, turn, updates, span):
            found = self._ring.transitions(places, span.end, n, gamma, asked)
            reward = found.returns.reward * np.float32(self._algo.reward_scale)
            yield Batch(
                scale.apply(found.seen),
                found.action.reshape(len(reward), -1).astype(np.float32, copy=False),
                reward,
                found.returns.discount,
                scale.apply(found.behind),
                chances,
            )

    def seen(
        self, turn: int, updates: int, span: Span, scale: ObservationScale, names: tuple[str, ...]
    ) -> Iterator[tuple[Observation, Array]]:
        """What was seen, for those of the policy, and what its actions are drawn with."""
        for places, chances in self._places(POLICY, turn, updates, span):
            yield scale.apply(self._ring.seen(places, names)), chances

    def _places(
        self, whose: int, turn: int, updates: int, span: Span
    ) -> Iterator[tuple[Places, Array]]:
        for update in self._pace(turn, updates):
            named = key(self._seed, Purpose.REPLAY, whose, turn, update)
            rows = keys(named, Purpose.REPLAY, np.arange(self._algo.batch))
            drawn = uniform(rows, 1)[:, 0]
            chances = uniforms(keys(named, Purpose.EXPLORATION, rows), 1, self._noise)
            yield Places.drawn(drawn, span, self._ring.replicas), chances


def columns(storage: Storage, names: Sequence[str], clip: float | None) -> Mapping[str, Array]:
    """A rollout as the replay holds it: (steps, replicas, ...), of the one agent.

    The observation behind a step is the next one, or, where the episode was cut off, the final one.
    """
    n, t = storage.sizes.replicas, storage.sizes.steps
    replicas, steps = (grid.ravel() for grid in np.indices((n, t)))
    behind = storage.gather(Rows(replicas, steps + 1))
    cut = (storage.truncated & ~storage.terminated).ravel()
    final = storage.gather(Rows(replicas[cut], steps[cut], final=True))
    seen, found = storage.gather(Rows(replicas, steps)), {}
    for name in names:
        behind[name][cut] = final[name]
        for kind, rows in ((SEEN, seen[name]), (BEHIND, behind[name])):
            found[f"{kind}{name}"] = _in_time(rows[:, 0], n, t)
    reward = storage.reward if clip is None else np.clip(storage.reward, -clip, clip)
    return {
        **found,
        "action": storage.action[:, :, 0].swapaxes(0, 1),
        "reward": reward[:, :, 0].T,
        "terminated": storage.terminated.T,
        "truncated": storage.truncated.T,
    }


def _in_time(rows: Array, replicas: int, steps: int) -> Array:
    return rows.reshape(replicas, steps, *rows.shape[1:]).swapaxes(0, 1)
