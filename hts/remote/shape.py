"""What a simulator gives, as the arrays of the wire; and the other way round.

Axes that a simulator has no use for may be left out: that of agents where there is one, and that of
rows where its connection did not ask for several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hts.remote import wire
from hts_envs.contract import Array, Discrete, Observation, Spaces


class WrongShape(ValueError):
    """What the simulator gave is not what its own spaces declare."""


class Shape:
    """The shapes of one seat."""

    def __init__(self, spaces: Spaces, rows: int, *, single: bool) -> None:
        self.spaces = spaces
        self.rows = rows
        self.single = single
        self._only = next(iter(spaces.observation)) if len(spaces.observation) == 1 else None
        self._number = single and spaces.agents == 1 and isinstance(spaces.action, Discrete)

    def observation(self, given: Any, rows: int) -> Observation:
        """Arrays of (rows, agents, ...), nobody else's."""
        if self._only is not None and not isinstance(given, Mapping):
            given = {self._only: given}
        found = {}
        for name, space in self.spaces.observation.items():
            if name not in given:
                raise WrongShape(f"the observation has no {name!r}, which its spaces declare")
            array = np.array(given[name], dtype=space.dtype, order="C")
            found[name] = self._full(array, rows, space.shape, f"observation {name!r}")
        return found

    def reward(self, given: Any) -> Array:
        """One number for each agent of each row, as exactly as it is given."""
        return self._full(np.array(given, np.float64), self.rows, (), "reward")

    def ends(self, terminated: Any, truncated: Any) -> Array:
        """Both flags of each row as one number."""
        flags = [np.asarray(given, bool) for given in (terminated, truncated)]
        if any(flag.size not in (1, self.rows) for flag in flags):
            raise WrongShape("terminated and truncated: one flag for each replica of the seat")
        first, second = (np.broadcast_to(flag.reshape(-1), (self.rows,)) for flag in flags)
        return np.asarray(first * wire.TERMINATED + second * wire.TRUNCATED, np.uint8)

    def action(self, action: Array) -> Any:
        """What a simulator of this kind wants: a number, or an array without idle axes."""
        found = action.astype(action.dtype.newbyteorder("="))  # nobody else's
        if self.spaces.agents == 1:
            found = found[:, 0]
        if self.single:
            found = found[0]
        return int(found) if self._number else found

    def _full(self, array: Array, rows: int, shape: tuple[int, ...], what: str) -> Array:
        agents = self.spaces.agents
        allowed = [(rows, agents, *shape)]
        if agents == 1:
            allowed.append((rows, *shape))
        if self.single:
            allowed += [each[1:] for each in allowed]
        if array.shape not in allowed:
            raise WrongShape(f"{what} has the shape {array.shape}; declared is {allowed[-1]}")
        return array.reshape(allowed[0])
