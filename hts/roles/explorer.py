"""An actor whose policy critics teach: it explores, and is asked for no values.

The noise of a replica has a size of its own, from the smallest to the largest over all replicas
(mixed exploration), so that some of them always look far and some look closely. In its first steps
every replica takes random actions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hts.config import PQL, Experiment
from hts.memory.storage import Rows, Storage
from hts.models.exploring import WARM_UP
from hts.models.policy import Policy
from hts.roles.actor import Actor, Due, Question, due
from hts_envs.contract import Array


class Explorer(Actor):
    """See the head of this file."""

    def __init__(
        self, algo: PQL, make_policy: Callable[[], Policy], padding: int, replicas: int
    ) -> None:
        super().__init__(make_policy, padding, replicas)
        self._warm_up = algo.warm_up
        self._deviations = deviations(algo, replicas)

    def _due(self, storage: Storage, questions: Sequence[Question], *, apart: bool) -> Due:
        """Critics value what is behind a step, when it is learnt from."""
        return Due(due(storage, questions).act, None, None)

    def _chances(self, storage: Storage, rows: Rows, policy: Policy) -> Array:
        """Uniforms, and in the last column the size of the noise."""
        drawn = super()._chances(storage, rows, policy)
        taken = storage.version * storage.sizes.steps + rows.steps
        noise = np.where(taken < self._warm_up, WARM_UP, self._deviations[rows.replicas])
        drawn[..., -1] = noise[:, None]
        return drawn


def deviations(algo: PQL, replicas: int) -> Array:
    """The size of each replica's noise, evenly spread between the smallest and the largest."""
    return np.linspace(algo.noise_low, algo.noise_high, replicas).astype(np.float32)


def actor_for(
    experiment: Experiment, make_policy: Callable[[], Policy], padding: int, replicas: int
) -> Actor:
    """Who answers in training."""
    if isinstance(experiment.algo, PQL):
        return Explorer(experiment.algo, make_policy, padding, replicas)
    return Actor(make_policy, padding, replicas)
