"""Update rules on one flat vector: the state is plain tensors, the step a pure formula.

PyTorch's conventions: epsilon is added to the root, Adam's moments are corrected for their start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class RmsProp:
    """step = rate * g / (sqrt(mean of g squared) + epsilon)"""

    size: int
    epsilon: float
    decay: float = 0.99
    device: torch.device | str = "cpu"
    square: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.square = torch.zeros(self.size, device=self.device)

    def step(self, gradient: Tensor, rate: float) -> Tensor:
        """What is to be added to the parameters."""
        self.square.mul_(self.decay).addcmul_(gradient, gradient, value=1.0 - self.decay)
        return gradient.div(self.square.sqrt().add_(self.epsilon)).mul_(-rate)


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

    def __post_init__(self) -> None:
        self.mean = torch.zeros(self.size, device=self.device)
        self.square = torch.zeros(self.size, device=self.device)

    def step(self, gradient: Tensor, rate: float) -> Tensor:
        """What is to be added to the parameters."""
        self.steps += 1
        self.mean.mul_(self.beta1).add_(gradient, alpha=1.0 - self.beta1)
        self.square.mul_(self.beta2).addcmul_(gradient, gradient, value=1.0 - self.beta2)
        first = 1.0 - self.beta1**self.steps
        second = 1.0 - self.beta2**self.steps
        root = self.square.sqrt().div_(second**0.5).add_(self.epsilon)
        return self.mean.div(root).mul_(-rate / first)


Optimiser = RmsProp | Adam


def make_optimiser(
    name: str, size: int, epsilon: float, device: torch.device | str = "cpu"
) -> Optimiser:
    """The optimiser of this name for a vector of this size, with its state where that lies."""
    made = Adam if name == "adam" else RmsProp
    return made(size, epsilon, device=device)


def clip_norm(gradient: Tensor, limit: float) -> Tensor:
    """Scale `gradient` in place down to the norm `limit`; returns the norm it had.

    Nothing here asks for a number on the host, so a GPU is never waited for.
    """
    norm: Tensor = gradient.norm()
    gradient.mul_((limit / (norm + 1e-6)).clamp_(max=1.0))
    return norm
