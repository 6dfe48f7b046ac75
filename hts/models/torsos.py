"""Torsos: from observations to one vector of features for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from hts.config import Conv, Impala, Mlp
from hts.models.layers import Convolution, Direct, WideLinear, add_linear
from hts.models.sparse import SparseConv2d
from hts_envs.contract import Box, Discrete, Space

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "elu": functional.elu,  # in place, its gradient is of other bits
}

_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tanh": torch.ops.aten.tanh_backward.default,
    "relu": lambda slope, made: torch.ops.aten.threshold_backward.default(slope, made, 0),
}
"""Slopes in front of an activation, from those behind it and what it has made."""

_ROWS_OF_NUMBERS = 2
"""Axes."""

Stack: TypeAlias = list[tuple[Tensor, Tensor]]
"""Weight and bias of each layer, first to last."""

Way: TypeAlias = list[Tensor]
"""What each layer of a stack has seen, first to last, and what the last one made of it."""


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """What stands between two layers."""
    return _ACTIVATIONS[name]


def vectors(rows: Mapping[str, Tensor], spaces: Mapping[str, Space]) -> list[Tensor]:
    """Rows of each of these fields as vectors: numbers as they are, choices one-hot."""
    return [_vector(rows[name], space) for name, space in spaces.items()]


def _vector(rows: Tensor, space: Space) -> Tensor:
    if isinstance(space, Box):
        if rows.dtype == torch.float32 and rows.ndim == _ROWS_OF_NUMBERS:
            return rows  # asking for that again takes as long as a layer
        return rows.reshape(len(rows), -1).float()
    if isinstance(space, Discrete):
        return functional.one_hot(rows, space.n).float()
    hot = [functional.one_hot(rows[:, i], n) for i, n in enumerate(space.nvec)]
    return torch.cat(hot, -1).float()


class Dense(Direct):
    """Fully connected layers on vectors: one stack for each head, or one for both.

    `together` is the width of what both heads see, where they see it joined. The layers are called
    as functions: in a small net, a sixth of the time goes into modules.
    """

    def __init__(self, config: Mlp, inputs: int) -> None:
        super().__init__()
        self.policy = _dense(config, inputs)
        self.value = self.policy if config.shared else _dense(config, inputs)
        self.features = config.hidden[-1] if config.hidden else inputs
        self.together = self.features * (1 if config.shared or not config.hidden else 2)
        self.is_shared = config.shared
        self._activation = _ACTIVATIONS[config.activation]
        self._slope = _SLOPES.get(config.activation)
        self.has_slopes = self._slope is not None
        self._stacks = _parameters(self.policy), _parameters(self.value)

    def forward(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        features = self.for_policy(vector)
        return features, features if self.is_shared else self.for_value(vector)

    def for_policy(self, vector: Tensor) -> Tensor:
        """What the policy's head sees."""
        return self._through(self._stacks[0], vector)

    def for_value(self, vector: Tensor) -> Tensor:
        """What the value's head sees."""
        return self._through(self._stacks[1], vector)

    def _through(self, stack: Stack, rows: Tensor) -> Tensor:
        return self._way(stack, rows)[-1]

    def ways(self, vector: Tensor) -> list[Way]:
        """All that `back` needs, for each stack that there is."""
        stacks = self._stacks[: 1 if self.is_shared else 2]
        return [self._way(stack, vector) for stack in stacks]

    def _way(self, stack: Stack, rows: Tensor) -> Way:
        way = [rows]
        for weight, bias in stack:
            way.append(self._activation(functional.linear(way[-1], weight, bias)))
        return way

    def back(self, ways: Sequence[Way], for_policy: Tensor, for_value: Tensor) -> None:
        """Add the gradient that slopes of the features make."""
        if self.is_shared:
            self._back(self._stacks[0], ways[0], for_policy + for_value)
            return
        self._back(self._stacks[0], ways[0], for_policy)
        self._back(self._stacks[1], ways[1], for_value)

    def _back(self, stack: Stack, way: Way, slope: Tensor) -> None:
        assert self._slope is not None, "there is a way back"
        for number in reversed(range(len(stack))):
            slope = self._slope(slope, way[number + 1])
            add_linear(*stack[number], way[number], slope)
            if number:
                slope = slope.mm(stack[number][0])


def _dense(config: Mlp, inputs: int) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(*widths) for widths in pairwise([inputs, *config.hidden]))


def _parameters(layers: nn.ModuleList) -> Stack:
    found = list(layers.parameters())
    return list(zip(found[::2], found[1::2], strict=True))


class Convolutions(Direct):
    """The HTS-RL paper's net: 32 of 8x8/4, 64 of 4x4/2, 64 of 3x3/1.

    Narrow precision is that of the products alone: parameters, their gradients' sums and the
    features are float32, and so is a sparse first layer.
    """

    def __init__(self, config: Conv, shape: tuple[int, ...]) -> None:
        super().__init__()
        is_sparse = config.first == "sparse"
        self.first = (
            SparseConv2d(shape, 32, 8, 4) if is_sparse else Convolution(shape[-1], 32, 8, 4)
        )
        self.second = Convolution(32, 64, 4, 2)
        self.third = Convolution(64, 64, 3, 1)
        self._precision = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
        self.last = _Last(self._convolved, shape, config.hidden)
        self.features = config.hidden

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.last(self._convolved(image))
        return found.float()

    def _convolved(self, image: Tensor) -> Tensor:
        if isinstance(self.first, SparseConv2d):
            seen = torch.relu_(self.first(image)).to(self._precision)
        else:
            seen = torch.relu_(self.first(_shares(image, self._precision)))
        for layer in (self.second, self.third):
            seen = torch.relu_(layer(seen))
        return seen


def _shares(image: Tensor, precision: torch.dtype = torch.float32) -> Tensor:
    """Bytes of (rows, height, width, channels) as shares of 255, in convolutions' order of axes."""
    return image.permute(0, 3, 1, 2).to(precision).mul_(1.0 / 255.0)


class Residual(Direct):
    """The IMPALA paper's net: stages of a convolution, a pool and two residual blocks."""

    def __init__(self, config: Impala, shape: tuple[int, ...]) -> None:
        super().__init__()
        channels = shape[-1]
        stages = []
        for width in config.channels:
            stages.append(_Stage(channels, width))
            channels = width
        self.layers = nn.Sequential(*stages, nn.ReLU())
        self.last = _Last(self._convolved, shape, config.hidden)
        self.features = config.hidden

    def forward(self, image: Tensor) -> Tensor:
        return self.last(self._convolved(image))  # type: ignore[no-any-return]

    def _convolved(self, image: Tensor) -> Tensor:
        found: Tensor = self.layers(_shares(image))
        return found


class _Stage(Direct):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.entry = nn.Sequential(
            Convolution(channels, width, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)
        )
        self.first = _block(width)
        self.second = _block(width)

    def forward(self, image: Tensor) -> Tensor:
        entered: Tensor = self.entry(image)
        middle: Tensor = entered + self.first(entered)
        found: Tensor = middle + self.second(middle)
        return found


def _block(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ReLU(),
        Convolution(width, width, 3, padding=1),
        nn.ReLU(),
        Convolution(width, width, 3, padding=1),
    )


class _Last(Direct):
    """The layer behind the convolutions, in whose output channels are last in memory."""

    def __init__(
        self, layers: Callable[[Tensor], Tensor], shape: tuple[int, ...], hidden: int
    ) -> None:
        super().__init__()
        with torch.no_grad():
            flat = layers(torch.zeros(1, *shape, dtype=torch.uint8)).numel()
        self.layer = WideLinear(flat, hidden)

    def forward(self, image: Tensor) -> Tensor:
        return torch.relu_(self.layer(image.permute(0, 2, 3, 1).flatten(1)))
