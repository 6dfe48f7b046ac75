"""Versions of what acting depends on: parameters, and the statistics published with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from hts.learn.normalise import ObservationScale


@dataclass(frozen=True)
class Version:
    """Everything that version `number` acts with; it never changes (I4)."""

    number: int
    parameters: Tensor
    scale: ObservationScale = field(default_factory=ObservationScale)
