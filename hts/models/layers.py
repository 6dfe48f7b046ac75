"""Layers whose products are computed by oneDNN wherever torch has it.

On a CPU, torch hands float32 matrix products to MKL, which on processors other than Intel's runs at
half the speed of oneDNN's kernels; oneDNN's are what convolutions use anyway. Both are float32
throughout. torch offers them for dense tensors under this name only, and without a gradient.

oneDNN lays out weights anew for each product. In a batch of a few rows that takes a third of the
time, and an actor's weights stay the same for a whole version: layers that are told to `pack` lay
them out once. The probe at the start compares the bits of packed layers with those of others
(hts.determinism.invariance).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_ROWS = 8
"""For how many rows weights are laid out: an actor's batches are of about this size."""

_STEP = [1, 1]
_NOTHING: tuple[str, list[float], str] = ("none", [], "")
"""Of what could be done with the results at once."""


def packable(network: nn.Module) -> list[WideLinear | Joined | Convolution]:
    """The layers whose weights can be laid out as they are, for batches without a gradient."""
    if not all(_has_onednn(parameter) for parameter in network.parameters()):
        return []
    kinds = WideLinear, Joined, Convolution
    return [module for module in network.modules() if isinstance(module, kinds)]


class Direct(nn.Module):
    """One whose call is `forward` and nothing else: torch's own looks for hooks first, which takes
    longer than a small product. So does its own way to find layers and parameters."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, (nn.Module, nn.Parameter)):
            self.__dict__[name] = value

    def __call__(self, *given: Any) -> Any:
        return self.forward(*given)


class Linear(Direct, nn.Linear):
    """`nn.Linear`, called as a function: beside a small product, one more call can be seen."""

    def __call__(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self.weight, self.bias)


def add_gradient(parameter: Tensor, gradient: Tensor) -> None:
    """As torch does it: onto what is there."""
    assert parameter.grad is not None, "it has a place in the flat gradient"
    parameter.grad.add_(gradient)


def add_linear(weight: Tensor, bias: Tensor, seen: Tensor, slope: Tensor) -> None:
    """Add the gradient of `functional.linear`, by the slope of what it has made."""
    add_gradient(weight, slope.t().mm(seen))
    add_gradient(bias, slope.sum(0))


class WideLinear(Direct, nn.Linear):
    """`nn.Linear` of rows, with parameters as they are or narrowed to the type of the rows."""

    _packs = False
    _packed: tuple[Tensor, Tensor] | None = None

    def forward(self, rows: Tensor) -> Tensor:
        if not self._packs:
            return _wide(rows, self.weight, self.bias)
        if self._packed is None:
            self._packed = _laid_out(self.weight, self.bias, rows.dtype)
        alone = len(rows) == 1  # for which oneDNN has another order of sums, and no faster one
        found = _product(rows.expand(2, -1) if alone else rows, *self._packed)
        return found[:1] if alone else found

    def pack(self) -> None:
        self._packs, self._packed = True, None


class Joined(Direct):
    """Wide layers that see the same rows, as one product: to a few rows, each takes as long.

    Being the heads of a net they are narrow: oneDNN lays them out with each product in less time
    than it takes to ask for that once in a version. So an actor's are joined once, and no more.
    """

    _packed: tuple[Tensor, Tensor] | None = None

    def __init__(self, *layers: nn.Linear) -> None:
        super().__init__()
        self._layers = layers  # whose parameters are their owner's
        self._widths = [layer.out_features for layer in layers]

    def forward(self, rows: Tensor) -> tuple[Tensor, ...]:
        if self._packed is not None:
            found = _product(rows, *self._packed)
        else:
            found = _wide(rows, *self._together())
        return torch.split(found, self._widths, -1)

    def _together(self) -> tuple[Tensor, Tensor]:
        weights = [layer.weight for layer in self._layers]
        return torch.cat(weights), torch.cat([layer.bias for layer in self._layers])

    def pack(self) -> None:
        weight, bias = self._together()
        self._packed = weight.detach(), bias.detach()


class Convolution(Direct, nn.Conv2d):
    """`nn.Conv2d` in the precision of the images."""

    _packs = False
    _packed: tuple[Any, ...] | None = None

    def forward(self, images: Tensor) -> Tensor:
        if self._packed is None:
            assert self.bias is not None, "every layer has a bias"
            weight, bias = self.weight.to(images.dtype), self.bias.to(images.dtype)
            if not self._packs:
                return functional.conv2d(images, weight, bias, self.stride, self.padding)
            self._packed = self._laid_out(weight, bias, images)
        found: Tensor = torch.ops.mkldnn._convolution_pointwise.default(images, *self._packed)
        return found

    def _laid_out(self, weight: Tensor, bias: Tensor, images: Tensor) -> tuple[Any, ...]:
        """How, depends on the size of the images."""
        padding, stride = list(self.padding), list(self.stride)
        size = [_ROWS, *images.shape[1:]]
        columns = torch.ops.mkldnn._reorder_convolution_weight(
            weight.detach(), padding, stride, _STEP, 1, size
        )
        return columns, bias.detach(), padding, stride, _STEP, 1, *_NOTHING

    def pack(self) -> None:
        self._packs, self._packed = True, None


def _has_onednn(tensor: Tensor) -> bool:
    """Whether it is in memory that oneDNN computes in."""
    return tensor.device.type == "cpu" and _OFFERED


_OFFERED = torch.backends.mkldnn.is_available() and hasattr(  # type: ignore[no-untyped-call]
    torch.ops.mkldnn, "_linear_pointwise"
)


def _wide(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """rows @ weight.T + bias, in the precision of the rows, with a gradient"""
    if rows.dtype != torch.float32 or not _has_onednn(rows):
        return functional.linear(rows, weight.to(rows.dtype), bias.to(rows.dtype))
    found: Tensor = _Product.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return found


def _laid_out(weight: Tensor, bias: Tensor, precision: torch.dtype) -> tuple[Tensor, Tensor]:
    """What `_product` takes, for a few rows."""
    weight, bias = weight.detach().to(precision), bias.detach().to(precision)
    return torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS), bias


def _product(rows: Tensor, columns: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows @ columns.T + bias"""
    found: Tensor = torch.ops.mkldnn._linear_pointwise.default(rows, columns, bias, *_NOTHING)
    return found


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return _product(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        (gradient,) = gradients
        rows, weight = ctx.saved_tensors
        behind = _product(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        return behind, _product(gradient.t(), rows.t()), gradient.sum(0)
