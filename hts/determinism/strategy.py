"""How batches are made; found out in hts.determinism.invariance. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST_BATCH = 256
"""Rows, of the batches that are looked at."""


@dataclass(frozen=True)
class Strategy:
    """How actors batch. `padding` 0 means that no padding was safe: fixed slots are needed.

    `packs`: their layers may lay out weights once for each version. `learning`: the
    padding of what a learner, whose layers do not, looks at together.
    """

    padding: int
    why: str
    packs: bool = False
    learning: int = 1
