"""Two critics: what taking an action is worth, each with layers of its own.

Each says one number for a row, or, where it is categorical, how likely each of some values is.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from hts.config import PQL, Experiment
from hts.determinism.keys import Purpose, key
from hts.models.flat import Flat
from hts.models.layers import Direct, Linear
from hts.models.policy import orthogonal
from hts.models.spaces import critic_fields, vector_width
from hts.models.torsos import activation, vectors
from hts_envs.contract import Observation, Spaces

BOTH = 2


class Critic(Direct):
    """One of them."""

    def __init__(self, algo: PQL, inputs: int) -> None:
        super().__init__()
        outputs = algo.atoms if algo.critic == "categorical" else 1
        widths = [inputs, *algo.critic_hidden]
        self.layers = nn.ModuleList(Linear(*each) for each in pairwise(widths))
        self.last = Linear(widths[-1], outputs)
        self._activation = activation(algo.critic_activation)

    def forward(self, rows: Tensor) -> Tensor:
        for layer in self.layers:
            rows = self._activation(layer(rows))
        said: Tensor = self.last(rows)
        return said


class Critics(Flat[Critic]):
    """Both, on one vector of parameters."""

    def __init__(self, experiment: Experiment, spaces: Spaces, device: str = "cpu") -> None:
        algo = experiment.algo
        assert isinstance(algo, PQL), "critics are for what is learnt from a replay"
        self.seen = critic_fields(experiment, spaces)
        actions = vector_width(spaces.action)
        inputs = sum(map(vector_width, self.seen.values())) + actions
        with torch.random.fork_rng(devices=[]):  # modules draw weights, which are replaced
            made = [Critic(algo, inputs) for _ in range(BOTH)]
        super().__init__(made, torch.device(device))

    def features(self, observation: Observation) -> Tensor:
        """What both critics see of the observation: arrays of (rows, ...) as one tensor."""
        shown = {name: torch.from_numpy(observation[name]) for name in self.seen}
        moved = {name: rows.to(self.device, non_blocking=True) for name, rows in shown.items()}
        return torch.cat(vectors(moved, self.seen), -1)

    def judge(self, features: Tensor, action: Tensor) -> Tensor:
        """What each critic says of these actions, seen as said above: (2, rows, outputs)."""
        rows = torch.cat([features, action], -1)
        return torch.stack([critic(rows) for critic in self.networks])

    def freeze(self) -> Critics:
        """For whoever only asks what an action is worth: no gradient of the critics' own."""
        for parameter in self._parameters():
            parameter.requires_grad_(False)
        return self


def initial_critics(critics: Critics, seed: int) -> Tensor:
    """Orthogonal layers (gain sqrt 2; 1 for the last), zero biases: each critic's own."""
    for number, critic in enumerate(critics.networks):
        named = key(seed, Purpose.INITIALISATION, number, 1)  # behind those of the policies
        generator = torch.Generator().manual_seed(named >> 1)
        for layer in critic.layers:
            assert isinstance(layer, nn.Linear), "a critic's layers are linear ones"
            orthogonal(layer, math.sqrt(2.0), generator)
        orthogonal(critic.last, 1.0, generator)
    return critics.vector.detach().cpu().clone()
