"""An executor: steps its replicas, each rollout with the version that is named for it.

It answers its own observations with its own copy of the network. Nothing here knows whether the
storage is shared, or who else writes into it: every replica has one executor (I1).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hts.determinism.digest import replica_digest
from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.roles.actor import Actor
from hts.roles.blocks import Block, Episode, Needed, next_rows


class Executor:
    """The replicas in `replicas`, in blocks, and the two storages that they write."""

    def __init__(
        self,
        replicas: range,
        blocks: list[Block],
        actor: Actor,
        storages: tuple[Storage, Storage],
        pause: Callable[[str], None],
    ) -> None:
        self.replicas = replicas
        self.blocks = blocks
        self.actor = actor
        self.storages = storages
        self.pause = pause
        self._everyone = np.arange(replicas.start, replicas.stop)

    def fill(self, rollout: int, version: Version) -> list[Episode]:
        """This executor's part of a rollout; returns the episodes that ended in it."""
        storage = self.storages[rollout % 2]
        storage.version = version.number
        if rollout:
            mine = slice(self.replicas.start, self.replicas.stop)
            storage.take_over(self.storages[(rollout - 1) % 2], mine)
        else:
            for block in self.blocks:
                block.begin(storage)
        episodes: list[Episode] = []
        for step in range(storage.sizes.steps):
            self._step(storage, step, version, episodes)
        return episodes

    def _step(self, storage: Storage, step: int, version: Version, episodes: list[Episode]) -> None:
        self.pause("step")
        for block in self.blocks:
            block.offer(storage, step)
        self.actor.act(storage, Rows(self._everyone, np.full(len(self._everyone), step)), version)
        needed = Needed([], episodes)
        for block in self.blocks:
            block.step(storage, step, needed)
        for rows in next_rows(storage, step, self._everyone, needed.final):
            if rows is not None:
                self.actor.value(storage, rows, version)

    def digests(self, rollout: int) -> list[bytes]:
        """The hash of what each replica saw and did, in replica order."""
        storage = self.storages[rollout % 2]
        return [replica_digest(storage, replica) for replica in self.replicas]

    def close(self) -> None:
        for block in self.blocks:
            block.close()
