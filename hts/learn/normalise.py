"""Running statistics, updated once for each rollout: replicas in order, in float64.

Both are immutable: a version of the parameters carries the statistics that it was published with,
and what was computed with them can be computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from hts_envs.contract import Array, Observation

_CLIP = np.float32(10.0)
_EPSILON = 1e-8


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared differences of everything seen so far."""

    count: float
    mean: Array
    squares: Array

    def with_rows(self, rows: Array) -> Moments:
        """After these rows too (Chan's formula)."""
        wide = rows.astype(np.float64)
        count, mean = float(len(wide)), wide.mean(0)
        squares = np.square(wide - mean).sum(0)
        total = self.count + count
        apart = mean - self.mean
        return Moments(
            total,
            self.mean + apart * (count / total),
            self.squares + squares + np.square(apart) * (self.count * count / total),
        )

    @property
    def deviation(self) -> Array:
        return np.sqrt(self.squares / max(self.count, 1.0) + _EPSILON)


@dataclass(frozen=True)
class ObservationScale:
    """Mean and deviation of each number of each field; empty where nothing is normalised.

    They are those of single frames: every frame of a stack (on the last axis) is scaled alike.
    """

    moments: Mapping[str, Moments] = field(default_factory=dict)

    @staticmethod
    def of(shapes: Mapping[str, tuple[int, ...]]) -> ObservationScale:
        return ObservationScale(
            {name: Moments(0.0, np.zeros(shape), np.zeros(shape)) for name, shape in shapes.items()}
        )

    def apply(self, observation: Observation) -> Observation:
        """The observation as the network sees it; before any data: as it is."""
        if not self.moments:
            return observation
        scaled = dict(observation)
        for name, moments in self.moments.items():
            if moments.count:
                seen = observation[name]
                mean = _stacked(moments.mean, seen).astype(np.float32)
                factor = _stacked(1.0 / moments.deviation, seen).astype(np.float32)
                scaled[name] = np.clip((seen - mean) * factor, -_CLIP, _CLIP)
        return scaled

    def with_rollout(self, observation: Observation) -> ObservationScale:
        """After one more rollout of (replica, step, agent, ...) arrays."""
        return ObservationScale(
            {
                name: moments.with_rows(observation[name].reshape(-1, *moments.mean.shape))
                for name, moments in self.moments.items()
            }
        )


def _stacked(single: Array, seen: Array) -> Array:
    """The numbers of one frame, repeated for each frame of a stack."""
    return np.tile(single, seen.shape[-1] // single.shape[-1]) if single.ndim else single


@dataclass(frozen=True)
class RewardScale:
    """The deviation of the discounted return, by which rewards are divided."""

    running: Array
    moments: Moments = Moments(0.0, np.zeros(()), np.zeros(()))

    def with_rollout(self, reward: Array, ended: Array, gamma: float) -> RewardScale:
        """After one more rollout of (replica, step, agent) rewards."""
        running, seen = self.running, np.empty(reward.shape, np.float64)
        for step in range(reward.shape[1]):
            running = running * gamma + reward[:, step]
            seen[:, step] = running
            running = np.where(ended[:, step, None], 0.0, running)
        return replace(self, running=running, moments=self.moments.with_rows(seen.reshape(-1)))

    def apply(self, reward: Array) -> Array:
        return np.clip(reward / float(self.moments.deviation), -_CLIP, _CLIP).astype(np.float32)
