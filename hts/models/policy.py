"""A policy with its value function: one flat vector of parameters, one forward for many rows.

A row is one agent of one replica. Where every agent has a network of its own, the vector holds
them one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from hts.config import Experiment
from hts.determinism.keys import Purpose, key
from hts.models.flat import ALIGNMENT, Flat
from hts.models.layers import packable
from hts.models.network import Answer, Back, Network, by_autograd
from hts_envs.contract import Array, Observation, Spaces
from hts_envs.randomness import uniform


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

    def with_back(self, observation: Observation) -> tuple[Answer, Back]:
        """The answer of a policy without a memory, and what adds its gradient."""
        if self.parts == 1:
            return self.network.with_back(self._rows(observation, slice(None), 2))
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


def _interleaved(answers: list[Answer]) -> Answer:
    """The answers of all agents, each about its own rows, as rows of (replica, agent)."""
    if len(answers) == 1:
        return answers[0]
    head, value = ([getattr(answer, name) for answer in answers] for name in ("head", "value"))
    states = [answer.state for answer in answers if answer.state is not None]
    state = torch.stack(states, 1).flatten(0, 1) if states else None
    return Answer(torch.stack(head, 1).flatten(0, 1), torch.stack(value, 1).flatten(), state)


def uniforms(keys: Array, agents: int, count: int) -> Array:
    """`count` float32 in [0, 1) for every agent of rows with these keys: (rows x agents, count)."""
    drawn = uniform(keys, agents * count).reshape(-1, count)
    return np.minimum(drawn.astype(np.float32), np.float32(1.0 - 2.0**-24))
