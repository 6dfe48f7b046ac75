"""A wide linear layer, whose products are computed by oneDNN wherever torch has it.

On a CPU, torch hands float32 products to MKL, which on processors other than Intel's runs at half
the speed of oneDNN's kernels; oneDNN's are what convolutions use anyway. Both are float32
throughout. torch offers them for dense tensors under this name only, and without a gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class WideLinear(nn.Linear):
    """`nn.Linear` of rows, with parameters as they are or narrowed to the type of the rows."""

    def forward(self, rows: Tensor) -> Tensor:
        if rows.dtype == torch.float32 and rows.device.type == "cpu" and _has_onednn():
            found: Tensor = _Product.apply(rows, self.weight, self.bias)  # type: ignore[no-untyped-call]
            return found
        return functional.linear(rows, self.weight.to(rows.dtype), self.bias.to(rows.dtype))


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(  # type: ignore[no-untyped-call]
        torch.ops.mkldnn, "_linear_pointwise"
    )


def _product(rows: Tensor, columns: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows @ columns.T + bias"""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, columns, bias, "none", [], "")
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
