"""Returns and advantages over one rollout: pure functions on arrays of (replica, step, agent).

Replicas are independent and every operation is one correctly rounded addition or multiplication
of float64, so the result of a replica is the same bits whatever else is computed beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hts_envs.contract import Array


@dataclass(frozen=True)
class Trace:
    """What a rollout says about values.

    `bootstrap` is the value behind a step where the rollout cannot say it itself: of the final
    observation of a truncated episode, and of the observation behind the last step. It is zero
    everywhere else.
    """

    reward: Array
    value: Array
    bootstrap: Array
    terminated: Array
    truncated: Array

    def __post_init__(self) -> None:
        assert self.reward.ndim == 3, "rewards are (replica, step, agent)"
        assert self.reward.shape == self.value.shape == self.bootstrap.shape, "one of each"
        assert self.terminated.shape == self.truncated.shape == self.reward.shape[:2], "two flags"


def advantages(trace: Trace, gamma: float, gae_lambda: float) -> Array:
    """Generalised advantage estimates, float64.

    terminated: nothing follows. truncated: the final observation's value follows, and the trace
    is cut as well. Both at once: terminated wins.
    """
    value = trace.value.astype(np.float64)
    ended = (trace.terminated | trace.truncated)[:, :, None]
    terminated = trace.terminated[:, :, None]
    follows = np.where(terminated, 0.0, trace.bootstrap.astype(np.float64))
    follows[:, :-1] += np.where(ended[:, :-1], 0.0, value[:, 1:])
    delta = trace.reward.astype(np.float64) + gamma * follows - value
    going_on = np.where(ended, 0.0, gamma * gae_lambda)
    found = np.empty_like(delta)
    running = np.zeros_like(delta[:, 0])
    for step in range(delta.shape[1] - 1, -1, -1):
        running = delta[:, step] + going_on[:, step] * running
        found[:, step] = running
    return found


def normalised(advantage: Array, *, each: bool) -> Array:
    """Advantages (minibatches, rows, agents) with zero mean and unit deviation in each minibatch:
    over all, or `each` agent's.

    A single one is left as it is.
    """
    _, rows, agents = advantage.shape
    axis = 1 if each else (1, 2)
    if (rows if each else rows * agents) == 1:
        return advantage
    centred = advantage - advantage.mean(axis, keepdims=True)
    deviation = np.sqrt(np.square(centred).mean(axis, keepdims=True))
    return np.asarray(centred / (deviation + 1e-8))
