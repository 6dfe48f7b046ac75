"""A policy with its value function: one flat vector of parameters, one forward for many rows.

A row is one agent of one replica. Where every agent has a network of its own, the vector holds
them one after the other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from hts.config import PQL, Conv, Experiment, Impala, Mlp
from hts.determinism.keys import Purpose, key
from hts.models.distributions import Distribution, distribution, weigh
from hts.models.exploring import Deterministic, Stochastic, Taught
from hts.models.flat import ALIGNMENT, Flat
from hts.models.layers import Direct, Joined, Linear, WideLinear, add_gradient, add_linear, packable
from hts.models.networks import Convolutions, Dense, Residual, Trace, vectors
from hts.models.recurrent import Cell, make_cell
from hts.models.spaces import is_image, policy_fields, vector_width
from hts_envs.contract import Array, Box, Observation, Space, Spaces
from hts_envs.randomness import uniform


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

    def learnt(self, observation: dict[str, Tensor]) -> tuple[Answer, Back]:
        """The answer to each row, and its way back: by hand where all layers are dense, with the
        bits of autograd's, which in a small net takes as long as the layers."""
        if not (isinstance(self.torso, Dense) and self.torso.has_slopes) or self.cell is not None:
            answer = self(observation)
            return answer.alone(), by_autograd(answer)
        with torch.no_grad():
            traces = self.torso.traces(self._numbers(observation))
            answer = self._said(traces[0][-1], traces[-1][-1])
        return answer, partial(self._back, traces)

    @torch.no_grad()
    def _back(self, traces: list[Trace], head: Tensor, value: Tensor) -> None:
        assert isinstance(self.torso, Dense), "it has kept traces"
        assert self.value is not None, "it has a head for this"
        if free := self.distribution.scale_free:
            head, deviations = torch.split(head, [head.shape[1] - free, free], -1)
            add_gradient(self.deviation, deviations.sum(0))
        value = value.unsqueeze(-1)
        add_linear(self.policy.weight, self.policy.bias, traces[0][-1], head)
        add_linear(self.value.weight, self.value.bias, traces[-1][-1], value)
        self.torso.back(traces, head.mm(self.policy.weight), value.mm(self.value.weight))

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


class Policy(Flat[Network]):
    """One network for all agents, or one for each; parameters and gradients are one flat vector.

    `parts` is the number of networks, whose parameters stand one after the other in the vector;
    `state_size` how many numbers are remembered of each row. One that `packs` is for answers only:
    it reads a version where that lies, and nothing changes one (I4).
    """

    def __init__(
        self, experiment: Experiment, spaces: Spaces, device: str = "cpu", *, packs: bool = False
    ) -> None:
        self.packs = packs
        self.world = spaces
        self.agents = spaces.agents
        self.parts = spaces.agents if experiment.policies == "separate" else 1
        self.state_size = experiment.state_size
        with torch.random.fork_rng(devices=[]):  # modules draw weights, which are replaced
            made = [Network(experiment, spaces) for _ in range(self.parts)]
        super().__init__(made, torch.device(device))
        self.network = self.networks[0]
        self.distribution = self.network.distribution
        self.values_apart = self.network.values_apart
        self._is_host = self.device.type == "cpu"
        self._sees = tuple(self.network.spaces)
        self._packable = [layer for each in self.networks for layer in packable(each)]

    def load(self, parameters: Tensor) -> None:
        if not (self.packs and self._is_host):
            super().load(parameters)
            return
        self.adopt(parameters if parameters.data_ptr() % ALIGNMENT == 0 else parameters.clone())
        for layer in self._packable:
            layer.pack()

    def twin(self) -> Policy:
        """With distributions of its own, too."""
        twin = super().twin()
        twin.network = twin.networks[0]
        twin.distribution = twin.network.distribution
        return twin

    def answer(self, observation: Observation, state: Array | None = None) -> Answer:
        """The answer for arrays whose leading axes are replicas and agents.

        `state` (replicas, agents, state_size), for a recurrent policy alone, is zero where an
        episode begins.
        """
        assert (state is None) == (self.state_size == 0), "state is given to recurrent policies"
        if self.parts == 1:
            rows = {name: self._tensor(observation[name], 2) for name in self._sees}
            said: Answer = self.network(rows, None if state is None else self._tensor(state, 2))
            return said
        answers = [
            network(
                self._rows(observation, agents, 2),
                None if state is None else self._tensor(state[:, agents], 2),
            )
            for network, agents in self._networks()
        ]
        return _interleaved(answers)

    def learnt(self, observation: Observation) -> tuple[Answer, Back]:
        """The answer of a policy without a memory, and what adds its gradient."""
        if self.parts == 1:
            return self.network.learnt(self._rows(observation, slice(None), 2))
        answer = self.answer(observation)
        return answer.alone(), by_autograd(answer)

    def head(self, observation: Observation, state: Array | None = None) -> Tensor:
        """The head of `answer`."""
        if self.values_apart:
            return self._parts(observation, Network.head)
        return self.answer(observation, state).head

    def value(self, observation: Observation, state: Array | None = None) -> Tensor:
        """The value of `answer`."""
        if self.values_apart:
            return self._parts(observation, Network.worth)
        return self.answer(observation, state).value

    def _parts(
        self, observation: Observation, ask: Callable[[Network, dict[str, Tensor]], Tensor]
    ) -> Tensor:
        """What each network says about its agents' rows."""
        if self.parts == 1:
            return ask(self.network, self._rows(observation, slice(None), 2))
        said = [
            ask(network, self._rows(observation, agents, 2)) for network, agents in self._networks()
        ]
        return torch.stack(said, 1).flatten(0, 1)

    def unroll(self, observation: Observation, state: Array, begins: Array) -> Answer:
        """The answer of a recurrent policy for whole sequences, with the bits of `answer`.

        Observations are (sequences, steps, agents, ...), the state before the first step is
        (sequences, agents, state_size); where `begins` (sequences, steps) says that an episode
        begins, the state is zero before that step. Rows are (sequence, step, agent).
        """
        answers = [
            network.unroll(
                self._rows(observation, agents, 3), self._tensor(state[:, agents], 2), begins
            )
            for network, agents in self._networks()
        ]
        return _interleaved(answers)

    def _networks(self) -> Iterator[tuple[Network, slice]]:
        """Each network with the agents that it answers."""
        if self.parts == 1:
            yield self.network, slice(None)
            return
        for agent, network in enumerate(self.networks):
            yield network, slice(agent, agent + 1)

    def _rows(self, observation: Observation, agents: slice, leading: int) -> dict[str, Tensor]:
        """Arrays whose last leading axis is agents as tensors of rows of some of them."""
        chosen = (slice(None),) * (leading - 1) + (agents,)
        return {name: self._tensor(observation[name][chosen], leading) for name in self._sees}

    def _tensor(self, array: Array, leading: int) -> Tensor:
        rows = torch.from_numpy(array.reshape(-1, *array.shape[leading:]))
        return rows if self._is_host else rows.to(self.device, non_blocking=True)


def initial_parameters(policy: Policy, seed: int) -> Tensor:
    """Orthogonal layers (gain sqrt 2; 0.01 for the policy's head, 1 for the value's and for
    recurrent cells), zero biases (1 where an LSTM forgets).

    Drawn from generators of their own, named by the seed and by the agent whose network it is: no
    global generator is touched.
    """
    for agent, network in enumerate(policy.networks):
        named = key(seed, Purpose.INITIALISATION, agent)
        _initialise(network, torch.Generator().manual_seed(named >> 1))
    return policy.vector.detach().cpu().clone()


def _initialise(network: Network, generator: torch.Generator) -> None:
    by_themselves = set() if network.cell is None else set(network.cell.modules())
    for module in network.modules():
        if not isinstance(module, (nn.Linear, nn.Conv2d)) or module in by_themselves:
            continue
        gain = {id(network.policy): 0.01, id(network.value): 1.0}.get(id(module), math.sqrt(2.0))
        orthogonal(module, gain, generator)
    if network.cell is not None:
        network.cell.initialise(generator)
    network.deviation.data.zero_()
    if network.log_temperature is not None:
        network.log_temperature.data.zero_()


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float, generator: torch.Generator) -> None:
    """An orthogonal weight of this gain, and no bias."""
    weight = torch.empty(layer.weight.shape)
    nn.init.orthogonal_(weight, gain, generator=generator)
    layer.weight.data.copy_(weight)
    assert layer.bias is not None, "every layer has a bias"
    layer.bias.data.zero_()


def _distribution(experiment: Experiment, spaces: Spaces) -> Distribution:
    """What the policy's head means."""
    if not isinstance(experiment.algo, PQL):
        return distribution(spaces.action, squash=experiment.squash)
    numbers = vector_width(spaces.action)
    return (Stochastic if experiment.algo.policy == "sac" else Deterministic)(numbers)


def _interleaved(answers: list[Answer]) -> Answer:
    """The answers of all agents, each about its own rows, as rows of (replica, agent)."""
    if len(answers) == 1:
        return answers[0]
    head, value = ([getattr(answer, name) for answer in answers] for name in ("head", "value"))
    states = [answer.state for answer in answers if answer.state is not None]
    state = torch.stack(states, 1).flatten(0, 1) if states else None
    return Answer(torch.stack(head, 1).flatten(0, 1), torch.stack(value, 1).flatten(), state)


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


def uniforms(keys: Array, agents: int, count: int) -> Array:
    """`count` float32 in [0, 1) for every agent of rows with these keys: (rows x agents, count)."""
    drawn = uniform(keys, agents * count).reshape(-1, count)
    return np.minimum(drawn.astype(np.float32), np.float32(1.0 - 2.0**-24))
