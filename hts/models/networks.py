"""Torsos: from observations to one vector of features for each row."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hts.config import Conv, Impala, Mlp

_ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}


class Dense(nn.Module):
    """Fully connected layers on vectors: one stack for each head, or one for both."""

    def __init__(self, config: Mlp, inputs: int) -> None:
        super().__init__()
        self.policy = _dense(config, inputs)
        self.value = self.policy if config.shared else _dense(config, inputs)
        self.features = config.hidden[-1] if config.hidden else inputs

    def forward(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        features = self.policy(vector)
        return features, features if self.value is self.policy else self.value(vector)


def _dense(config: Mlp, inputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in config.hidden:
        layers += [nn.Linear(inputs, width), _ACTIVATIONS[config.activation]()]
        inputs = width
    return nn.Sequential(*layers)


class Convolutions(nn.Module):
    """The HTS-RL paper's net: 32 of 8x8/4, 64 of 4x4/2, 64 of 3x3/1."""

    def __init__(self, config: Conv, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(shape[-1], 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
        )
        self.last = _Last(self.layers, shape, config.hidden)
        self.features = config.hidden

    def forward(self, image: Tensor) -> Tensor:
        return self.last(self.layers(image))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """The IMPALA paper's net: stages of a convolution, a pool and two residual blocks."""

    def __init__(self, config: Impala, shape: tuple[int, ...]) -> None:
        super().__init__()
        channels = shape[-1]
        stages = []
        for width in config.channels:
            stages.append(_Stage(channels, width))
            channels = width
        self.layers = nn.Sequential(*stages, nn.ReLU())
        self.last = _Last(self.layers, shape, config.hidden)
        self.features = config.hidden

    def forward(self, image: Tensor) -> Tensor:
        return self.last(self.layers(image))  # type: ignore[no-any-return]


class _Stage(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.entry = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)
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
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
    )


class _Last(nn.Module):
    """The layer behind the convolutions."""

    def __init__(self, layers: nn.Module, shape: tuple[int, ...], hidden: int) -> None:
        super().__init__()
        height, width, channels = shape
        with torch.no_grad():
            flat = layers(torch.zeros(1, channels, height, width)).numel()
        self.layer = nn.Linear(flat, hidden)

    def forward(self, image: Tensor) -> Tensor:
        return torch.relu(self.layer(image.flatten(1)))
