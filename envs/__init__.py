"""The worlds: every simulator the trainer can step, behind one contract. Imports nothing of hts."""

from hts_envs.contract import (
    BatchedStep,
    BatchedWorld,
    Box,
    Discrete,
    MultiDiscrete,
    Place,
    Spaces,
    Step,
    Traits,
    World,
)
from hts_envs.registry import FAMILIES, Spec, family, make, parse

__all__ = [
    "FAMILIES",
    "BatchedStep",
    "BatchedWorld",
    "Box",
    "Discrete",
    "MultiDiscrete",
    "Place",
    "Spaces",
    "Spec",
    "Step",
    "Traits",
    "World",
    "family",
    "make",
    "parse",
]
