"""Recurrent cells: what a network remembers between two observations of an episode.

The bits of a sequence are those of its steps one by one, as they were when it was acted out: the
part of a step that depends on the input alone is one product for the rows of all steps, the part
that depends on the state is one product a step, and in products of four or more rows and in
elementwise functions no row sees another. There is one trap: torch computes the sigmoids of an
array's tail otherwise than those of its body, and where rows stand back to back, only the last of
them is tail. So sigmoids are taken of a part of each row, which makes every row an array.

The state of a row is one vector: the cell's output, then whatever else it keeps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hts.models.layers import Direct, WideLinear
from hts_envs.contract import Array


class Cell(Direct, ABC):
    """`gates` blocks of `units` rows in each weight, `kept` vectors of `units` in a state."""

    gates: ClassVar[int]
    kept: ClassVar[int]

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.units = units
        self.given = WideLinear(inputs, self.gates * units)
        self.state_weight = nn.Parameter(torch.zeros(self.gates * units, units))

    @abstractmethod
    def step(self, given: Tensor, state: list[Tensor]) -> list[Tensor]:
        """The state after one step: `given` is the input's part of every gate."""

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and states after one step of each row."""
        after = self.step(self.given(features), self._parts(state))
        return after[0], _joined(after)

    def unroll(self, features: Tensor, state: Tensor, begins: Array) -> tuple[Tensor, Tensor]:
        """Outputs and states after every step; rows are (sequence, step, agent).

        `state` (sequences x agents, size) is what was remembered before the first step. Where an
        episode begins (`begins`: sequences, steps) nothing is, and no gradient passes.
        """
        sequences, steps = begins.shape
        agents = len(state) // sequences
        given = self.given(features).view(sequences, steps, agents, -1)
        by_step = given.transpose(0, 1).reshape(steps, sequences * agents, -1).unbind(0)
        parts, found = self._parts(state), []
        for rows, begun in zip(by_step, begins.T, strict=True):
            if begun.any():
                forgets = torch.from_numpy(np.repeat(begun, agents)[:, None]).to(state.device)
                parts = [part.masked_fill(forgets, 0.0) for part in parts]
            parts = self.step(rows, parts)
            found.append(parts)
        shape = (sequences, agents, steps, self.units)
        stacked = [torch.stack(part, 1).view(shape) for part in zip(*found, strict=True)]
        ordered = [part.transpose(1, 2).reshape(-1, self.units) for part in stacked]
        return ordered[0], _joined(ordered)

    def initialise(self, generator: torch.Generator) -> None:
        """Every gate's own weights orthogonal, biases zero."""
        for weight in (self.given.weight, self.state_weight):
            for gate in weight.data.chunk(self.gates):
                drawn = torch.empty(gate.shape)
                gate.copy_(nn.init.orthogonal_(drawn, generator=generator))
        self.given.bias.data.zero_()

    def _parts(self, state: Tensor) -> list[Tensor]:
        assert state.shape[-1] == self.kept * self.units, "the state of another cell"
        return [part.contiguous() for part in state.chunk(self.kept, -1)]


class LongShortTerm(Cell):
    """LSTM. Gates in order: input, forget, output, candidate; the state is output and cell."""

    gates, kept = 4, 2

    def step(self, given: Tensor, state: list[Tensor]) -> list[Tensor]:
        output, cell = state
        gates = given + functional.linear(output, self.state_weight)
        enter, keep, show = torch.sigmoid(gates[:, : 3 * self.units]).chunk(3, -1)
        cell = keep * cell + enter * torch.tanh(gates[:, 3 * self.units :])
        return [show * torch.tanh(cell), cell]

    def initialise(self, generator: torch.Generator) -> None:
        """A forget bias of 1: at first, what was remembered stays."""
        super().initialise(generator)
        self.given.bias.data[self.units : 2 * self.units] = 1.0


class GatedUnit(Cell):
    """GRU. Gates in order: reset, update, candidate; the state is the output."""

    gates, kept = 3, 1

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__(inputs, units)
        self.state_bias = nn.Parameter(torch.zeros(self.gates * units))

    def step(self, given: Tensor, state: list[Tensor]) -> list[Tensor]:
        (output,) = state
        both = 2 * self.units
        kept = functional.linear(output, self.state_weight, self.state_bias)
        reset, update = torch.sigmoid((given + kept)[:, :both]).chunk(2, -1)
        candidate = torch.tanh(given[:, both:] + reset * kept[:, both:])
        return [candidate + update * (output - candidate)]

    def initialise(self, generator: torch.Generator) -> None:
        super().initialise(generator)
        self.state_bias.data.zero_()


def make_cell(kind: Literal["lstm", "gru"], inputs: int, units: int) -> Cell:
    """The cell that an experiment names."""
    return {"lstm": LongShortTerm, "gru": GatedUnit}[kind](inputs, units)


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, -1) if len(parts) > 1 else parts[0]
