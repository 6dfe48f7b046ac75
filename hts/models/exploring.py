"""Policies that critics teach: an action in [-1, 1] for each number, and how it is explored.

`chances` are the uniforms that an action is drawn with and, in the last column, the deviation of
the noise that the row's replica explores with; where it is negative, nothing has been learnt yet,
and the action is a random one.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from hts.models.distributions import Continuous, log_slope

WARM_UP = -1.0
"""The deviation of a replica that takes random actions."""

_LOG_LOW, _LOG_HIGH = -5.0, 2.0


class Taught(Continuous):
    """What critics teach; `drawn` lets their gradients through."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.noise = 2 * dimensions + 1

    @abstractmethod
    def drawn(self, head: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
        """What the policy itself does, and the log-probability of that: (rows, n), (rows,)."""

    @abstractmethod
    def _explored(self, head: Tensor, normal: Tensor, deviation: Tensor) -> Tensor:
        """What is done to see what comes of it."""

    def _sample(self, head: Tensor, uniforms: Tensor) -> Tensor:
        deviation = uniforms[:, -1:]
        explored = self._explored(head, self._normal(uniforms), deviation)
        anything = 2.0 * uniforms[:, : self.dimensions] - 1.0
        return torch.where(deviation < 0.0, anything, explored)

    def entropy(self, head: Tensor) -> Tensor:
        raise NotImplementedError("what critics teach is not held to a distribution that acted")

    def _normal(self, chances: Tensor) -> Tensor:
        first, second = chances[:, :-1].chunk(2, -1)  # Box and Muller
        return torch.sqrt(-2.0 * torch.log1p(-first)) * torch.cos(2.0 * math.pi * second)


class Deterministic(Taught):
    """One action, explored with normal noise of the replica's own size (mixed exploration).

    It has no log-probability: zeros stand in its place.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__(dimensions)
        self.size = dimensions

    def drawn(self, head: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(head), head.new_zeros(len(head))

    def smoothed(self, head: Tensor, chances: Tensor, deviation: float, limit: float) -> Tensor:
        """With a little noise, cut off at a limit, so that a target is that of a neighbourhood."""
        noise = (deviation * self._normal(chances)).clamp(-limit, limit)
        return (torch.tanh(head) + noise).clamp(-1.0, 1.0)

    def likeliest(self, head: Tensor) -> Tensor:
        return torch.tanh(head)

    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        return head.new_zeros(len(head))

    def _explored(self, head: Tensor, normal: Tensor, deviation: Tensor) -> Tensor:
        return (torch.tanh(head) + deviation * normal).clamp(-1.0, 1.0)


class Stochastic(Taught):
    """Normal numbers through tanh, mean and deviation both of the observation's making (SAC).

    It explores by itself, so the replica's deviation says nothing to it.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__(dimensions)
        self.size = 2 * dimensions

    def drawn(self, head: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_deviation = self._parts(head)
        normal = self._normal(chances)
        u = mean + log_deviation.exp() * normal
        each = -0.5 * normal * normal - log_deviation - 0.5 * math.log(2.0 * math.pi)
        return torch.tanh(u), (each - log_slope(u)).sum(-1)

    def likeliest(self, head: Tensor) -> Tensor:
        return torch.tanh(self._parts(head)[0])

    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        mean, log_deviation = self._parts(head)
        u = torch.atanh(action.reshape(len(action), -1).clamp(-_INSIDE, _INSIDE))
        scaled = (u - mean) * torch.exp(-log_deviation)
        each = -0.5 * scaled * scaled - log_deviation - 0.5 * math.log(2.0 * math.pi)
        return (each - log_slope(u)).sum(-1)

    def _explored(self, head: Tensor, normal: Tensor, deviation: Tensor) -> Tensor:
        mean, log_deviation = self._parts(head)
        return torch.tanh(mean + log_deviation.exp() * normal)

    def _parts(self, head: Tensor) -> tuple[Tensor, Tensor]:
        """Mean, and logarithm of the deviation within sensible limits."""
        mean, said = head.chunk(2, -1)
        share = (torch.tanh(said) + 1.0) * 0.5
        return mean, _LOG_LOW + share * (_LOG_HIGH - _LOG_LOW)


_INSIDE = 1.0 - 2.0**-24  # the largest float32 below 1, whose atanh is a number
