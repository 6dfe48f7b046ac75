"""Losses of some rows: sums, so that those of the shards of a minibatch can be added."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hts.config import A2C, PPO
from hts.models.distributions import Distribution
from hts.models.policy import Answer


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


@dataclass(frozen=True)
class Losses:
    """Sums over rows, of which one is descended: policy + weight * value - weight * entropy."""

    policy: Tensor
    value: Tensor
    entropy: Tensor
    log_ratio: Tensor  # of each row
    weights: tuple[float, float]  # of value and of entropy

    def backward(self, rows: int) -> None:
        """Add the gradient of what is descended, divided by `rows`, with the bits of that formula.

        In a small net, arithmetic on single numbers takes as long as on columns: the weights of the
        three are worked out once. (`sums.backward(shares)` would import 40 MB of algebra.)
        """
        sums = torch.stack((self.policy, self.value, self.entropy))
        shares = _shares(rows, self.weights, self.policy.device)
        torch.dot(sums, shares).backward()  # type: ignore[no-untyped-call]

    def detached(self) -> Losses:
        """The same numbers, without what they were made of."""
        sums = (self.policy.detach(), self.value.detach(), self.entropy.detach())
        return Losses(*sums, self.log_ratio, self.weights)

    @property
    def ratio_error(self) -> Tensor:
        """The largest |ratio - 1|: exactly 0 at the parameters that `log_prob` is of."""
        return (self.log_ratio.exp() - 1.0).abs().max()


@functools.cache
def _shares(rows: int, weights: tuple[float, float], device: torch.device) -> Tensor:
    """The gradients of what is descended, by these rows: of policy, value and entropy."""
    one = torch.ones((), device=device) / rows
    return torch.stack((one, one * weights[0], -one * weights[1]))


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


def a2c_loss(config: A2C, actions: Distribution, answer: Answer, columns: Columns) -> Losses:
    """Policy gradient with advantages, squared error of values, entropy bonus."""
    log_prob = actions.log_prob(answer.head, columns.action)
    policy = -(log_prob * columns.advantage).sum()
    value = (answer.value - columns.target).square().sum()
    entropy = _entropy(config, actions, answer.head)
    log_ratio = (log_prob - columns.log_prob).detach()
    return Losses(policy, value, entropy, log_ratio, _weights(config))


def ppo_loss(config: PPO, actions: Distribution, answer: Answer, columns: Columns) -> Losses:
    """Clipped surrogate, half the squared error of values (clipped if asked), entropy bonus."""
    log_ratio = actions.log_prob(answer.head, columns.action) - columns.log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
    policy = -torch.minimum(ratio * columns.advantage, clipped * columns.advantage).sum()
    value = 0.5 * _value_error(config, answer.value, columns).sum()
    entropy = _entropy(config, actions, answer.head)
    return Losses(policy, value, entropy, log_ratio.detach(), _weights(config))


def _weights(config: A2C | PPO) -> tuple[float, float]:
    return config.value_coefficient, config.entropy_coefficient


def _entropy(config: A2C | PPO, actions: Distribution, head: Tensor) -> Tensor:
    """Where it is no part of what is descended, no gradient is computed only to be times 0."""
    return actions.entropy(head if config.entropy_coefficient else head.detach()).sum()


def _value_error(config: PPO, value: Tensor, columns: Columns) -> Tensor:
    error = (value - columns.target).square()
    if config.value_clip is None:
        return error
    near = columns.value + (value - columns.value).clamp(-config.value_clip, config.value_clip)
    return torch.maximum(error, (near - columns.target).square())
