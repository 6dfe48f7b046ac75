"""How far a learner has come, written so that a successor can go on from there.

What is kept after an update goes into the place that the update before did not use, then the count
of updates is raised: whoever dies in between has changed nothing that is read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hts_envs.contract import Array


class Learnt:
    """Updates that are complete, what was kept after the last of them, and the digest so far
    (where this is the learner that the digest is kept by)."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays

    @property
    def updates(self) -> int:
        return int(self._arrays["learnt"][0])

    @property
    def chain(self) -> str:
        """The digest after the last complete update."""
        return bytes(self._arrays["chain"][self.updates % 2]).hex()

    def kept(self, updates: int | None = None) -> dict[str, Array]:
        """What was kept after it, or after as many as that, if that is the one before; read in
        place."""
        place = (self.updates if updates is None else updates) % 2
        return {
            name.removeprefix("kept."): array[place]
            for name, array in self._arrays.items()
            if name.startswith("kept.")
        }

    def complete(self, kept: Mapping[str, Array], chain: str | None = None) -> None:
        """One update more is complete."""
        self.stand(self.updates + 1, kept, chain)

    def stand(self, updates: int, kept: Mapping[str, Array], chain: str | None = None) -> None:
        """So many updates are complete, and this was kept after the last of them."""
        place = updates % 2
        for name, array in kept.items():
            self._arrays[f"kept.{name}"][place] = array
        if chain is not None:
            self._arrays["chain"][place] = np.frombuffer(bytes.fromhex(chain), np.uint8)
        self._arrays["learnt"][0] = updates
