"""The serial runner: every role in one process, in a fixed order.

It is the reference that every other arrangement of the same roles must equal, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator

from hts.determinism.digest import rollout_digest
from hts.memory.storage import Storage
from hts.roles.learner import Learner
from hts.runtime.assemble import Plan, Updated, make_executor
from hts_envs.registry import Spec


class SerialRun:
    """One run, from its first observation to its last update."""

    def __init__(self, found: Plan, spec: Spec) -> None:
        self.experiment = found.experiment
        self._watch = found.watch
        self.strategy = found.strategy()
        self.storages = (Storage(found.sizes, found.spaces), Storage(found.sizes, found.spaces))
        everyone = range(self.experiment.replicas)
        self.executor = make_executor(found, spec, everyone, self.strategy, self.storages)
        self.learner = Learner(self.experiment, found.policy())
        self.versions = found.first_versions()
        self.digest = found.digest()

    def __iter__(self) -> Iterator[Updated]:
        """Rollout after rollout, each with the version that the schedule names."""
        for rollout in range(self.experiment.updates):
            behaviour, newest = self.versions[0], self.versions[-1]
            episodes = self.executor.fill(rollout, behaviour)
            storage = self.storages[rollout % 2]
            self._watch(rollout, storage)
            made, told = self.learner.update(storage, behaviour, newest, rollout)
            parts = self.executor.digests(rollout)
            link = self.digest.fold(rollout_digest(parts), made.parameters.numpy().tobytes())
            self.versions = [*self.versions[1:], made]
            yield Updated(link, told, episodes, parts)

    def time_budget(self) -> str:
        """Where time went: in one process, everything waits for everything."""
        return "one process: executor and learner take turns"

    def close(self) -> None:
        self.executor.close()
