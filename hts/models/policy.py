"""A policy with its value function: one flat vector of parameters, one forward for many rows.

The parameters of the modules are views of one vector, so that a version is one copy, a gradient
is one vector, and nothing walks over named parameters. A row is one agent of one replica.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from hts.config import Conv, Experiment, Impala, Mlp
from hts.determinism.keys import Purpose, key
from hts.models.distributions import Distribution, distribution
from hts.models.networks import Convolutions, Dense, Residual
from hts.models.spaces import is_image, stacked, vector_width
from hts_envs.contract import Array, Box, Discrete, Observation, Space, Spaces
from hts_envs.randomness import uniform


@dataclass(frozen=True)
class Answer:
    """What the network says about rows: the head of the distribution and the value."""

    head: Tensor
    value: Tensor


class Network(nn.Module):
    """Images through the torso, everything else beside its features; then both heads."""

    def __init__(self, experiment: Experiment, spaces: Spaces) -> None:
        super().__init__()
        self.spaces = stacked(spaces, experiment.frame_stack)
        self.images = [name for name, space in self.spaces.items() if is_image(space)]
        vectors = sum(vector_width(s) for n, s in self.spaces.items() if n not in self.images)
        self.distribution: Distribution = distribution(spaces.action)
        model = experiment.model
        if isinstance(model, Mlp):
            assert not self.images, "an mlp sees vectors only: config.fit says so to the user"
            self.torso: nn.Module = Dense(model, vectors)
            features = self.torso.features
        else:
            (image,) = self.images
            self.torso = _image_torso(model, self.spaces[image].shape)
            features = self.torso.features + vectors
        self.policy = nn.Linear(features, self.distribution.size - self.distribution.scale_free)
        self.value = nn.Linear(features, 1)
        self.deviation = nn.Parameter(torch.zeros(self.distribution.scale_free))

    def forward(self, observation: dict[str, Tensor]) -> Answer:
        vectors = [
            _vector(observation[name], space)
            for name, space in self.spaces.items()
            if name not in self.images
        ]
        if self.images:
            image = observation[self.images[0]].permute(0, 3, 1, 2)
            features = _joined([self.torso(image.float().mul_(1.0 / 255.0)), *vectors])
            for_value = features
        else:
            features, for_value = self.torso(_joined(vectors))
        head = self.policy(features)
        if len(self.deviation):
            head = torch.cat([head, self.deviation.expand(len(head), -1)], -1)
        return Answer(head, self.value(for_value).squeeze(-1))


class Policy:
    """One network whose parameters and gradients are one flat vector each."""

    def __init__(self, experiment: Experiment, spaces: Spaces, device: str = "cpu") -> None:
        self.device = torch.device(device)
        with torch.random.fork_rng(devices=[]):  # modules draw weights, which are replaced
            self.network = Network(experiment, spaces).to(self.device)
        self.distribution = self.network.distribution
        self.agents = spaces.agents
        self.size = sum(p.numel() for p in self.network.parameters())
        self.vector = torch.zeros(self.size, device=self.device)
        self.gradient = torch.zeros(self.size, device=self.device)
        begin = 0
        for parameter in self.network.parameters():
            end = begin + parameter.numel()
            parameter.data = self.vector[begin:end].view(parameter.shape)
            parameter.grad = self.gradient[begin:end].view(parameter.shape)
            begin = end

    def load(self, parameters: Tensor) -> None:
        """Compute with these parameters from now on; they are copied, never aliased."""
        assert parameters.shape == self.vector.shape, "a version of another network"
        self.vector.copy_(parameters)

    def answer(self, observation: Observation) -> Answer:
        """The network's answer for arrays whose leading axes are replicas and agents."""
        return self.network(self.tensors(observation))  # type: ignore[no-any-return]

    def tensors(self, observation: Observation) -> dict[str, Tensor]:
        """Arrays of (replicas, agents, ...) as tensors of (rows, ...) on the policy's device."""
        return {
            name: torch.from_numpy(array.reshape(-1, *array.shape[2:])).to(
                self.device, non_blocking=True
            )
            for name, array in observation.items()
        }


def initial_parameters(policy: Policy, seed: int) -> Tensor:
    """Orthogonal layers (gain sqrt 2; 0.01 for the policy's head, 1 for the value's), zero biases.

    Drawn from a generator of its own, named by the seed: no global generator is touched.
    """
    generator = torch.Generator().manual_seed(key(seed, Purpose.INITIALISATION) >> 1)
    network = policy.network
    for module in network.modules():
        if not isinstance(module, (nn.Linear, nn.Conv2d)):
            continue
        gain = {id(network.policy): 0.01, id(network.value): 1.0}.get(id(module), math.sqrt(2.0))
        weight = torch.empty(module.weight.shape)
        nn.init.orthogonal_(weight, gain, generator=generator)
        module.weight.data.copy_(weight)
        assert module.bias is not None, "every layer has a bias"
        module.bias.data.zero_()
    network.deviation.data.zero_()
    return policy.vector.detach().cpu().clone()


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


def _vector(rows: Tensor, space: Space) -> Tensor:
    """Rows of one field as vectors: numbers as they are, choices one-hot."""
    if isinstance(space, Box):
        return rows.reshape(len(rows), -1).float()
    if isinstance(space, Discrete):
        return nn.functional.one_hot(rows, space.n).float()
    hot = [nn.functional.one_hot(rows[:, i], n) for i, n in enumerate(space.nvec)]
    return torch.cat(hot, -1).float()


def _image_torso(model: Conv | Impala, shape: tuple[int, ...]) -> Convolutions | Residual:
    return Convolutions(model, shape) if isinstance(model, Conv) else Residual(model, shape)


def uniforms(keys: Array, agents: int, count: int) -> Array:
    """`count` float32 in [0, 1) for every agent of rows with these keys: (rows x agents, count)."""
    drawn = uniform(keys, agents * count).reshape(-1, count)
    return np.minimum(drawn.astype(np.float32), np.float32(1.0 - 2.0**-24))
