"""Update rules on one flat vector: the state is plain tensors, the step a pure formula.

PyTorch's conventions: epsilon is added to the root, Adam's moments are corrected for their start.
A step is written into the same memory each time, which for a large network is half of its cost:
it is to be added to the parameters before the next one is asked for.

A unit that is never active has gradients of zero, and its moments decay towards zero. Two things
keep them from slowing down a step (`tools/optimiser_cost`). Denormals are flushed while a step is
computed: an Intel Xeon takes nine times as long for sums and products of them, and rounding keeps
decaying moments from ever reaching zero. Roots are taken of normal numbers only: torch's takes nine
times as long for zeros. The root of the smallest normal number is 1e-19, so beside an epsilon from
1e-10 on no bit of the parameters changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

_NORMAL = torch.finfo(torch.float32).tiny


def _flushing(step: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Have this thread flush denormals to zero during the call."""

    @functools.wraps(step)
    def flushed(*given: Any) -> Tensor:
        torch.set_flush_denormal(True)
        try:
            return step(*given)
        finally:
            torch.set_flush_denormal(False)

    return flushed


@dataclass
class RmsProp:
    """step = rate * g / (sqrt(mean of g squared) + epsilon)"""

    size: int
    epsilon: float
    decay: float = 0.99
    device: torch.device | str = "cpu"
    square: Tensor = field(init=False)
    _step: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.square = torch.zeros(self.size, device=self.device)
        self._step = torch.empty_like(self.square)

    @_flushing
    def step(self, gradient: Tensor, rate: float) -> Tensor:
        """Return what is to be added to the parameters."""
        self.square.mul_(self.decay).addcmul_(gradient, gradient, value=1.0 - self.decay)
        root = torch.clamp(self.square, min=_NORMAL, out=self._step).sqrt_().add_(self.epsilon)
        return torch.div(gradient, root, out=root).mul_(-rate)


@dataclass
class Adam:
    """step = rate * corrected mean of g / (sqrt(corrected mean of g squared) + epsilon)"""

    size: int
    epsilon: float
    beta1: float = 0.9
    beta2: float = 0.999
    device: torch.device | str = "cpu"
    steps: int = 0
    mean: Tensor = field(init=False)
    square: Tensor = field(init=False)
    _step: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.mean = torch.zeros(self.size, device=self.device)
        self.square = torch.zeros(self.size, device=self.device)
        self._step = torch.empty_like(self.square)

    @_flushing
    def step(self, gradient: Tensor, rate: float) -> Tensor:
        """Return what is to be added to the parameters."""
        self.steps += 1
        self.mean.mul_(self.beta1).add_(gradient, alpha=1.0 - self.beta1)
        self.square.mul_(self.beta2).addcmul_(gradient, gradient, value=1.0 - self.beta2)
        first = 1.0 - self.beta1**self.steps
        second = 1.0 - self.beta2**self.steps
        root = torch.clamp(self.square, min=_NORMAL, out=self._step).sqrt_()
        root.div_(second**0.5).add_(self.epsilon)
        return torch.div(self.mean, root, out=root).mul_(-rate / first)


Optimiser = RmsProp | Adam


def make_optimiser(
    name: str, size: int, epsilon: float, device: torch.device | str = "cpu"
) -> Optimiser:
    """The optimiser of this name for a vector of this size, with its state where that lies."""
    made = Adam if name == "adam" else RmsProp
    return made(size, epsilon, device=device)


def clip_norm(gradient: Tensor, limit: float, parts: int = 1) -> Tensor:
    """Scale each of so many equal parts of `gradient` in place down to the norm `limit`; returns
    the norms that they had: (parts,).

    Nothing here asks for a number on the host, so a GPU is never waited for.
    """
    norms = []
    for part in gradient.chunk(parts):
        norms.append(torch.linalg.vector_norm(part))
        part.mul_((limit / (norms[-1] + 1e-6)).clamp_(max=1.0))
    return torch.stack(norms)


def is_finite(vector: Tensor) -> bool:
    """Whether all numbers are. Their sum tells in a tenth of the time: where it is, they are;
    where it is not, they may only have been too large for it."""
    return bool(vector.sum().isfinite()) or bool(torch.isfinite(vector).all())


def delayed(newest: Tensor, start: Tensor, reached: Tensor) -> Tensor:
    """The way that an algorithm went from `start` to `reached`, taken from `newest`:

    theta_{v+2} = theta_{v+1} + (phi_K - theta_v)
    """
    assert newest.shape == start.shape == reached.shape, "parameters of one network"
    return (reached - start).add_(newest)
