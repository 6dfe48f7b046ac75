"""n-step returns of steps in a replay: never across an end, nor past what has been written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hts_envs.contract import Array


@dataclass(frozen=True)
class Steps:
    """What followed each row's step: (rows, n), one column for each step from the first on.

    `written` is False from where on nothing has been recorded yet.
    """

    reward: Array
    terminated: Array
    truncated: Array
    written: Array


@dataclass(frozen=True)
class Returns:
    """Of each row: discounted rewards, what a value behind them counts, and the last step taken."""

    reward: Array
    discount: Array
    last: Array


def returns(steps: Steps, gamma: float) -> Returns:
    """target = reward + discount * value of the observation behind step `last`.

    As many steps are taken as there are: until the first end, or until what is written ends. The
    discount is gamma to the power of the steps that were really taken, and 0 behind a termination.
    """
    assert steps.reward.shape == steps.terminated.shape == steps.truncated.shape
    assert steps.written[:, 0].all(), "a row's own step has been written"
    rows, n = steps.reward.shape
    total = np.zeros(rows, np.float32)
    last = np.zeros(rows, np.int64)
    goes_on = np.ones(rows, bool)
    for step in range(n):
        goes_on = goes_on & steps.written[:, step]
        reward = np.float32(gamma**step) * steps.reward[:, step]
        total = np.where(goes_on, total + reward, total)
        last = np.where(goes_on, step, last)
        goes_on = goes_on & ~(steps.terminated[:, step] | steps.truncated[:, step])
    over = steps.terminated[np.arange(rows), last]
    powers = np.power(gamma, np.arange(1, n + 1)).astype(np.float32)
    return Returns(total, np.where(over, np.float32(0.0), powers[last]), last)
