"""The first convolution over planes that are almost empty.

A football plane holds a handful of marks in 6,912 places, and the first convolution spends 70 % of
the network's arithmetic on multiplying by the zeros between them. Here each byte that is not zero,
a *mark*, adds one row of weights to each output place whose window holds it: the same sums without
their zeros. They are added in another order than in the dense form, so the bits differ by rounding.

Bits: an output place gets the bias first, then its marks in the order in which they lie in the
image, one addition each. Nothing of another row of the batch takes part, so the bits of a row
depend on that row alone, whatever the size of the batch; and a gradient of the weights adds marks
in the order of the batch, which is the learner's, not the machine's.

Nothing is assumed of how full an image is. A full one is correct too, only slow: what was measured
is in hts/design/0006.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

_WORD = 8
_BLOCK = _WORD * _WORD
_MARKS_AT_ONCE = 1 << 16
"""Bounds the memory for products of full images; where marks are cut changes no order."""


class _Entries(NamedTuple):
    """Products to be added up: value x weights[tap] belongs to output place `place`."""

    place: Tensor
    tap: Tensor
    value: Tensor


class _Batch(NamedTuple):
    """How many images, how high and wide the output is, and what is added to it, in parts."""

    rows: int
    size: tuple[int, int]
    entries: list[_Entries]


class SparseConv2d(nn.Conv2d):
    """`nn.Conv2d` without padding, from images of bytes (rows, height, width, channels).

    Bytes stand for shares of 255. The parameters are those of the dense layer.
    """

    _places: Tensor
    _taps: Tensor
    _inside: Tensor

    def __init__(self, shape: tuple[int, ...], width: int, kernel: int, stride: int) -> None:
        super().__init__(shape[-1], width, kernel, stride)
        height, across, _ = shape
        self.shape = shape
        self.size = ((height - kernel) // stride + 1, (across - kernel) // stride + 1)
        down, right = (
            _windows(length, kernel, stride, fits)
            for length, fits in zip(shape[:2], self.size, strict=True)
        )
        pixels = height * across
        combined = {
            "_places": down.window[:, None, :, None] * self.size[1] + right.window[:, None],
            "_taps": down.tap[:, None, :, None] * kernel + right.tap[:, None],
            "_inside": (down.inside[:, None, :, None] * right.inside[:, None]).float() / 255.0,
        }
        for name, table in combined.items():
            self.register_buffer(name, table.reshape(pixels, -1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """Rows of (channels, height, width), channels last in memory."""
        assert image.dtype == torch.uint8, "a first layer sees bytes"
        assert image.shape[1:] == self.shape, "images of the declared shape"
        assert self.bias is not None, "every layer has a bias"
        flat = image.reshape(-1)
        entries = [self._entries(flat, at) for at in torch.split(_marks(flat), _MARKS_AT_ONCE)]
        batch = _Batch(len(image), self.size, entries)
        found: Tensor = _Sum.apply(self.weight, self.bias, batch)  # type: ignore[no-untyped-call]
        return found

    def _entries(self, flat: Tensor, at: Tensor) -> _Entries:
        """What the marks at these places of the batch's bytes add, and where."""
        channels, places = self.shape[2], self.size[0] * self.size[1]
        pixel = at // channels
        channel = at - pixel * channels
        row = pixel // len(self._places)
        pixel = pixel - row * len(self._places)
        place = self._places[pixel] + (row * places)[:, None]
        tap = self._taps[pixel] + (channel * self.weight[0, 0].numel())[:, None]
        value = self._inside[pixel] * flat[at].float()[:, None]
        return _Entries(place.view(-1), tap.view(-1), value.view(-1, 1))


class _Sum(torch.autograd.Function):
    """The bias in each output place, and the entries added to it."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, batch: _Batch) -> Tensor:
        ctx.shape, ctx.entries = weight.shape, batch.entries
        table = weight.reshape(len(weight), -1).t().contiguous()
        found = torch.empty(
            (batch.rows, len(weight), *batch.size),
            device=weight.device,
            memory_format=torch.channels_last,
        )
        flat = found.permute(0, 2, 3, 1).view(-1, len(weight))
        flat.copy_(bias)
        for part in batch.entries:
            added = table.index_select(0, part.tap).mul_(part.value)
            flat.index_add_(0, part.place, added)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,) = gradients
        flat = gradient.permute(0, 2, 3, 1).reshape(-1, ctx.shape[0])
        found = flat.new_zeros(ctx.shape[1:].numel(), ctx.shape[0])
        for part in ctx.entries:
            added = flat.index_select(0, part.place).mul_(part.value)
            found.index_add_(0, part.tap, added)
        return found.t().reshape(ctx.shape), flat.sum(0), None


class _Windows(NamedTuple):
    """For each coordinate of one axis: the windows that hold it, and where in them it lies.

    A coordinate near an edge is held by fewer windows than others: what is not `inside` stands at
    a window that exists, and counts as zero.
    """

    window: Tensor
    tap: Tensor
    inside: Tensor


def _windows(length: int, kernel: int, stride: int, fits: int) -> _Windows:
    coordinate = torch.arange(length)[:, None]
    window = coordinate // stride - torch.arange(-(-kernel // stride))
    tap = coordinate - window * stride
    inside = (window >= 0) & (window < fits) & (tap < kernel)
    return _Windows(window.clamp(0, fits - 1), tap.clamp(0, kernel - 1), inside)


def _marks(flat: Tensor) -> Tensor:
    """Where bytes are not zero, in order: eight at a time, and the eights eight at a time."""
    left = -len(flat) % _BLOCK
    whole = functional.pad(flat, (0, left)) if left else flat
    filled = whole.view(torch.int64).ne(0).view(torch.uint8)
    blocks = filled.view(torch.int64).nonzero().squeeze(1)
    return _within(whole, _within(filled, blocks))


def _within(flat: Tensor, words: Tensor) -> Tensor:
    """Where bytes are not zero, of which it is known in which words of eight they lie."""
    word, byte = flat.view(-1, _WORD)[words].nonzero(as_tuple=True)
    return words[word] * _WORD + byte
