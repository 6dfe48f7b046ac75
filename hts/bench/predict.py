"""What a machine that is not there would reach with a simulator that was measured.

From the step times of one replica follow, for any number of replicas and length of rollout, the
steps per second of each schedule: who waits for whom (`hts.bench.model`), and no more than so many
cores compute. The asynchronous bound is that of a machine in which no replica ever waits for
another one; no version is known to anybody there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import numpy as np

from hts.bench.model import Dataflow, GammaTimes, Schedule, StepTimes, cpu_limit, simulate
from hts_envs.contract import Array
from hts_envs.randomness import fold_rows, uniform

How: TypeAlias = Schedule | Literal["asynchronous"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
BOUND: Literal["asynchronous"] = "asynchronous"

NEAR = 0.95  # of the best is as good as the best
_DRAWN = 400_000  # rollouts of replicas: the mean of thousands settles in fewer rollouts
_ROLLOUTS = (250, 3000)
_STEADIEST = 1e6  # shape of a gamma distribution that is a constant to six digits
_RESETS = 1  # what is drawn apart from the steps


@dataclass(frozen=True)
class ProfiledTimes(StepTimes):
    """Steps with a measured mean and deviation, and a reset behind each end of an episode."""

    seconds: float
    deviation: float = 0.0
    reset: float = 0.0  # seconds of one
    length: float | None = None  # steps of an episode, where it ends by itself

    @property
    def mean(self) -> float:
        return self.seconds + (self.reset / self.length if self.length else 0.0)

    @property
    def shape(self) -> float:
        """Of the gamma distribution that has this mean and deviation."""
        spread = self.deviation / self.seconds
        return _STEADIEST if spread**2 * _STEADIEST < 1.0 else 1.0 / spread**2

    def parts(self, rollouts: int, replicas: int, alpha: int) -> Array:
        stepping = GammaTimes(self.seconds, self.shape).parts(rollouts, replicas, alpha)
        if not self.length or not self.reset:
            return stepping
        keys = fold_rows(alpha, _RESETS, np.arange(rollouts * replicas))
        drawn = uniform(keys, 1)[:, 0]
        ends = np.searchsorted(_binomial(alpha, min(1.0, 1.0 / self.length)), drawn)
        return np.asarray(stepping + self.reset * ends.reshape(stepping.shape))


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """A simulator as it was measured, and what else each step costs."""

    times: ProfiledTimes
    rows: int = 1  # replicas behind one call
    cpu: float = 0.0  # seconds that one step of one replica computes
    answer: float = 0.0  # seconds between an observation and its action
    learning: float = 0.0  # seconds of an update for each of its steps


@dataclass(frozen=True)
class Prediction:
    """Steps per second of all replicas, and whether the cores are what limits them."""

    how: How
    replicas: int
    alpha: int
    steps_per_second: float
    computing: bool


def predict(
    simulator: Simulator, replicas: Sequence[int], rollouts: Sequence[int], cores: int
) -> list[Prediction]:
    """Every schedule for every number of replicas and length of rollout."""
    times = _Once(simulator.times)
    cpu = simulator.cpu + simulator.answer + simulator.learning
    most = cpu_limit(cores, cpu) if cpu else math.inf
    found = []
    for count in replicas:
        for alpha in rollouts:
            bound = _bound(simulator, count)
            for how in (*SCHEDULES, BOUND):
                flowing = bound if how == BOUND else _flow(times, simulator, count, alpha, how)
                reached = float(min(flowing, bound, most))  # chance may have drawn short steps
                found.append(Prediction(how, count, alpha, reached, bool(most <= reached)))
    return found


class _Once(StepTimes):
    """The same draws for each schedule, made once."""

    def __init__(self, times: StepTimes) -> None:
        self._mean = times.mean
        self._parts = lru_cache(maxsize=1)(times.parts)

    @property
    def mean(self) -> float:
        return self._mean

    def parts(self, rollouts: int, replicas: int, alpha: int) -> Array:
        return self._parts(rollouts, replicas, alpha)


def _bound(simulator: Simulator, replicas: int) -> float:
    """Steps per second where nobody waits but for the learner, which cannot learn faster."""
    rows = simulator.rows
    stepping = -(-replicas // rows) * rows / (simulator.times.mean + simulator.answer * rows)
    return min(stepping, 1.0 / simulator.learning) if simulator.learning else stepping


def _flow(
    times: StepTimes, simulator: Simulator, replicas: int, alpha: int, schedule: Schedule
) -> float:
    """Steps per second where executors never lack a core."""
    rows, latency = simulator.rows, simulator.answer * simulator.rows
    blocks = -(-replicas // rows)
    machine = Dataflow(
        replicas=blocks,
        alpha=alpha,
        schedule=schedule,
        learning=simulator.learning * blocks * rows * alpha,
        latency=latency,
    )
    settled = int(np.clip(_DRAWN // blocks, *_ROLLOUTS))
    return simulate(times, machine, settled).steps_per_second * rows


def _binomial(count: int, share: float) -> Array:
    """How likely at most 0, 1, 2... of so many steps are the last ones of their episodes."""
    if share >= 1.0:
        return np.concatenate([np.zeros(count), [1.0]])
    k = np.arange(1, count + 1)
    steps = np.log((count - k + 1) / k) + np.log(share) - np.log1p(-share)
    logs = count * np.log1p(-share) + np.concatenate([[0.0], np.cumsum(steps)])
    return np.asarray(np.minimum(np.cumsum(np.exp(logs)), 1.0))


@dataclass(frozen=True)
class Advice:
    """What to choose: beyond these, more of it brings next to nothing."""

    replicas: int
    rollout: int
    steps_per_second: float
    best: float  # of all that was looked at
    ends: bool  # some of what was looked at is too much


def advise(found: Sequence[Prediction], how: How = "hts") -> Advice:
    """The fewest replicas, then the shortest rollout, that come near the best of a schedule."""
    ours = [each for each in found if each.how == how]
    best = max(each.steps_per_second for each in ours)
    near = [each for each in ours if each.steps_per_second >= NEAR * best]
    replicas = min(each.replicas for each in near)
    chosen = min((each for each in near if each.replicas == replicas), key=lambda each: each.alpha)
    most = max(each.replicas for each in ours)
    return Advice(replicas, chosen.alpha, chosen.steps_per_second, best, replicas < most)


def shortest(found: Sequence[Prediction], how: How, replicas: int) -> Prediction:
    """The shortest rollout that comes near the best of a schedule with so many replicas."""
    ours = [each for each in found if each.how == how and each.replicas == replicas]
    best = max(each.steps_per_second for each in ours)
    near = [each for each in ours if each.steps_per_second >= NEAR * best]
    return min(near, key=lambda each: each.alpha)
