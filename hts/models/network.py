"""A policy's network: from the observations of rows to the heads that describe their actions, and
to their values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from hts.config import PQL, Conv, Experiment, Impala, Mlp
from hts.models.distributions import Distribution, distribution, weigh
from hts.models.exploring import Deterministic, Stochastic, Taught
from hts.models.layers import Direct, Joined, Linear, WideLinear, add_gradient, add_linear
from hts.models.recurrent import Cell, make_cell
from hts.models.spaces import is_image, policy_fields, vector_width
from hts.models.torsos import Convolutions, Dense, Residual, Way, vectors
from hts_envs.contract import Array, Box, Space, Spaces


class Answer(NamedTuple):
    """What the network says about rows: the head of the distribution, the value, and the
    recurrent state after each row, if there is any."""

    head: Tensor
    value: Tensor
    state: Tensor | None = None

    def alone(self) -> Answer:
        """The same numbers, without what they were made of."""
        return Answer(self.head.detach(), self.value.detach())


Back: TypeAlias = Callable[[Tensor, Tensor], None]
"""Adds what slopes of an answer's head and value make of the parameters' gradient."""


def by_autograd(answer: Answer) -> Back:
    """The way back through what torch has seen."""

    def back(head: Tensor, value: Tensor) -> None:
        weighed = weigh(answer.head, head) + weigh(answer.value, value)
        weighed.backward()  # type: ignore[no-untyped-call]

    return back


class Network(Direct):
    """Images through the torso, everything else beside its features; a cell, if the model is
    recurrent; then both heads."""

    def __init__(self, experiment: Experiment, spaces: Spaces) -> None:
        super().__init__()
        self.spaces = policy_fields(experiment, spaces)
        self.images = [name for name, space in self.spaces.items() if is_image(space)]
        self._vectors = {n: s for n, s in self.spaces.items() if n not in self.images}
        width = sum(map(vector_width, self._vectors.values()))
        self._only = _only_numbers(self.spaces)
        self.distribution = _distribution(experiment, spaces)
        taught = isinstance(self.distribution, Taught)
        model = experiment.model
        self.is_sparse = False
        if isinstance(model, Mlp):
            model = dataclasses.replace(model, shared=True) if taught else model
            assert not self.images, "an mlp sees vectors only: config.fit says so to the user"
            self.torso: nn.Module = Dense(model, width)
            features, together = self.torso.features, self.torso.together
        else:
            (image,) = self.images
            self.torso = _image_torso(model, self.spaces[image].shape)
            self.is_sparse = isinstance(model, Conv) and model.first == "sparse"
            features = together = self.torso.features + width
        self.cell: Cell | None = None
        if experiment.recurrent != "none":
            features = experiment.recurrent_units
            self.cell = make_cell(experiment.recurrent, together, features)
        # Behind images, heads of MKL would be what asks for batches of sixteen rows; behind vectors
        # its short way there is what counts (hts/design/0006).
        head = WideLinear if self.images else Linear
        self.policy = head(features, self.distribution.size - self.distribution.scale_free)
        # What critics teach has no value of its own, and maybe a temperature for its entropy.
        self.value = None if taught else head(features, 1)
        self.joined = Joined(self.policy, self.value) if self.images and self.value else None
        self.deviation = nn.Parameter(torch.zeros(self.distribution.scale_free))
        self.log_temperature: nn.Parameter | None = None
        if isinstance(self.distribution, Stochastic):
            self.log_temperature = nn.Parameter(torch.zeros(1))

    def forward(self, observation: dict[str, Tensor], state: Tensor | None = None) -> Answer:
        """The answer to each row by itself."""
        features, for_value = self._features(observation)
        if self.cell is None:
            return self._said(features, for_value)
        assert state is not None, "a recurrent network is asked with its state"
        output, after = self.cell(_both(features, for_value), state)
        return self._said(output, output, after)

    @property
    def values_apart(self) -> bool:
        """Whether values have layers of their own all the way: `head` and `worth` can be asked."""
        has_stacks = isinstance(self.torso, Dense) and not self.torso.is_shared
        return has_stacks and self.cell is None and self.value is not None

    def head(self, observation: dict[str, Tensor]) -> Tensor:
        """The head of the answer to each row."""
        assert isinstance(self.torso, Dense), "it has a stack for this"
        return self._spread(self.policy(self.torso.for_policy(self._numbers(observation))))

    def worth(self, observation: dict[str, Tensor]) -> Tensor:
        """The value in it."""
        assert isinstance(self.torso, Dense), "it has a stack for this"
        assert self.value is not None, "it has a head for this"
        found: Tensor = self.value(self.torso.for_value(self._numbers(observation)))
        return found.squeeze(-1)

    def with_back(self, observation: dict[str, Tensor]) -> tuple[Answer, Back]:
        """The answer to each row, and its way back: by hand where all layers are dense, with the
        bits of autograd's, which in a small net takes as long as the layers."""
        if not (isinstance(self.torso, Dense) and self.torso.has_slopes) or self.cell is not None:
            answer = self(observation)
            return answer.alone(), by_autograd(answer)
        with torch.no_grad():
            ways = self.torso.ways(self._numbers(observation))
            answer = self._said(ways[0][-1], ways[-1][-1])
        return answer, partial(self._back, ways)

    @torch.no_grad()
    def _back(self, ways: list[Way], head: Tensor, value: Tensor) -> None:
        assert isinstance(self.torso, Dense), "it has kept the ways"
        assert self.value is not None, "it has a head for this"
        if free := self.distribution.scale_free:
            head, deviations = torch.split(head, [head.shape[1] - free, free], -1)
            add_gradient(self.deviation, deviations.sum(0))
        value = value.unsqueeze(-1)
        add_linear(self.policy.weight, self.policy.bias, ways[0][-1], head)
        add_linear(self.value.weight, self.value.bias, ways[-1][-1], value)
        self.torso.back(ways, head.mm(self.policy.weight), value.mm(self.value.weight))

    def unroll(self, observation: dict[str, Tensor], state: Tensor, begins: Array) -> Answer:
        """The answer to rows of (sequence, step, agent), the steps one after the other."""
        assert self.cell is not None, "only a recurrent network has a state to unroll"
        output, after = self.cell.unroll(_both(*self._features(observation)), state, begins)
        return self._said(output, output, after)

    def _features(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Features for the policy and for the value; the same tensor where they share layers."""
        if not self.images:
            found: tuple[Tensor, Tensor] = self.torso(self._numbers(observation))
            return found
        beside = vectors(observation, self._vectors)
        features = _joined([self.torso(observation[self.images[0]]), *beside])
        return features, features

    def _numbers(self, observation: dict[str, Tensor]) -> Tensor:
        """All that is seen, as a vector for each row."""
        if self._only:
            return observation[self._only]
        return _joined(vectors(observation, self._vectors))

    def _said(self, features: Tensor, for_value: Tensor, state: Tensor | None = None) -> Answer:
        value: Tensor | None = None
        if self.joined is not None:  # behind images, both see the same
            head, value = self.joined(features)
        else:
            head = self.policy(features)
            if self.value is not None:
                value = self.value(for_value)
        head = self._spread(head)
        if value is None:
            return Answer(head, head.new_zeros(len(head)), state)
        return Answer(head, value.squeeze(-1), state)

    def _spread(self, head: Tensor) -> Tensor:
        """With the deviations that go with it, if it has any."""
        if not self.distribution.scale_free:
            return head
        return torch.cat([head, self.deviation.expand(len(head), -1)], -1)


def _distribution(experiment: Experiment, spaces: Spaces) -> Distribution:
    """What the policy's head means."""
    if not isinstance(experiment.algo, PQL):
        return distribution(spaces.action, squash=experiment.squash)
    numbers = vector_width(spaces.action)
    return (Stochastic if experiment.algo.policy == "sac" else Deterministic)(numbers)


def _only_numbers(spaces: Mapping[str, Space]) -> str:
    """The one field there is, where it is a vector of float32 as it is; else nothing."""
    name, *others = spaces
    is_vector = isinstance(space := spaces[name], Box) and len(space.shape) == 1
    return name if is_vector and space.dtype == "float32" and not others else ""


def _both(features: Tensor, for_value: Tensor) -> Tensor:
    return features if for_value is features else torch.cat([features, for_value], -1)


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


def _image_torso(model: Conv | Impala, shape: tuple[int, ...]) -> Convolutions | Residual:
    return Convolutions(model, shape) if isinstance(model, Conv) else Residual(model, shape)
