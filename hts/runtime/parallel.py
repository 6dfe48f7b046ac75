"""The parallel runner: executors, actors and the learner in processes, this one only listens.

A dataflow of named versions: a block may fill its part of rollout v as soon as version v is
published and its own part of rollout v - 1 is done; the learner may make version v + 2 as soon as
rollout v is complete. They find each other in shared memory; what they send here is for people and
for the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from hts.config import Machine
from hts.determinism.digest import Link
from hts.machine import TIMES
from hts.roles.blocks import Episode
from hts.runtime import actor_process, executor_process, learner_process
from hts.runtime.assemble import Plan, Updated
from hts.runtime.process import Child, wait_message
from hts.runtime.shared import Inference, Terms, allocate


class ParallelRun:
    """One run on several processes."""

    def __init__(self, found: Plan, machine: Machine) -> None:
        self.experiment = found.experiment
        self.strategy = found.strategy()
        self.chain = found.digest().chain
        blueprint = found.blueprint(machine)
        self.crew = blueprint.crew
        self._memory = allocate(blueprint)
        self._times = self._memory.view().times
        self._episodes: dict[int, list[Episode]] = defaultdict(list)
        self._reports: dict[int, int] = defaultdict(int)
        self._links: dict[int, dict[str, Any]] = {}
        self.children: list[Child] = []
        try:
            self._start(found, machine)
            for child in self.children:
                wait_message([child])  # ready: its worlds are built
        except BaseException:
            self.close()
            raise

    def _start(self, found: Plan, machine: Machine) -> None:
        terms = Terms(self.experiment, self._memory, found.roles, found.jitter)
        inference = Inference(found.device, self.strategy.padding)
        threads = machine.stepping == "threads"
        for index in range(self.crew.executors):
            inline = None if self.crew.actors else inference
            executor = executor_process.Assignment(index, terms, threads, inline)
            self._child(f"executor {index}", executor_process.run, executor)
        for index in range(self.crew.actors):
            actor = actor_process.Assignment(index, terms, inference)
            self._child(f"actor {index}", actor_process.run, actor)
        workers = 1 if machine.learners == "auto" else machine.learners
        learner = learner_process.Assignment(
            terms, found.device, workers, machine.barrier, found.keep
        )
        self._child("learner", learner_process.run, learner)

    def _child(self, name: str, role: Any, assignment: Any) -> None:
        self.children.append(Child(name, role, assignment))

    def __iter__(self) -> Iterator[Updated]:
        """Update after update, in the order of the rollouts."""
        for rollout in range(self.experiment.updates):
            while rollout not in self._links or self._reports[rollout] < self.crew.executors:
                self._hear(wait_message(self.children)[1])
            said = self._links.pop(rollout)
            del self._reports[rollout]
            ended = sorted(self._episodes.pop(rollout, []), key=lambda e: (e.step, e.replica))
            link = Link(**said["link"])
            self.chain = link.chain
            replicas = [bytes.fromhex(part) for part in said["replicas"]]
            yield Updated(link, said["told"], ended, replicas)

    def _hear(self, said: dict[str, Any]) -> None:
        """An executor has filled its part of a rollout, or the learner has made a version."""
        if "link" in said:
            self._links[said["link"]["update"] - 1] = said
            return
        self._reports[said["rollout"]] += 1
        self._episodes[said["rollout"]] += [Episode(**each) for each in said["episodes"]]

    def time_budget(self) -> str:
        """Where time went: for each kind of process the shares worked and waited, and for whom."""
        executors, actors = self.crew.executors, self.crew.actors
        kinds = {
            _plural(executors, "executor"): self._times[:executors],
            _plural(actors, "actor"): self._times[executors : executors + actors],
            "learner": self._times[-1:],
        }
        parts = []
        for kind, rows in kinds.items():
            total = rows.sum()
            if not total:
                continue
            shares = zip(TIMES, rows.sum(0) / total, strict=True)
            spent = [f"{column} {share:.0%}" for column, share in shares if share >= 0.005]
            parts.append(f"{kind} {', '.join(spent)}")
        return "; ".join(parts)

    def close(self) -> None:
        """End every process."""
        for child in self.children:
            child.end()
        self.children = []
        self._memory.close()


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count > 1 else ''}"
