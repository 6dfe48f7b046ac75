"""The digest of a run: one chain over everything that was seen, done and learnt.

For each rollout, what each replica did is hashed by itself, field by field; the hashes are folded
in replica order, then the parameters that were learnt from it. Two runs are the same run exactly
as far as their chains agree.

The hash is BLAKE3: behind the 7 MB of parameters of a small convolutional net it takes a seventh of
the time of the standard library's, where every update has to wait for it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from blake3 import blake3

from hts.memory.storage import Storage
from hts_envs.contract import Array

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
    """The chain so far.

    It begins with the identity of an experiment. Where a later stage extends that experiment
    (`identities` names each stage by the updates made before it), the identity of the stage is
    folded in before its first update.
    """

    def __init__(self, identities: str | Mapping[int, str]) -> None:
        stages = {0: identities} if isinstance(identities, str) else dict(identities)
        self.updates = 0
        self.chain = _hashed(stages.pop(0).encode())
        self._stages = stages

    def after(self, updates: int, chain: str) -> Digest:
        """Return the digest of the same experiment after so many updates, where this is its
        chain."""
        later = copy.copy(self)
        later.updates, later.chain = updates, chain
        return later

    def fold(self, rollout: str, parameters: Array) -> Link:
        """Append one update: the rollout that it read and the parameters that it made."""
        return self.follow(rollout, _hashed(_bytes(parameters)))

    def follow(self, rollout: str, parameters: str) -> Link:
        """The same for parameters whose hash is known."""
        if self.updates in self._stages:
            self.chain = _hashed(f"{self.chain} {self._stages[self.updates]}".encode())
        self.chain = _hashed(f"{self.chain} {rollout} {parameters}".encode())
        self.updates += 1
        return Link(self.updates, rollout, parameters, self.chain)


def rollout_digest(replicas: Iterable[bytes]) -> str:
    """The parts of all replicas, in replica order."""
    return _hashed(b"".join(replicas))


def replica_digest(storage: Storage, replica: int) -> bytes:
    """What one replica saw and did; the frame behind the last step belongs to the next rollout."""
    part = blake3()
    for replicas, mine in storage.hashed:
        part.update(replicas[replica, mine].data)
    return part.digest(length=_SIZE)


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


def _hashed(content: bytes | memoryview) -> str:
    return blake3(content).hexdigest(length=_SIZE)


def _bytes(array: Array) -> memoryview:
    """The same memory."""
    assert array.flags.c_contiguous, "what is hashed lies there in one piece"
    return array.reshape(-1).view(np.uint8).data
