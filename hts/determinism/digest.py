"""The digest of a run: one chain over everything that was seen, done and learnt.

For each rollout, what each replica did is hashed by itself, field by field; the hashes are folded
in replica order, then the parameters that were learnt from it. Two runs are the same run exactly
as far as their chains agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from hts.memory.storage import Storage

_SIZE = 16


@dataclass(frozen=True)
class Link:
    """One update in the chain: a line of `digests.jsonl`."""

    update: int
    rollout: str
    parameters: str
    chain: str


class Digest:
    """The chain so far."""

    def __init__(self, identity: str) -> None:
        self.updates = 0
        self.chain = hashlib.blake2b(identity.encode(), digest_size=_SIZE).hexdigest()

    def fold(self, rollout: str, parameters: bytes) -> Link:
        """Append one update: the rollout that it read and the parameters that it made."""
        hashed = hashlib.blake2b(parameters, digest_size=_SIZE).hexdigest()
        text = f"{self.chain} {rollout} {hashed}".encode()
        self.chain = hashlib.blake2b(text, digest_size=_SIZE).hexdigest()
        self.updates += 1
        return Link(self.updates, rollout, hashed, self.chain)


def rollout_digest(replicas: Iterable[bytes]) -> str:
    """The parts of all replicas, in replica order."""
    whole = hashlib.blake2b(digest_size=_SIZE)
    for part in replicas:
        whole.update(part)
    return whole.hexdigest()


def replica_digest(storage: Storage, replica: int) -> bytes:
    """What one replica saw and did; the frame behind the last step belongs to the next rollout."""
    part = hashlib.blake2b(digest_size=_SIZE)
    history, steps = storage.sizes.history, storage.sizes.steps
    for declared in storage.declared:
        if not declared.hashed:
            continue
        mine = storage.arrays[declared.name][replica]
        first = history if declared.name.startswith("frames.") else 0
        part.update(mine[first : first + steps].data)
    return part.digest()
