"""Networks whose parameters are one vector, and whose gradients are another.

A version is then one copy, a gradient is one vector, an optimiser's step one formula, and nothing
walks over named parameters.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Generic, Self, TypeVar

import torch
from torch import Tensor, nn

Net = TypeVar("Net", bound=nn.Module)

ALIGNMENT = 64
"""Bytes: where torch's memory begins."""


class Flat(Generic[Net]):
    """These networks, one after the other in the vector."""

    def __init__(self, networks: Sequence[Net], device: torch.device) -> None:
        self.device = device
        self.networks = [network.to(device) for network in networks]
        self.size = sum(parameter.numel() for parameter in self._parameters())
        self.vector = torch.zeros(self.size, device=device)
        self.gradient = torch.zeros(self.size, device=device)
        self._bind()

    def _parameters(self) -> Iterator[nn.Parameter]:
        for network in self.networks:
            yield from network.parameters()

    def _bind(self) -> None:
        """Make the parameters and their gradients views of the two vectors."""
        self._shaped = [(parameter, parameter.shape) for parameter in self._parameters()]
        self._sizes = [parameter.numel() for parameter, _ in self._shaped]
        self._view()
        pieces = torch.split(self.gradient, self._sizes)
        for (parameter, shape), piece in zip(self._shaped, pieces, strict=True):
            parameter.grad = piece.view(shape)

    def _view(self) -> None:
        """Make the parameters views of the vector."""
        pieces = torch.split(self.vector, self._sizes)
        for (parameter, shape), piece in zip(self._shaped, pieces, strict=True):
            parameter.data = piece.view(shape)

    def twin(self) -> Self:
        """Networks on the same parameters, with a gradient of their own: for one more thread."""
        twin = copy.copy(self)
        twin.networks = copy.deepcopy(self.networks)
        twin.gradient = torch.zeros_like(self.gradient)
        twin._bind()
        return twin

    def load(self, parameters: Tensor) -> None:
        """Compute with these parameters from now on; they are copied, never aliased."""
        assert parameters.shape == self.vector.shape, "a version of another network"
        self.vector.copy_(parameters)

    def adopt(self, parameters: Tensor) -> None:
        """Compute with these parameters where they lie, until the next ones are adopted.

        Kernels may go by where memory begins, so it has to begin where torch's own does.
        """
        assert parameters.shape == self.vector.shape, "a version of another network"
        assert parameters.data_ptr() % ALIGNMENT == 0, "bits may depend on where memory begins"
        self.vector = parameters
        self._view()
