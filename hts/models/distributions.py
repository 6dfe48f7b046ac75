"""Action distributions: what a policy's head means, row by row.

A row's action is a function of its head and of its own uniform numbers, so it does not matter
which rows are drawn together. What is drawn ends on the host, where the storage is: choices are
made there, of what the device says about each; numbers are drawn on the device.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from hts_envs.contract import Array, Box, Discrete, MultiDiscrete, Space

Drawn: TypeAlias = tuple[Array, Array]
"""The action of each row, and its log-probability."""


def weigh(numbers: Tensor, slopes: Tensor) -> Tensor:
    """One number, of which these are the slopes. (To give slopes to autograd itself would import
    40 MB of algebra.)"""
    return torch.dot(numbers.flatten(), slopes.flatten())


class Judged(NamedTuple):
    """What a distribution says about each row's action."""

    log_prob: Tensor
    entropy: Tensor
    back: Callable[[Tensor, float], Tensor]
    """The slope of the head, where log-probabilities have these slopes, and entropies all that."""


class Distribution(ABC):
    """`size` numbers of the head describe one action; `noise` uniforms choose it."""

    size: int
    noise: int
    scale_free: int = 0  # how many of `size` do not depend on the observation

    @abstractmethod
    def draw(self, head: Tensor, uniforms: Array) -> Drawn:
        """Actions for rows of heads (rows, size) and uniforms (rows, noise)."""

    @abstractmethod
    def likeliest(self, head: Tensor) -> Tensor:
        """The action that each row finds most probable, as `draw` would find it."""

    @abstractmethod
    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        """Log-probability of each row's action: (rows,)."""

    @abstractmethod
    def entropy(self, head: Tensor) -> Tensor:
        """Entropy of each row, in nats: (rows,)."""

    def judged(self, head: Tensor, action: Tensor) -> Judged:
        """Both, and their way back."""
        leaf = head.detach().requires_grad_()
        log_prob, entropy = self.log_prob(leaf, action), self.entropy(leaf)

        def back(of_log_prob: Tensor, of_entropy: float) -> Tensor:
            weighed = weigh(log_prob, of_log_prob)
            if of_entropy:  # no gradient is computed only to be times 0
                weighed = weighed + weigh(entropy, torch.full_like(entropy, of_entropy))
            return torch.autograd.grad(weighed, leaf)[0]

        return Judged(log_prob.detach(), entropy.detach(), back)


class Categorical(Distribution):
    """One of n actions."""

    def __init__(self, n: int) -> None:
        self.size, self.noise = n, 1

    def draw(self, head: Tensor, uniforms: Array) -> Drawn:
        logs = torch.log_softmax(head, -1).cpu().numpy()
        action = _chosen(logs, uniforms)
        return action, logs[np.arange(len(logs)), action]

    def likeliest(self, head: Tensor) -> Tensor:
        return head.argmax(-1)

    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        return torch.log_softmax(head, -1).gather(-1, action[:, None]).squeeze(-1)

    def entropy(self, head: Tensor) -> Tensor:
        logs = torch.log_softmax(head, -1)
        return -(logs.exp() * logs).sum(-1)

    def judged(self, head: Tensor, action: Tensor) -> Judged:
        logs, taken = torch.log_softmax(head.detach(), -1), action[:, None]
        chances = logs.exp()
        weighed = chances * logs

        def back(of_log_prob: Tensor, of_entropy: float) -> Tensor:
            chosen = torch.zeros_like(logs).scatter_add_(-1, taken, of_log_prob[:, None])
            found = _behind_softmax(chosen, logs)
            if of_entropy:
                found += _behind_softmax(
                    (logs * -of_entropy) * chances + chances * -of_entropy, logs
                )
            return found

        return Judged(logs.gather(-1, taken).squeeze(-1), -weighed.sum(-1), back)


def _behind_softmax(slopes: Tensor, logs: Tensor) -> Tensor:
    """Slopes of what `logs` are the normalised logarithms of."""
    found: Tensor = _LOG_SOFTMAX_BACKWARD(slopes, logs, -1, logs.dtype)
    return found


_LOG_SOFTMAX_BACKWARD = torch.ops.aten._log_softmax_backward_data.default


class MultiCategorical(Distribution):
    """Several independent choices at once."""

    def __init__(self, nvec: tuple[int, ...]) -> None:
        self.parts = [Categorical(n) for n in nvec]
        self.nvec = list(nvec)
        self.size, self.noise = sum(nvec), len(nvec)

    def draw(self, head: Tensor, uniforms: Array) -> Drawn:
        parts = torch.split(head, self.nvec, -1)
        said = torch.cat([torch.log_softmax(part, -1) for part in parts], -1).cpu().numpy()
        logs = np.split(said, np.cumsum(self.nvec)[:-1], -1)
        columns = np.split(uniforms, len(self.nvec), -1)
        action = np.stack([_chosen(*each) for each in zip(logs, columns, strict=True)], -1)
        log_prob = self.log_prob(head, torch.from_numpy(action).to(head.device))
        return action, log_prob.cpu().numpy()

    def likeliest(self, head: Tensor) -> Tensor:
        return torch.stack([part.argmax(-1) for part in torch.split(head, self.nvec, -1)], -1)

    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        heads = zip(self.parts, torch.split(head, self.nvec, -1), action.unbind(-1), strict=True)
        return torch.stack([part.log_prob(h, a) for part, h, a in heads], -1).sum(-1)

    def entropy(self, head: Tensor) -> Tensor:
        heads = zip(self.parts, torch.split(head, self.nvec, -1), strict=True)
        return torch.stack([part.entropy(h) for part, h in heads], -1).sum(-1)


def _chosen(logs: Array, uniforms: Array) -> Array:
    """Rows' choices: the first one up to which more is probable than the uniform's share of all.

    A uniform is below 1, and all together are 1 but for rounding: what is impossible is not chosen.
    """
    sums = np.exp(logs).cumsum(-1)
    return np.asarray((sums > uniforms * sums[:, -1:]).argmax(-1))


class Continuous(Distribution):
    """Actions that are numbers: drawn where the network is."""

    def draw(self, head: Tensor, uniforms: Array) -> Drawn:
        action = self._sample(head, torch.from_numpy(uniforms).to(head.device))
        return action.cpu().numpy(), self.log_prob(head, action).cpu().numpy()

    @abstractmethod
    def _sample(self, head: Tensor, uniforms: Tensor) -> Tensor:
        """The action of each row."""


class Gaussian(Continuous):
    """Independent normal numbers; the world's bounds are applied where the action is taken.

    The log-probability is that of the unclipped number, as is usual: what is stored is what was
    drawn. The deviations are parameters of their own, not functions of the observation.
    """

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.size, self.noise = 2 * dimensions, 2 * dimensions
        self.scale_free = dimensions

    def _sample(self, head: Tensor, uniforms: Tensor) -> Tensor:
        mean, log_deviation = head.chunk(2, -1)
        first, second = uniforms.chunk(2, -1)  # Box and Muller
        normal = torch.sqrt(-2.0 * torch.log1p(-first)) * torch.cos(2.0 * math.pi * second)
        return mean + log_deviation.exp() * normal

    def likeliest(self, head: Tensor) -> Tensor:
        return head.chunk(2, -1)[0]

    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        mean, log_deviation = head.chunk(2, -1)
        flat = action.reshape(len(action), -1)  # an action may have any shape, () included
        scaled = (flat - mean) * torch.exp(-log_deviation)
        each = -0.5 * scaled * scaled - log_deviation - 0.5 * math.log(2.0 * math.pi)
        return each.sum(-1)

    def entropy(self, head: Tensor) -> Tensor:
        _, log_deviation = head.chunk(2, -1)
        return (log_deviation + 0.5 * math.log(2.0 * math.pi * math.e)).sum(-1)


class Squashed(Gaussian):
    """Normal numbers that tanh lays over finite bounds (`hts.models.bounds`).

    What is drawn and stored is the normal number u; the log-probability and the entropy are those
    of the action a = low + (tanh(u) + 1) / 2 (high - low), in its own units. The entropy is the
    normal one plus the mean of log da/du, which has no closed form: Gauss and Hermite's nodes
    give it to 1e-6 for deviations up to 1, 2e-4 up to 2 and 0.01 up to 4.
    """

    def __init__(self, space: Box) -> None:
        super().__init__(math.prod(space.shape))
        low, high = (np.broadcast_to(side, space.shape) for side in (space.low, space.high))
        widths = high.astype(np.float64) - low
        assert np.all((widths > 0) & (widths < np.inf)), "models.fit says so to the user"
        self._scale = float(np.log(widths / 2.0).sum())
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        shares = weights / weights.sum()
        self._nodes = torch.from_numpy(nodes[shares > _SMALLEST_SHARE].astype(np.float32))
        self._shares = torch.from_numpy(shares[shares > _SMALLEST_SHARE].astype(np.float32))

    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        slopes = log_slope(action.reshape(len(action), -1))
        return super().log_prob(head, action) - slopes.sum(-1) - self._scale

    def entropy(self, head: Tensor) -> Tensor:
        if self._nodes.device != head.device:
            self._nodes, self._shares = self._nodes.to(head.device), self._shares.to(head.device)
        mean, log_deviation = head.unsqueeze(-1).chunk(2, -2)
        slopes = log_slope(mean + log_deviation.exp() * self._nodes)
        return super().entropy(head) + (slopes * self._shares).sum((-1, -2)) + self._scale


class Greedy(Distribution):
    """Always the likeliest action of another distribution, whatever chance says.

    Of a squashed one that is the middle of what is drawn, before tanh.
    """

    def __init__(self, drawn: Distribution) -> None:
        self.size, self.noise, self.scale_free = drawn.size, drawn.noise, drawn.scale_free
        self._drawn = drawn

    def draw(self, head: Tensor, uniforms: Array) -> Drawn:
        action = self.likeliest(head)
        return action.cpu().numpy(), self.log_prob(head, action).cpu().numpy()

    def likeliest(self, head: Tensor) -> Tensor:
        return self._drawn.likeliest(head)

    def log_prob(self, head: Tensor, action: Tensor) -> Tensor:
        return self._drawn.log_prob(head, action)

    def entropy(self, head: Tensor) -> Tensor:
        return self._drawn.entropy(head)


_NODES = 32
_SMALLEST_SHARE = 1e-10  # nodes that count for less are left out: 22 remain


def log_slope(u: Tensor) -> Tensor:
    """log(1 - tanh(u)^2), where that difference itself would be 0 from |u| = 9 on."""
    size = u.abs()
    return 2.0 * (math.log(2.0) - size - torch.log1p(torch.exp(-2.0 * size)))


def distribution(space: Space, *, squash: bool = False) -> Distribution:
    """The distribution over a space of actions."""
    if isinstance(space, Discrete):
        return Categorical(space.n)
    if isinstance(space, MultiDiscrete):
        return MultiCategorical(space.nvec)
    assert isinstance(space, Box), f"no distribution over {space}"
    return Squashed(space) if squash else Gaussian(math.prod(space.shape))
