"""Losses of one shard: sums over its rows, so that shards of a minibatch can be added."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hts.config import A2C, PPO
from hts.models.distributions import Distribution
from hts.models.policy import Answer


@dataclass(frozen=True)
class Shard:
    """What is learnt from: one row for each agent of each (replica, step).

    `log_prob` belongs to the policy that ratios are taken against; `weight` corrects for old data.
    """

    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor
    weight: Tensor

    def __post_init__(self) -> None:
        rows = (len(self.action),)
        for column in (self.log_prob, self.value, self.advantage, self.target, self.weight):
            assert column.shape == rows, "one number for each row"


@dataclass(frozen=True)
class Losses:
    """Sums over the rows of a shard; `total` is what is descended, the others are for people."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor
    clipped: Tensor
    ratio_error: Tensor


def a2c_loss(config: A2C, actions: Distribution, answer: Answer, shard: Shard) -> Losses:
    """Policy gradient with advantages, squared error of values, entropy bonus."""
    log_prob = actions.log_prob(answer.head, shard.action)
    policy = -(log_prob * shard.advantage * shard.weight).sum()
    value = (answer.value - shard.target).square().sum()
    entropy = actions.entropy(answer.head).sum()
    total = policy + config.value_coefficient * value - config.entropy_coefficient * entropy
    log_ratio = (log_prob - shard.log_prob).detach()
    return Losses(total, policy, value, entropy, *_drift(log_ratio, None))


def ppo_loss(config: PPO, actions: Distribution, answer: Answer, shard: Shard) -> Losses:
    """Clipped surrogate, half the squared error of values (clipped if asked), entropy bonus."""
    log_prob = actions.log_prob(answer.head, shard.action)
    log_ratio = log_prob - shard.log_prob
    ratio = log_ratio.exp()
    advantage = shard.advantage * shard.weight
    clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
    policy = -torch.minimum(ratio * advantage, clipped * advantage).sum()
    value = 0.5 * _value_error(config, answer.value, shard).sum()
    entropy = actions.entropy(answer.head).sum()
    total = policy + config.value_coefficient * value - config.entropy_coefficient * entropy
    return Losses(total, policy, value, entropy, *_drift(log_ratio.detach(), config.clip))


def _value_error(config: PPO, value: Tensor, shard: Shard) -> Tensor:
    error = (value - shard.target).square()
    if config.value_clip is None:
        return error
    near = shard.value + (value - shard.value).clamp(-config.value_clip, config.value_clip)
    return torch.maximum(error, (near - shard.target).square())


def _drift(log_ratio: Tensor, clip: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """How far the policy has moved: KL estimate, rows that are clipped, largest |ratio - 1|."""
    ratio = log_ratio.exp()
    kl = (ratio - 1.0 - log_ratio).sum()
    far = (ratio - 1.0).abs()
    clipped = (far > clip).float().sum() if clip is not None else torch.zeros(())
    return kl, clipped, far.max()
