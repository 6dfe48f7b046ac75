"""A machine for this simulator: a starting point with reasons, never part of a result.

The rollout length comes from a simulation of the machine's own dependencies. Replica r begins its
part of rollout v when the parameters of v are published and its own part of v-1 is done; they are
published when all parts of rollout v-2 are in. With times drawn from the measured steps this says
how much is lost to waiting for the slowest, whatever the distribution is.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np

from hts.soundness.profile import Profile
from hts_envs.contract import Array
from hts_envs.randomness import fold_rows, uniform

LOSS_MAX = 0.05
"""So much of the time may be lost to unevenness."""

ROLLOUTS = tuple(2**power for power in range(3, 13))
"""From the shortest that is worth an update to the longest that still learns often."""

_SIMULATED_STEPS = 10_000  # of each replica, which settles the mean within a percent
_SIMULATED_ROLLOUTS = 24  # at least
_REPLICAS = 16  # batches of this size cost the actor half of what single rows do
_REPLICAS_MAX = 64


@dataclass(frozen=True)
class Suggestion:
    """Each number with the sentence that explains it."""

    executors: int
    replicas: int
    rollout: int
    executors_why: str
    replicas_why: str
    rollout_why: str


@dataclass(frozen=True)
class Resources:
    """What there is to share; memory in bytes, None where it is not known."""

    cores: int
    memory: int | None = None
    memory_of_replica: float | None = None


def resources(memory_of_replica: float | None) -> Resources:
    """Those of the machine we run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        memory = None
    return Resources(cores, memory, memory_of_replica)


def suggest(profile: Profile, there: Resources) -> Suggestion:
    """Executors, replicas of each, and the rollout length for what was measured."""
    executors, executors_why = _executors(profile, there.cores)
    replicas, replicas_why = _replicas(profile, there, executors)
    costs = profile.costs()
    together = min(_REPLICAS_MAX, max(2, executors * replicas // profile.replicas))
    rollout, loss = rollout_length(costs, together)
    uneven = f"steps and their resets deviate by {costs.std() / costs.mean():.0%} of their mean"
    why = f"shortest with at most {LOSS_MAX:.0%} lost to waiting ({loss:.1%} lost; {uneven})"
    if loss > LOSS_MAX:
        why = f"even so {loss:.0%} is lost to waiting: {uneven}"
    return Suggestion(executors, replicas, rollout, executors_why, replicas_why, why)


def _executors(profile: Profile, cores: int) -> tuple[int, str]:
    if profile.cores > 1.5:
        found = max(1, round(cores / profile.cores))
        return found, f"a step keeps {profile.cores:.1f} of {cores} cores busy by itself"
    if profile.waiting > 0.5:
        return cores, f"one for each core; {profile.waiting:.0%} of a step is waiting"
    return cores, f"one for each core; a step computes {1 - profile.waiting:.0%} of its time"


def _replicas(profile: Profile, there: Resources, executors: int) -> tuple[int, str]:
    wanted = max(2, math.ceil(_REPLICAS / executors))
    why = f"{wanted * executors} replicas make batches worth computing"
    if profile.replicas > 1:
        wanted, why = _REPLICAS_MAX, "a batched simulator steps many replicas in one call"
    elif profile.waiting > 0.5:
        filling = math.ceil(1.0 / max(1.0 - profile.waiting, 1.0 / _REPLICAS_MAX))
        if filling > wanted:
            wanted, why = filling, "while one waits for its engine, the others use the core"
    fitting = _fitting(there, executors)
    if fitting < wanted:
        return fitting, f"no more than {fitting} fit into half of the free memory"
    return wanted, why


def _fitting(there: Resources, executors: int) -> int:
    """How many replicas of each executor fit into half of the memory."""
    if there.memory is None or not there.memory_of_replica:
        return _REPLICAS_MAX
    return max(1, int(there.memory / 2 / there.memory_of_replica / executors))


def rollout_length(costs: Array, replicas: int) -> tuple[int, float]:
    """The smallest power of two that loses little enough, and what it loses."""
    loss = 0.0
    for alpha in ROLLOUTS:
        loss = waiting_factor(costs, replicas, alpha) - 1.0
        if loss <= LOSS_MAX:
            return alpha, loss
    return ROLLOUTS[-1], loss


def waiting_factor(costs: Array, replicas: int, alpha: int) -> float:
    """Time per rollout of the machine over the time with no waiting, costs drawn by chance."""
    rollouts = max(_SIMULATED_ROLLOUTS, _SIMULATED_STEPS // alpha)
    rows = np.arange(replicas)
    finished = np.zeros(replicas)
    complete = [0.0, 0.0]  # when rollouts v-2 and v-1 were
    worked = 0.0
    for rollout in range(rollouts):
        drawn = uniform(fold_rows(alpha, rollout, rows), alpha) * len(costs)
        part = costs[drawn.astype(np.int64)].sum(axis=1)
        finished = np.maximum(finished, complete[0]) + part
        complete = [complete[1], float(finished.max())]
        worked += float(part.mean())
    return complete[1] / worked if worked else math.inf  # too rare to have been drawn
