"""The two claims of the HTS-RL paper as formulas, beside simulations of what they say.

Claim 1. n replicas make K states in rollouts of alpha steps; each step takes a time drawn from the
exponential distribution of rate beta, each answer c; all wait for the slowest. With F the gamma
distribution of shape alpha and rate beta, q = F^-1(1 - 1/n) and g the Euler-Mascheroni constant:

    E[T]  ->  K / (n alpha) * (g / beta * (1 + (alpha - 1) / (beta q)) + q)  +  K c / n

Claim 2. Without synchronisation, n actors that each send at rate lambda are a queue in front of a
learner of rate mu. With n r = n lambda / mu < 1 the data that is learnt from is E[L] = n r /
(1 - n r) updates old; from n r = 1 on it ages without a bound. Here the lag is one, always.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hts.bench.model import Dataflow, GammaTimes, simulate
from hts_envs.randomness import fold_rows, uniform

_CUSTOMERS = 2_000_000  # settle the mean of a queue that is 90 % busy within a few percent
_WARM_CUSTOMERS = 100_000


@dataclass(frozen=True, kw_only=True)
class Synchronised:
    """The setting of claim 1: rates in steps per second of one replica, `answer` in seconds."""

    replicas: int
    alpha: int
    rate: float = 1.0
    answer: float = 0.0


def seconds_by_formula(setting: Synchronised, states: int) -> float:
    """Claim 1, for two replicas or more."""
    n, alpha, beta = setting.replicas, setting.alpha, setting.rate
    assert n > 1, "a single replica waits for nobody"
    q = _gamma_quantile(1.0 - 1.0 / n, alpha) / beta
    slowest = np.euler_gamma / beta * (1.0 + (alpha - 1) / (beta * q)) + q
    return float(states / (n * alpha) * slowest + states * setting.answer / n)


def seconds_by_simulation(setting: Synchronised, states: int) -> float:
    """What claim 1 is about, with the barrier, rollout after rollout."""
    machine = Dataflow(
        replicas=setting.replicas,
        alpha=setting.alpha,
        schedule="hts_barrier",
        latency=setting.answer,
    )
    return states / simulate(GammaTimes(1.0 / setting.rate), machine).steps_per_second


def lag_by_formula(actors: int, rate: float, learning_rate: float) -> float:
    """Claim 2; infinite where data comes faster than it is learnt from."""
    busy = actors * rate / learning_rate
    return busy / (1.0 - busy) if busy < 1.0 else math.inf


def lag_by_simulation(actors: int, rate: float, learning_rate: float) -> float:
    """What claim 2 is about: how much is in the queue, from how long each piece is in it."""
    busy = actors * rate / learning_rate
    if busy >= 1.0:
        return math.inf
    drawn = -np.log1p(-uniform(fold_rows(actors, np.arange(_CUSTOMERS)), 2))
    between, served = drawn[:, 0] / (actors * rate), drawn[:, 1] / learning_rate
    # A piece waits for what is left when it comes: sums that are never below nothing.
    left = np.cumsum(np.concatenate([[0.0], served[:-1] - between[1:]]))
    waited = left - np.minimum.accumulate(left)
    inside = (waited + served)[_WARM_CUSTOMERS:].mean()
    return float(inside * actors * rate)


def _gamma_quantile(share: float, shape: int) -> float:
    """Of the gamma distribution of a whole shape and rate 1: a sum of exponential times."""
    low, high = 0.0, 10.0 * (shape + 10.0) + 10.0 * math.log(1.0 / (1.0 - share))
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _gamma_share(middle, shape) < share else (low, middle)
    return low


def _gamma_share(x: float, shape: int) -> float:
    """How much of that distribution lies below x: at least `shape` events of a Poisson process."""
    if x <= 0.0:
        return 0.0
    logs = (k * math.log(x) - x - math.lgamma(k + 1.0) for k in range(shape))
    return 1.0 - math.fsum(map(math.exp, logs))
