"""Losses of some rows: sums, so that those of the shards of a minibatch can be added.

Their gradients by a policy's answer are formulas, too, with the bits of autograd's: that walks
over some fifty nodes for them, which in a small net takes as long as all of its layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from hts.config import A2C, PPO
from hts.models.distributions import Distribution
from hts.models.network import Answer


@dataclass(frozen=True)
class Columns:
    """What is learnt from: one row for each agent of each (replica, step).

    `log_prob` belongs to the policy that ratios are taken against; `advantage` is weighted already
    where old data is corrected for.
    """

    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor

    def __post_init__(self) -> None:
        rows = self.action.shape[:1]
        for column in (self.log_prob, self.value, self.advantage, self.target):
            assert column.shape == rows, "one number for each row"


class Slopes(NamedTuple):
    """The gradient of what is descended, by a policy's answer to each row."""

    head: Tensor
    value: Tensor


@dataclass(frozen=True)
class Losses:
    """Sums over rows, of which one is descended: policy + weight * value - weight * entropy."""

    policy: Tensor
    value: Tensor
    entropy: Tensor
    log_ratio: Tensor  # of each row

    @property
    def ratio_error(self) -> Tensor:
        """The largest |ratio - 1|: exactly 0 at the parameters that `log_prob` is of."""
        return (self.log_ratio.exp() - 1.0).abs().max()


class Shares(NamedTuple):
    """What of a row's policy, value and entropy is descended, where that is a mean over rows."""

    policy: float
    value: float
    entropy: float

    @staticmethod
    def of(config: A2C | PPO, rows: int) -> Shares:
        """float32, as all that they are multiplied with."""
        one = np.float32(1.0) / np.float32(rows)
        value = one * np.float32(config.value_coefficient)
        entropy = one * np.float32(config.entropy_coefficient)
        return Shares(float(one), float(value), float(entropy))


def told(losses: Sequence[Losses], clip: float | None) -> Tensor:
    """The sums of all of them in the order of `TOLD`.

    They stay a tensor where the network is: a number asked for would make the host wait.
    """
    log_ratio = torch.cat([each.log_ratio for each in losses])
    ratio = log_ratio.exp()
    kl = (ratio - 1.0 - log_ratio).sum()
    clipped = ((ratio - 1.0).abs() > clip).float().sum() if clip else torch.zeros_like(kl)
    sums = zip(*((each.policy, each.value, each.entropy) for each in losses), strict=True)
    added = [torch.stack(kind).sum() for kind in sums]
    return torch.stack([*added, kl, clipped])


TOLD = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")
"""What an update says about itself, for each row."""


Descended: TypeAlias = tuple[Losses, Slopes]


def a2c_loss(
    config: A2C, actions: Distribution, answer: Answer, columns: Columns, rows: int
) -> Descended:
    """Policy gradient with advantages, squared error of values, entropy bonus."""
    said, share = actions.judged(answer.head, columns.action), Shares.of(config, rows)
    error = answer.value - columns.target
    losses = Losses(
        policy=-(said.log_prob * columns.advantage).sum(),
        value=error.square().sum(),
        entropy=said.entropy.sum(),
        log_ratio=said.log_prob - columns.log_prob,
    )
    head = said.back(columns.advantage * -share.policy, -share.entropy)
    return losses, Slopes(head, error * (2.0 * share.value))


def ppo_loss(
    config: PPO, actions: Distribution, answer: Answer, columns: Columns, rows: int
) -> Descended:
    """Clipped surrogate, half the squared error of values (clipped if asked), entropy bonus."""
    said, share = actions.judged(answer.head, columns.action), Shares.of(config, rows)
    log_ratio = said.log_prob - columns.log_prob
    ratio = log_ratio.exp()
    free = ratio * columns.advantage
    held = ratio.clamp(1.0 - config.clip, 1.0 + config.clip) * columns.advantage
    error, slope = _value_error(config, answer.value, columns, share.value)
    losses = Losses(
        policy=-torch.minimum(free, held).sum(),
        value=0.5 * error.sum(),
        entropy=said.entropy.sum(),
        log_ratio=log_ratio,
    )
    # A row whose ratio is held pushes no further; all others do, and so does what is no number.
    pushes = (columns.advantage * -share.policy).mul_(ratio).masked_fill_(free > held, 0.0)
    return losses, Slopes(said.back(pushes, -share.entropy), slope)


def _value_error(
    config: PPO, value: Tensor, columns: Columns, share: float
) -> tuple[Tensor, Tensor]:
    """The squared error of each row, and the slope of half of it, of which this is the share."""
    away = value - columns.target
    error, slope = away.square(), away * share
    if config.value_clip is None:
        return error, slope
    moved = value - columns.value
    near = columns.value + moved.clamp(-config.value_clip, config.value_clip) - columns.target
    held = near.square()
    held_slope = near.mul_(share).masked_fill_(moved.abs() > config.value_clip, 0.0)
    slope = torch.where(error == held, 0.5 * (slope + held_slope), slope)
    return torch.maximum(error, held), torch.where(error < held, held_slope, slope)
