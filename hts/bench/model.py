"""How fast a machine can be at best: pure functions of measured costs, no clocks.

A task that computes is limited by the CPU: cores / CPU seconds of one sample. A simulator that
waits is limited by who waits for whom. With N replicas, rollouts of alpha steps, and everything
else free, the machine is a dataflow of named versions:

    hts          replica r begins its part of D_v when theta_v is published and its part of
                 D_{v-1} is ready; theta_{v+2} is made of D_v, after theta_{v+1}
    hts_barrier  the same, but D_v begins for all replicas at once, when all of D_{v-1} is there
    sync         D_v begins when theta_v is published, and theta_{v+1} is made of D_v

A part of a rollout is alpha steps, each as long as its simulator takes and an answer is under
way. Only sums of alpha steps matter: of gamma distributed steps they are gamma distributed too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from hts_envs.contract import Array
from hts_envs.randomness import fold_rows, uniform
from hts_envs.sleeper import gamma

Schedule: TypeAlias = Literal["hts", "hts_barrier", "sync"]

_ROLLOUTS = 3000  # settles the mean of the slowest of 16 within a percent
_WARM_ROLLOUTS = 20  # until replicas have drifted as far apart as they will
_DRAWN_AT_ONCE = 2**20


class StepTimes(ABC):
    """How long a step of one replica takes, in seconds, its share of resets included."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """Seconds of one step."""

    @abstractmethod
    def parts(self, rollouts: int, replicas: int, alpha: int) -> Array:
        """Seconds of `alpha` steps in a row: (rollouts, replicas)."""


@dataclass(frozen=True)
class GammaTimes(StepTimes):
    """Steps from a gamma distribution; shape 1 is the exponential one, a larger one steadier."""

    seconds: float
    shape: float = 1.0

    @property
    def mean(self) -> float:
        return self.seconds

    def parts(self, rollouts: int, replicas: int, alpha: int) -> Array:
        keys = fold_rows(alpha, np.arange(rollouts * replicas))
        drawn = gamma(keys, self.shape * alpha) * (self.seconds / self.shape)
        return drawn.reshape(rollouts, replicas)


@dataclass(frozen=True)
class MeasuredTimes(StepTimes):
    """Steps drawn from those that were measured."""

    measured: Array

    @property
    def mean(self) -> float:
        return float(self.measured.mean())

    def parts(self, rollouts: int, replicas: int, alpha: int) -> Array:
        rows = np.arange(rollouts * replicas)
        at_once = max(1, _DRAWN_AT_ONCE // alpha)
        sums = [self._sums(rows[i : i + at_once], alpha) for i in range(0, len(rows), at_once)]
        return np.concatenate(sums).reshape(rollouts, replicas)

    def _sums(self, rows: Array, alpha: int) -> Array:
        places = uniform(fold_rows(alpha, rows), alpha) * len(self.measured)
        return np.asarray(self.measured[places.astype(np.int64)].sum(axis=1))


@dataclass(frozen=True)
class KnownTimes(StepTimes):
    """The very steps of a run: (replicas, steps), from its first one on."""

    known: Array

    @property
    def mean(self) -> float:
        return float(self.known.mean())

    def parts(self, rollouts: int, replicas: int, alpha: int) -> Array:
        steps = self.known[:, : rollouts * alpha].reshape(replicas, rollouts, alpha)
        return np.asarray(steps.sum(-1).T)


@dataclass(frozen=True, kw_only=True)
class Dataflow:
    """A machine whose executors never lack a core: what its replicas and its learner wait for.

    `learning` is the time of one update; `latency` what passes in each step between an
    observation and its action.
    """

    replicas: int
    alpha: int
    schedule: Schedule = "hts"
    learning: float = 0.0
    latency: float = 0.0


@dataclass(frozen=True)
class Flow:
    """How a dataflow goes on in the long run."""

    steps_per_second: float
    factor: float  # time of a rollout over the time it would take if nobody ever waited


def simulate(
    times: StepTimes, machine: Dataflow, rollouts: int = _ROLLOUTS, warm: int = _WARM_ROLLOUTS
) -> Flow:
    """So many rollouts behind the first ones; by default, until the mean of their times has
    settled."""
    parts = times.parts(warm + rollouts, machine.replicas, machine.alpha)
    made = _PUBLISHED[machine.schedule](parts + machine.alpha * machine.latency, machine.learning)
    seconds = (made[-1] - made[warm - 1]) / rollouts
    ideal = machine.alpha * times.mean
    return Flow(machine.replicas * machine.alpha / seconds, seconds / ideal)


def _hts(parts: Array, learning: float) -> Array:
    """When the version is published that is made of each rollout: theta_{v+2} of D_v."""
    made = np.zeros(len(parts) + 2)  # theta_0 and theta_1 are there at once
    ready = np.zeros(parts.shape[1])  # of each replica, its part of the rollout before
    for v, part in enumerate(parts):
        ready = np.maximum(ready, made[v]) + part
        made[v + 2] = max(ready.max(), made[v + 1]) + learning
    return made[2:]


def _hts_barrier(parts: Array, learning: float) -> Array:
    """The same with the swap: what the slowest replica takes is what all of them take."""
    made = np.zeros(len(parts) + 2)
    complete = 0.0
    for v, part in enumerate(parts):
        complete = max(complete, made[v]) + part.max()
        made[v + 2] = max(complete, made[v + 1]) + learning
    return made[2:]


def _sync(parts: Array, learning: float) -> Array:
    """In turn: theta_{v+1} of D_v."""
    return np.asarray(np.cumsum(parts.max(axis=1) + learning))


_PUBLISHED = {"hts": _hts, "hts_barrier": _hts_barrier, "sync": _sync}


def cpu_limit(cores: int, cpu_per_sample: float) -> float:
    """Samples per second when every core computes all the time."""
    return cores / cpu_per_sample
