"""How batches are made; found out in hts.determinism.invariance. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Strategy:
    """How actors batch. `padding` 0 means that no padding was safe: fixed slots are needed.

    `packs`: their layers may lay out weights once for each version. `shards`: how a learner, whose
    layers do not, pads what it looks at together.
    """

    padding: int
    why: str
    packs: bool = False
    shards: int = 1
