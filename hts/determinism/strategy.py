"""How batches are made; found out in hts.determinism.invariance. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST_BATCH = 256
"""Rows, of the batches that are looked at."""


INEXACT_RATIO = 1e-3
"""How far from 1 a ratio may be that would be 1 if rows had the same bits in every batch.

Measured: 7e-7 after 20 updates of an LSTM of 129 units with a learning rate of 0.01. One update
changes ratios by 1e-2 and more."""


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

    def ratio_error_limit(self, device: str) -> float:
        """Return how far the ratios of a rollout may be from 1 while the parameters that acted are
        still those that learn.

        With a safe padding they are the same bits. With fixed places they are not, since the
        learner's batches have other sizes. A GPU may choose kernels by size, and the learner's
        batches can be larger than any that was probed.
        """
        return 0.0 if self.padding and device == "cpu" else INEXACT_RATIO
