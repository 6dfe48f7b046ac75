"""Action distributions: what a policy's head means, row by row.

A row's action is a function of its head and of its own uniform numbers, so it does not matter
which rows are sampled together. `sample` takes as many uniforms as `noise` says.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from hts_envs.contract import Box, Discrete, MultiDiscrete, Space


class Distribution(ABC):
    """`size` numbers of the head describe one action; `noise` uniforms choose it."""

    size: int
    noise: int
    scale_free: int = 0  # how many of `size` do not depend on the observation

    @abstractmethod
    def sample(self, head: Tensor, uniforms: Tensor) -> Tensor:
        """Actions for rows of heads (rows, size) and uniforms (rows, noise)."""

    @abstractmethod
    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        """Log-probability of each row's action: (rows,)."""

    @abstractmethod
    def entropy(self, head: Tensor) -> Tensor:
        """Entropy of each row, in nats: (rows,)."""


class Categorical(Distribution):
    """One of n actions."""

    def __init__(self, n: int) -> None:
        self.size, self.noise = n, 1
        self._first = torch.ones(n, n).tril()

    def sample(self, head: Tensor, uniforms: Tensor) -> Tensor:
        chances = torch.softmax(head, -1)
        # Sums of the first 1, 2, ... chances; cumsum has no deterministic form on a GPU.
        sums = (chances.unsqueeze(-2) * self._first.to(head.device)).sum(-1)
        return (sums <= uniforms).sum(-1).clamp_(max=self.size - 1)

    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        return torch.log_softmax(head, -1).gather(-1, action[:, None]).squeeze(-1)

    def entropy(self, head: Tensor) -> Tensor:
        logs = torch.log_softmax(head, -1)
        return -(logs.exp() * logs).sum(-1)


class MultiCategorical(Distribution):
    """Several independent choices at once."""

    def __init__(self, nvec: tuple[int, ...]) -> None:
        self.parts = [Categorical(n) for n in nvec]
        self.nvec = list(nvec)
        self.size, self.noise = sum(nvec), len(nvec)

    def sample(self, head: Tensor, uniforms: Tensor) -> Tensor:
        heads = torch.split(head, self.nvec, -1)
        columns = torch.split(uniforms, 1, -1)
        chosen = zip(self.parts, heads, columns, strict=True)
        return torch.stack([part.sample(h, u) for part, h, u in chosen], -1)

    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        heads = zip(self.parts, torch.split(head, self.nvec, -1), action.unbind(-1), strict=True)
        return torch.stack([part.log_prob(h, a) for part, h, a in heads], -1).sum(-1)

    def entropy(self, head: Tensor) -> Tensor:
        heads = zip(self.parts, torch.split(head, self.nvec, -1), strict=True)
        return torch.stack([part.entropy(h) for part, h in heads], -1).sum(-1)


class Gaussian(Distribution):
    """Independent normal numbers; the world's bounds are applied where the action is taken.

    The log-probability is that of the unclipped number, as is usual: what is stored is what was
    drawn. The deviations are parameters of their own, not functions of the observation.
    """

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.size, self.noise = 2 * dimensions, 2 * dimensions
        self.scale_free = dimensions

    def sample(self, head: Tensor, uniforms: Tensor) -> Tensor:
        mean, log_deviation = head.chunk(2, -1)
        first, second = uniforms.chunk(2, -1)  # Box and Muller
        normal = torch.sqrt(-2.0 * torch.log1p(-first)) * torch.cos(2.0 * math.pi * second)
        return mean + log_deviation.exp() * normal

    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        mean, log_deviation = head.chunk(2, -1)
        flat = action.reshape(len(action), -1)  # an action may have any shape, () included
        scaled = (flat - mean) * torch.exp(-log_deviation)
        each = -0.5 * scaled * scaled - log_deviation - 0.5 * math.log(2.0 * math.pi)
        return each.sum(-1)

    def entropy(self, head: Tensor) -> Tensor:
        _, log_deviation = head.chunk(2, -1)
        return (log_deviation + 0.5 * math.log(2.0 * math.pi * math.e)).sum(-1)


def distribution(space: Space) -> Distribution:
    """The distribution over a space of actions."""
    if isinstance(space, Discrete):
        return Categorical(space.n)
    if isinstance(space, MultiDiscrete):
        return MultiCategorical(space.nvec)
    assert isinstance(space, Box), f"no distribution over {space}"
    return Gaussian(math.prod(space.shape))
