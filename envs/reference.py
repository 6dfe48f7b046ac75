"""The `reference:` family: a simulator that can be written in any language in a page.

Whoever writes a client for the protocol of `hts/remote` in another language writes this simulator
beside it: the digest of a run with it, dialled in, must be that of a run with this one. It is all
whole numbers of 64 bits; the few fractions are exact. `PROTOCOL.md` there says the same in words.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from hts_envs.contract import (
    Array,
    Box,
    Discrete,
    Observation,
    Place,
    Spaces,
    Step,
    Tally,
    Traits,
    World,
)
from hts_envs.options import Range, option
from hts_envs.registry import Spec, Unnamed

LENGTH = 20
"""Steps after which an episode is truncated."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_M1 = 0xBF58476D1CE4E5B9
_M2 = 0x94D049BB133111EB
_ACTIONS, _VALUES, _PICTURE = 3, 4, (2, 8)


@dataclass(frozen=True)
class ReferenceOptions:
    """How many agents a replica has."""

    agents: Annotated[int, Range(1, 8)] = option(1, "agents of each replica")


def mix(x: int) -> int:
    """The finaliser of SplitMix64."""
    x &= _MASK
    x = ((x ^ (x >> 30)) * _M1) & _MASK
    x = ((x ^ (x >> 27)) * _M2) & _MASK
    return x ^ (x >> 31)


class ReferenceWorld(World):
    """A state of 64 bits, mixed with the actions at each step; everything is read off it."""

    def __init__(self, agents: int) -> None:
        observation = {"picture": Box(_PICTURE, "uint8", 0, 255), "values": Box((_VALUES,))}
        self.spaces = Spaces(observation, Discrete(_ACTIONS), agents)
        self.traits = Traits(time_limit=LENGTH)
        self._agents = agents
        self._state = 0
        self._tally = Tally()

    def reset(self, seed: int) -> Observation:
        self._state = mix(seed + _GOLDEN)
        self._tally.start()
        return self._seen()

    def step(self, action: Array) -> Step:
        for agent, each in enumerate(action):
            self._state = mix(self._state + _GOLDEN * (int(each) + 1) + agent)
        rewards = [mix(self._state + agent) >> 56 for agent in range(self._agents)]
        reward = np.array(rewards, np.float32) / 256 - np.float32(0.5)
        self._tally.add(float(reward.mean(dtype=np.float64)))
        terminated, truncated = self._state & 31 == 0, self._tally.length == LENGTH
        facts = self._tally.facts() if terminated or truncated else {}
        return Step(self._seen(), reward, terminated, truncated, facts)

    def _seen(self) -> Observation:
        values = np.zeros((self._agents, _VALUES), np.float32)
        pictures = np.zeros((self._agents, *_PICTURE), np.uint8)
        for agent in range(self._agents):
            words = [mix(self._state + _GOLDEN * (at + 1) + agent) for at in range(_VALUES)]
            values[agent] = [(word >> 40) / 2**24 for word in words]
            packed = struct.pack("<2Q", *words[:2])
            pictures[agent] = np.frombuffer(packed, np.uint8).reshape(_PICTURE)
        return {"picture": pictures, "values": values}


class Reference(Unnamed):
    """One environment, one option."""

    name = "reference"
    summary = "a simulator small enough to be written again in any language"

    def options(self, name: str) -> type[Any]:
        return ReferenceOptions

    def batched(self, spec: Spec) -> bool:
        return False

    def make(self, spec: Spec, place: Place) -> World:
        return ReferenceWorld(spec.options.agents)


FAMILY = Reference()
