"""The learner's turns over shared memory: from complete rollouts to published versions.

What is kept of a turn is written before the turn counts as complete, so that whoever comes after
this one goes on from the last complete turn, wherever this one ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from hts.determinism import settings
from hts.determinism.digest import rollout_digest
from hts.memory.storage import Storage
from hts.memory.versions import Published, Version
from hts.report.policies import Writer
from hts.runtime.assemble import Plan
from hts.runtime.jitter import Jitter
from hts.runtime.shared import Shared, Tell
from hts_envs.contract import Array


class Keeps(Protocol):
    """What a learner keeps from one update to the next."""

    def arrays(self) -> dict[str, Array]: ...

    def take(self, arrays: Mapping[str, Array]) -> None: ...


class Learns(Protocol):
    """A learner of any algorithm."""

    @property
    def kept(self) -> Keeps: ...

    def update(
        self, storage: Storage, behaviour: Version, newest: Version, updates: int
    ) -> tuple[Version, dict[str, float]]: ...

    def learnt(self, made: Version) -> Array: ...

    def close(self) -> None: ...


class Learning:
    """A learner, the versions that are alive, and the digest so far."""

    def __init__(self, found: Plan, learner: Learns, shared: Shared, pause: Jitter) -> None:
        self.learner = learner
        self._shared = shared
        self._keep = found.keep
        self._pause = pause
        self._published = Published(shared.versions, tuple(found.scale().moments))
        self._digest, self.versions = found.digest(), found.first_versions()
        if self.updates:  # a predecessor has come so far
            learner.kept.take(shared.learnt.kept())
            self._digest = self._digest.after(self.updates, shared.learnt.chain)
            alive = range(self.updates, self.updates + len(self.versions))
            self.versions = [self._published.read(number).copy() for number in alive]
        else:
            for version in self.versions:
                self._published.publish(version)
        self._lag = len(self.versions) - 1
        self._last = found.experiment.updates
        self._writer = None if found.policies is None else Writer(found.policies, found.experiment)
        for version in self.versions:  # what a predecessor may have left unwritten
            self._write(version)

    @property
    def updates(self) -> int:
        """How many turns are complete."""
        return self._shared.learnt.updates

    @property
    def chain(self) -> str:
        """The digest after the last of them."""
        return self._digest.chain

    def update(self, tell: Tell) -> None:
        """The next turn: its rollout is complete, and may be written again when this returns."""
        rollout, desk = self.updates, self._shared.desk
        assert desk.is_complete(rollout), "I2: learnt from when it is complete"
        storage, parts = self._shared.storages[rollout % 2], desk.parts(rollout)
        storage.version = self.versions[0].number
        if self._keep is not None:
            self._keep.complete(rollout, storage)
        self._pause("update")
        settings.check()
        made, told = self.learner.update(storage, self.versions[0], self.versions[-1], rollout)
        self._pause("publish")
        self._published.publish(made)
        self.versions = [*self.versions[1:], made]
        learnt = self.learner.learnt(made)
        if self._keep is not None:
            self._keep.learnt(rollout, learnt)
        self._write(made)
        link = self._digest.fold(rollout_digest(parts), learnt)
        replicas = [part.hex() for part in parts]
        written = self._written(rollout + 1)
        tell(link=dataclasses.asdict(link), told=told, replicas=replicas, policies=written)
        self._shared.learnt.complete(self.learner.kept.arrays(), link.chain)
        tell()  # whoever waits for that looks again

    def close(self) -> None:
        """End its threads, behind what they are writing."""
        self.learner.close()
        if self._writer is not None:
            self._writer.wait()

    def _write(self, version: Version) -> None:
        """Have it written down, if it is one of those that are."""
        if self._writer is not None:
            self._writer.made(version.number - self._lag, version)

    def _written(self, update: int) -> list[int]:
        """The policies that are on the disk since this was asked last.

        A version is written before it stops being alive, so that a successor can write what its
        predecessor could not; and the last one before the last update is told.
        """
        if self._writer is None:
            return []
        if update == self._last or update > self._writer.latest + self._lag:
            self._writer.wait()
        return self._writer.written()
