"""The parallel runner: executors in processes, the learner in this one.

A dataflow of named versions: executor e may fill its part of rollout v as soon as version v is
published and its own part of rollout v - 1 is done; the learner may make version v + 2 as soon as
rollout v is complete. Publishing v + 2 implies that rollout v has been learnt from, so two storages
and three places for versions suffice, and nobody can see who was faster.

With a barrier, rollout v + 1 begins only when every replica has filled rollout v, as in the paper:
slower, and the same numbers.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from hts.config import Machine
from hts.determinism.digest import rollout_digest
from hts.memory.versions import Version
from hts.roles.blocks import Episode
from hts.roles.learner import Learner
from hts.runtime import executor_process, shared
from hts.runtime.assemble import Plan, Updated
from hts.runtime.executor_process import Assignment
from hts.runtime.jitter import Jitter
from hts.runtime.process import Child


class ParallelRun:
    """One run on several processes."""

    def __init__(self, found: Plan, machine: Machine, executors: int) -> None:
        self.experiment = found.experiment
        self.strategy = found.strategy()
        self.learner = Learner(self.experiment, found.policy())
        self.versions = found.first_versions()
        self.digest = found.digest()
        self._barrier = machine.barrier
        self._watch = found.watch
        self._pause = Jitter(found.jitter, "learner")
        self._memory = shared.create(found)
        self._worked = self._waited = self._learnt = self._idle = 0.0
        self.children: list[Child] = []
        for index, replicas in enumerate(shares(self.experiment.replicas, executors)):
            assignment = Assignment(
                self.experiment,
                found.spaces,
                replicas,
                found.device,
                found.jitter,
                self.strategy.padding,
                self._memory.arena,
            )
            self.children.append(Child(f"executor {index}", executor_process.run, assignment))
        try:
            for child in self.children:
                child.wait_message()  # ready: its worlds are built
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Updated]:
        """Update after update, in the order of the rollouts."""
        for version in self.versions:
            self._memory.published.publish(version)
        self._tell(0 if self._barrier else self.versions[-1].number)
        for rollout in range(self.experiment.updates):
            behaviour, newest = self.versions[0], self.versions[-1]
            began = time.perf_counter()
            digests, episodes = self._collect(rollout)
            if self._barrier:
                self._tell(rollout + 1)
            complete = time.perf_counter()
            storage = self._memory.storages[rollout % 2]
            storage.version = behaviour.number
            self._watch(rollout, storage)
            self._pause("update")
            made, told = self.learner.update(storage, behaviour, newest, rollout)
            self._pause("publish")
            self._publish(made)
            link = self.digest.fold(rollout_digest(digests), made.parameters.numpy().tobytes())
            self._idle += complete - began
            self._learnt += time.perf_counter() - complete
            yield Updated(link, told, episodes, digests)

    def _collect(self, rollout: int) -> tuple[list[bytes], list[Episode]]:
        """What every executor says of this rollout, in replica order; then it is complete (I2)."""
        digests: list[bytes] = []
        episodes: list[Episode] = []
        for child in self.children:
            said = child.wait_message()
            assert said["rollout"] == rollout, f"{child.name} is in rollout {said['rollout']}"
            digests += [bytes.fromhex(part) for part in said["digests"]]
            episodes += [Episode(**episode) for episode in said["episodes"]]
            self._worked += said["worked"]
            self._waited += said["waited"]
        return digests, sorted(episodes, key=lambda episode: (episode.step, episode.replica))

    def _publish(self, made: Version) -> None:
        self._memory.published.publish(made)
        self.versions = [*self.versions[1:], made]
        if not self._barrier:
            self._tell(made.number)

    def _tell(self, may_begin: int) -> None:
        """Executors may fill rollouts up to this one."""
        for child in self.children:
            child.send(may_begin=min(may_begin, self.experiment.updates))

    def time_budget(self) -> str:
        """Where time went, and who was waited for."""
        executors = self._worked + self._waited or 1.0
        learner = self._learnt + self._idle or 1.0
        return (
            f"{len(self.children)} executors worked {self._worked / executors:.0%} and waited "
            f"{self._waited / executors:.0%} of their time for the learner, which worked "
            f"{self._learnt / learner:.0%} and waited {self._idle / learner:.0%} for them"
        )

    def close(self) -> None:
        """End every process."""
        for child in self.children:
            child.end()


def shares(replicas: int, executors: int) -> list[range]:
    """The replicas of each executor: as even as possible, in order."""
    cuts = [replicas * index // executors for index in range(executors + 1)]
    return [range(begin, end) for begin, end in itertools.pairwise(cuts)]
