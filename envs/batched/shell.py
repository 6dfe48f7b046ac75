"""A batched world around a simulator on torch.

A simulator is a bundle of pure functions on tensors: draws to a start, state and action to the
next state, state to an observation. The shell holds the state, moves actions in and results out
(one copy each way), counts steps, and knows nothing of the physics.

State is kept as (components, replicas), so that each component is one contiguous array.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hts_envs.contract import (
    Array,
    BatchedStep,
    BatchedTally,
    BatchedWorld,
    Discrete,
    Observation,
    Spaces,
    Traits,
)
from hts_envs.errors import BadOption
from hts_envs.randomness import fold_rows, uniform

_START = 0x57A27  # the purpose under which a seed is folded into the draws of an episode's start


class Advance(NamedTuple):
    """One step of every replica: (components, replicas), then (replicas,) each."""

    state: Tensor
    reward: Tensor
    terminated: Tensor


class Simulator(ABC):
    """Pure functions; replicas are the last axis of a state and the first of anything else."""

    spaces: Spaces
    limit: int  # steps after which an episode is truncated
    draws: int  # uniform numbers that a start is made of

    @abstractmethod
    def start(self, draws: Tensor) -> Tensor:
        """(draws, rows) float64 in [0, 1) to a state."""

    @abstractmethod
    def advance(self, state: Tensor, action: Tensor) -> Advance:
        """One step; `action` is (replicas, *action shape)."""

    @abstractmethod
    def observe(self, state: Tensor) -> dict[str, Tensor]:
        """Fresh tensors, (rows, *shape), of the dtypes that `spaces` declares."""

    def picture(self, state: Tensor) -> Tensor | None:
        """Pictures of these states, (rows, height, width, 3) uint8, where there are any."""
        return None


class TorchWorld(BatchedWorld):
    """The replicas of one simulator on one device."""

    def __init__(self, simulator: Simulator, replicas: int, device: torch.device) -> None:
        self.spaces = simulator.spaces
        self.traits = Traits(time_limit=simulator.limit)
        self.replicas = replicas
        self._simulator = simulator
        self._device = device
        with torch.inference_mode():
            nowhere = torch.zeros((simulator.draws, replicas), dtype=torch.float64, device=device)
            self._state = simulator.start(nowhere)
        self._tally = BatchedTally(replicas)
        self._running = np.zeros(replicas, np.bool_)

    def reset(self, rows: Array, seeds: Array) -> Observation:
        assert len(rows) == len(seeds), f"{len(rows)} rows and {len(seeds)} seeds"
        draws = uniform(fold_rows(np.asarray(seeds, np.uint64), _START), self._simulator.draws)
        with torch.inference_mode():
            start = self._simulator.start(torch.tensor(draws.T.copy(), device=self._device))
            self._state[:, torch.tensor(rows, device=self._device)] = start
            seen = self._simulator.observe(start)
            arrays = to_host(list(seen.values()))
        self._tally.start(rows)
        self._running[rows] = True
        return _with_agents(seen, arrays)

    def step(self, action: Array) -> BatchedStep:
        self._check(action)
        with torch.inference_mode():
            given = torch.tensor(action[:, 0], device=self._device)
            self._state, reward, terminated = self._simulator.advance(self._state, given)
            seen = self._simulator.observe(self._state)
            arrays = to_host([*seen.values(), reward.to(torch.float32), terminated])
        ends = np.array(arrays.pop(), np.bool_)
        rewards = arrays.pop()
        self._tally.add(rewards)
        truncated = (self._tally.length >= self._simulator.limit) & ~ends
        self._running = ~(ends | truncated)
        observation = _with_agents(seen, arrays)
        return BatchedStep(observation, rewards[:, None], ends, truncated, self._tally.facts())

    def frame(self, row: int) -> Array | None:
        with torch.inference_mode():
            picture = self._simulator.picture(self._state[:, row : row + 1])
        return None if picture is None else picture[0].cpu().numpy()

    def _check(self, action: Array) -> None:
        space = self.spaces.action
        wanted = (self.replicas, 1, *space.shape)
        assert action.shape == wanted, f"an action of shape {action.shape}, not {wanted}"
        assert self._running.all(), f"row {int(np.argmin(self._running))} was not reset"
        if isinstance(space, Discrete):
            assert ((action >= 0) & (action < space.n)).all(), f"an action outside [0, {space.n})"


def to_host(tensors: Sequence[Tensor]) -> list[Array]:
    """The tensors as arrays; from a device they travel as one block of bytes, in one copy."""
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return [tensor.numpy() for tensor in tensors]
    return unpack(pack(tensors).cpu(), tensors)


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """Their bytes, one after the other; wider dtypes must come first, so that all are aligned."""
    widths = [tensor.element_size() for tensor in tensors]
    padded = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    order = sorted(range(len(tensors)), key=lambda i: -widths[i])
    return torch.cat([padded[i] for i in order])


def unpack(block: Tensor, tensors: Sequence[Tensor]) -> list[Array]:
    """The arrays whose bytes `pack` put into the block, in the order of `tensors`."""
    arrays: dict[int, Array] = {}
    begin = 0
    for i in sorted(range(len(tensors)), key=lambda i: -tensors[i].element_size()):
        size = tensors[i].numel() * tensors[i].element_size()
        part = block[begin : begin + size].view(tensors[i].dtype)
        arrays[i] = part.reshape(tensors[i].shape).numpy()
        begin += size
    return [arrays[i] for i in range(len(tensors))]


def _with_agents(seen: dict[str, Tensor], arrays: list[Array]) -> Observation:
    return {name: array[:, None] for name, array in zip(seen, arrays, strict=True)}


def device_of(text: str, owner: str) -> torch.device:
    """The device of this name, or a sentence about why there is none."""
    trouble = device_trouble(text, torch.cuda.device_count())
    if trouble:
        raise BadOption(f"{owner}: {trouble}")
    return torch.device(text)


def device_trouble(text: str, cuda_devices: int) -> str:
    """What is wrong with this name of a device, where there are so many; '' where nothing is."""
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", text)
    if match is None:
        return f"option device must be cpu, cuda or cuda:N, got {text!r}"
    if text != "cpu" and cuda_devices == 0:
        return f"device {text!r} is not there, torch sees no CUDA device: use device=cpu"
    if int(match[1] or 0) >= max(cuda_devices, 1):
        return f"device {text!r} is not there, the last one is 'cuda:{cuda_devices - 1}'"
    return ""
