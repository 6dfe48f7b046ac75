"""The digest of a run: one chain over everything that was seen, done and learnt.

For each rollout, what each replica did is hashed by itself, field by field; the hashes are folded
in replica order, then the parameters that were learnt from it. Two runs are the same run exactly
as far as their chains agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hts.memory.storage import Storage

_SIZE = 16
_MARKS = 64


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
        self.chain = _hashed(identity.encode())

    @staticmethod
    def after(updates: int, chain: str) -> Digest:
        """The chain as it is after so many updates."""
        found = Digest("")
        found.updates, found.chain = updates, chain
        return found

    def fold(self, rollout: str, parameters: bytes) -> Link:
        """Append one update: the rollout that it read and the parameters that it made."""
        return self.follow(rollout, _hashed(parameters))

    def follow(self, rollout: str, parameters: str) -> Link:
        """The same for parameters whose hash is known."""
        self.chain = _hashed(f"{self.chain} {rollout} {parameters}".encode())
        self.updates += 1
        return Link(self.updates, rollout, parameters, self.chain)


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


def marks(replicas: Sequence[bytes]) -> str:
    """A few letters for each replica, or group of neighbours: enough to say which ones differ."""
    groups = marked(len(replicas))
    return " ".join(_hashed(b"".join(replicas[group.start : group.stop]))[:6] for group in groups)


def marked(replicas: int) -> list[range]:
    """The replicas behind each mark: one, or an even share where there are too many for a line."""
    count = min(replicas, _MARKS)
    return [
        range(replicas * mark // count, replicas * (mark + 1) // count) for mark in range(count)
    ]


def _hashed(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_SIZE).hexdigest()
