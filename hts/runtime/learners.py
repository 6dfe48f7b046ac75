"""Who learns in a run, put together over its shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hts.config import PQL, Experiment
from hts.learn.kept import Kept, state_of
from hts.learn.optimisers import make_optimiser
from hts.machine import SharedArray, Sizes, beside_arrays, learnt_arrays, replay_arrays
from hts.memory.learnt import Learnt
from hts.memory.versions import Version
from hts.models.critics import Critics
from hts.models.policy import Policy
from hts.models.spaces import critic_fields, policy_fields
from hts.replay.ring import Ring
from hts.roles import p_learner
from hts.roles.learner import Learner
from hts.roles.p_learner import PLearner
from hts.roles.pace import Pace, by_clock, by_count
from hts.roles.q_learner import Beside, PTurns, QLearner
from hts.roles.v_learner import VLearner
from hts.runtime.shared import Shared
from hts_envs.contract import Array, Spaces


@dataclass(frozen=True)
class Tables:
    """What learners share: what each keeps, and what they learn from again and again."""

    kept: tuple[SharedArray, ...]
    beside: tuple[SharedArray, ...] = ()
    replay: tuple[SharedArray, ...] = ()


def tables(experiment: Experiment, spaces: Spaces, policy: Policy) -> Tables:
    """The arrays of this experiment's learners."""
    algo = experiment.algo
    if not isinstance(algo, PQL):
        return Tables(learnt_arrays(Kept.fresh(experiment, policy.size, spaces.agents).arrays()))
    size = Critics(experiment, spaces).size

    def state(count: int) -> Mapping[str, Array]:
        return state_of(make_optimiser(algo.optimiser, count, algo.optimiser_epsilon))

    critics = np.zeros(size, np.float32)
    v: dict[str, Array] = {"critics": critics, "target": critics, **state(size)}
    told, parameters = np.zeros(len(p_learner.TOLD)), np.zeros(policy.size, np.float32)
    p: dict[str, Array] = {"parameters": parameters, "told": told, **state(policy.size)}
    seen = {**policy_fields(experiment, spaces), **critic_fields(experiment, spaces)}
    sizes = Sizes.of(experiment, spaces)
    replay = replay_arrays(sizes, experiment.windows, seen, spaces.action)
    return Tables(learnt_arrays(v), beside_arrays(p), replay)


def is_beside(experiment: Experiment) -> bool:
    """The P-learner works at the same time as the learner, in a process of its own."""
    return isinstance(experiment.algo, PQL) and experiment.schedule == "hts"


@dataclass(frozen=True)
class Computing:
    """How a learner computes."""

    make_policy: Callable[[], Policy]
    workers: int = 1
    padding: int = 1  # of what is looked at together
    ratio_error_limit: float = 0.0  # of an update's first minibatch


def learner_for(
    experiment: Experiment, shared: Shared, computing: Computing, beside: Beside | None = None
) -> Learner | QLearner:
    """The learner of an experiment; `beside` makes the policy where somebody else does."""
    if not isinstance(experiment.algo, PQL):
        policy = computing.make_policy()
        limit = computing.ratio_error_limit
        return Learner(experiment, policy, computing.workers, computing.padding, limit)
    ring = ring_of(experiment, shared)
    pace = _pace(experiment, shared)
    critics = VLearner(experiment, computing.make_policy, ring, computing.workers, pace)
    return QLearner(experiment, critics, ring, beside or p_turns(experiment, shared, computing))


def p_turns(experiment: Experiment, shared: Shared, computing: Computing) -> PTurns:
    """The P-learner's turns."""
    assert shared.beside is not None, "an off-policy run has a place for its policy"
    ring = ring_of(experiment, shared)
    learner = PLearner(experiment, computing.make_policy, ring, _pace(experiment, shared))
    return PTurns(experiment, learner, ring, shared.beside)


def _pace(experiment: Experiment, shared: Shared) -> Pace:
    """How many updates a turn of an off-policy run has."""
    if experiment.is_paced_by_clock:
        return by_clock(shared.desk.is_complete, experiment.updates)
    return by_count


def ring_of(experiment: Experiment, shared: Shared) -> Ring:
    """The replay of an off-policy run."""
    return Ring(shared.replay, experiment.rollout)


class Away:
    """The P-learner is a process of its own, which sees by itself when its turn has come."""

    def __init__(self, learnt: Learnt, wait: Callable[[], None]) -> None:
        self._learnt = learnt
        self._wait = wait

    def take(self, turn: int, newest: Version, critics: Array) -> None:
        """It reads what the learner has kept after the turn before."""

    def made(self, turn: int) -> Mapping[str, Array]:
        while self._learnt.updates <= turn:
            self._wait()
        return self._learnt.kept()
