"""How sure a mean is: intervals from resampling, the same ones every time.

Which of the samples are drawn is a function of their number alone, so that a picture of the same
runs is the same picture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hts_envs.contract import Array
from hts_envs.randomness import fold, fold_rows, uniform

RESAMPLES = 10_000
_TAIL = 2.5  # per cent on either side


@dataclass(frozen=True, eq=False)
class Interval:
    """A mean, and where it would lie in 95 of 100 repetitions."""

    mean: Array
    low: Array
    high: Array


def bootstrapped(values: Array) -> Interval:
    """Over the first axis, one sample in each row; of a single sample nothing is known but it."""
    samples = len(values)
    assert samples, "there is at least one sample"
    mean = values.mean(axis=0)
    if samples == 1:
        return Interval(mean, mean, mean)
    drawn = _shares(samples) @ values.reshape(samples, -1)
    low, high = ends(drawn)
    return Interval(mean, low.reshape(mean.shape), high.reshape(mean.shape))


def ends(drawn: Array) -> Array:
    """Where 95 of 100 resamplings lie: (2,) and what else the axes behind the first are."""
    return np.percentile(drawn, [_TAIL, 100.0 - _TAIL], axis=0)


def picks(samples: int, group: int = 0) -> Array:
    """Which samples each resampling draws: (resamplings, samples). Groups that are resampled
    beside each other have numbers, so that they draw apart."""
    keys = fold_rows(fold(samples, group) if group else fold(samples), np.arange(RESAMPLES))
    return (uniform(keys, samples) * samples).astype(np.int64)


def _shares(samples: int) -> Array:
    """How much each sample counts in each resampling: (resamplings, samples)."""
    picked = picks(samples)
    counts = (picked[:, :, None] == np.arange(samples)).sum(axis=1)
    return np.asarray(counts / samples)
