"""Versions of what acting depends on: parameters, and the statistics published with them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from hts.learn.normalise import Moments, ObservationScale
from hts.machine import ALIVE
from hts_envs.contract import Array


@dataclass(frozen=True)
class Version:
    """Everything that version `number` acts with; it never changes (I4)."""

    number: int
    parameters: Tensor
    scale: ObservationScale = field(default_factory=ObservationScale)

    def copy(self) -> Version:
        """The same, in memory of its own."""
        return deepcopy(self)

    def arrays(self) -> dict[str, Array]:
        """What it is made of, under the names that shared memory has for it."""
        arrays: dict[str, Array] = {"parameters": self.parameters.numpy()}
        for name, moments in self.scale.moments.items():
            arrays[f"{name}.count"] = np.array(moments.count)
            arrays[f"{name}.mean"] = moments.mean
            arrays[f"{name}.squares"] = moments.squares
        return arrays

    @staticmethod
    def of(number: int, arrays: Mapping[str, Array]) -> Version:
        """The version of this number that is made of these arrays."""
        moments = {
            name: Moments(
                arrays[f"{name}.count"].item(), arrays[f"{name}.mean"], arrays[f"{name}.squares"]
            )
            for name in (each.removesuffix(".count") for each in arrays if each.endswith(".count"))
        }
        parameters = torch.from_numpy(np.array(arrays["parameters"]))
        return Version(number, parameters, ObservationScale(moments))


class Published:
    """The versions that are alive, in shared memory, each in the place of its number."""

    def __init__(self, arrays: Mapping[str, Array], fields: tuple[str, ...]) -> None:
        self._arrays = arrays
        self._fields = fields
        self._seen: dict[int, Version] = {}  # by place

    def publish(self, version: Version) -> None:
        """Write it; whoever is told its number may read it from then on."""
        place = version.number % ALIVE
        self._arrays["parameters"][place] = version.parameters.numpy()
        for name in self._fields:
            moments = version.scale.moments[name]
            self._arrays[f"{name}.count"][place] = moments.count
            self._arrays[f"{name}.mean"][place] = moments.mean
            self._arrays[f"{name}.squares"][place] = moments.squares
        self._arrays["published"][place] = version.number + 1  # zero: nothing yet

    def read(self, number: int) -> Version:
        """The version of this number; its arrays are read in place."""
        place = number % ALIVE
        found = int(self._arrays["published"][place]) - 1
        assert found == number, f"I4: version {found} stands where version {number} should"
        if place not in self._seen or self._seen[place].number != number:
            self._seen[place] = self._view(number, place)
        return self._seen[place]

    def _view(self, number: int, place: int) -> Version:
        scale = {
            name: Moments(
                float(self._arrays[f"{name}.count"][place]),
                self._arrays[f"{name}.mean"][place],
                self._arrays[f"{name}.squares"][place],
            )
            for name in self._fields
        }
        parameters = torch.from_numpy(self._arrays["parameters"][place])
        return Version(number, parameters, ObservationScale(scale))
