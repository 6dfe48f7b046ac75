"""Evaluation while a run goes on: a process of its own, which takes only what nobody else wants.

The process looks at what is on the disk, `policies/` and `eval.jsonl`: whatever policy has no line
is evaluated, the oldest first. So it has no state: one that dies costs time alone, and what it had
begun is evaluated by its successor, or when the run goes on. It is started with the first policy.
It runs under the scheduling policy for idle work, so that on a machine that is busy it hardly moves
before the training has ended; what then remains is evaluated at the end.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hts.config import Config, Experiment
from hts.config.lineage import identities
from hts.determinism import numerics
from hts.errors import RoleDied, RoleFailed
from hts.report import evaluations, policies
from hts.report.policies import FOLDER, Policies
from hts.report.say import mention, say
from hts.report.sealed import Damaged
from hts.runtime.process import Child, Pipe, wait_child

_NAME = "evaluator"
_STARTS = 3  # without any policy evaluated in between, before nobody is started any more
_OF_OTHERS = ("gfootball", "atari", "gym", "batched", "envpool")
"""Families whose worlds can be built once more, unasked: whoever brings simulators of their own may
have only so many of them."""


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What the evaluator is told when it is born."""

    run: Path
    experiment: Experiment
    episodes: int
    most: int
    stands_back: bool = True  # while somebody trains


def kept(run: Path, config: Config) -> Policies | None:
    """Which versions of this run are written down; None where none are."""
    every = _every(config)
    if not every:
        return None
    most = None if _wanted(config) else config.machine.keep_policies
    return Policies(str(run / FOLDER), every, most)


def evaluation(run: Path, config: Config) -> Evaluation | None:
    """Who evaluates what this run writes down; None where nobody does."""
    if not _wanted(config):
        return None
    machine = config.machine
    return Evaluation(
        Assignment(run, config.experiment, machine.evaluate_episodes, machine.keep_policies)
    )


def why_none(config: Config) -> str | None:
    """Return why no policy is evaluated in a run that would evaluate some; None otherwise."""
    if not config.experiment.env.startswith("remote:") or _every(config) == 0:
        return None
    return "evaluation: none, since only simulators know this environment"


def _every(config: Config) -> int:
    return policies.every(config.experiment, config.machine)


def _wanted(config: Config) -> bool:
    """Somebody evaluates while the run goes on."""
    machine, family = config.machine, config.experiment.env.partition(":")[0]
    if not _every(config) or not machine.evaluate_episodes:
        return False
    if family == "remote":  # nobody here can build one
        return False
    return machine.evaluate_every != "auto" or (family in _OF_OTHERS and machine.listen is None)


class Evaluation:
    """The evaluator's process, as the one sees it that starts the run."""

    def __init__(self, given: Assignment) -> None:
        self.tell: Callable[[dict[str, Any]], None] = _mention  # who is told of each evaluation
        self._given = given
        self.child: Child | None = None
        self._rung = 0  # how often it was told to look
        self._looked = 0  # and how often of these it has seen to everything
        self._starts = 0

    def pids(self) -> list[int]:
        """Return the evaluator's process, if there is one; called from the view's thread."""
        child = self.child
        return [] if child is None else [child.pid]

    @property
    def waits(self) -> bool:
        """Some policy is not evaluated yet."""
        return bool(_waiting(self._given))

    def look(self, written: list[int]) -> None:
        """Policies have been written; hear what there is to hear, without waiting."""
        if written:
            self._ring()
        while self.child is not None and wait_child([self.child], 0.0) is not None:
            self._hear()

    def finish(self) -> None:
        """Until every policy is evaluated, and all of it is heard: what is on the disk may still be
        on its way to here. An interruption ends that at once."""
        waiting = len(_waiting(self._given))
        if waiting:
            plural = "policies wait" if waiting > 1 else "policy waits"
            _say(f"{waiting} {plural} to be evaluated; Ctrl-C leaves that to hts-train --resume")
            self._step_forward()
            self._ring()
        while self.child is not None and self._looked < self._rung:
            wait_child([self.child])
            self._hear()

    def close(self) -> None:
        """End it, wherever it is."""
        if self.child is not None:
            self.child.end()
            self.child = None

    def _step_forward(self) -> None:
        """Nobody trains any more, and now it is waited for. It is begun again where the kernel does
        not let it forward: what it has not said yet is on no disk."""
        self._given = dataclasses.replace(self._given, stands_back=False)
        if self.child is None:
            return
        try:
            os.sched_setscheduler(self.child.pid, os.SCHED_OTHER, os.sched_param(0))
        except OSError:
            self.close()

    def _ring(self) -> None:
        self._rung += 1
        if self.child is None and self._starts < _STARTS:
            self._start()
        elif self.child is not None:
            with suppress(OSError):  # it is gone, which is heard as such
                self.child.pipe.send(look=self._rung)

    def _start(self) -> None:
        self._starts += 1
        self.child = Child(_NAME, run, self._given)
        self.child.pipe.send(look=self._rung)

    def _hear(self) -> None:
        """What it has to say, or that it is gone."""
        assert self.child is not None, "who is heard is there"
        try:
            said = self.child.hear()
        except RoleFailed as failure:
            self._replace(failure)
            return
        if "line" in said:
            self._starts = 0
            self.tell(said["line"])
        if "note" in said:
            _say(said["note"])
        self._looked = max(self._looked, said.get("looked", 0))

    def _replace(self, failure: RoleFailed) -> None:
        """A death of it harms nobody: another one looks at what is on the disk."""
        self.close()
        if self._starts >= _STARTS or not isinstance(failure, RoleDied):
            self._starts = _STARTS
            _say(f"{failure.short}; nothing more is evaluated in this run")
            return
        _say(f"{failure.short}; another one goes on in its place")
        self._start()


def run(pipe: Pipe, given: Assignment) -> None:
    """The whole life of the process."""
    if given.stands_back:
        _stand_back()
    numerics.prepare()
    from hts.runtime.evaluating import Evaluating

    evaluating: Evaluating | None = None
    passed_over: set[int] = set()
    while True:
        look = pipe.receive()["look"]
        while waiting := _waiting(given, passed_over):
            update, path = next(iter(waiting.items()))
            try:
                policy = policies.read(path, identities(given.experiment))
            except Damaged as damage:
                passed_over.add(update)
                pipe.send(note=f"{damage}; it is not evaluated")
                continue
            if evaluating is None:
                evaluating = Evaluating(given.experiment, given.episodes)
            line = evaluating.line(policy)
            evaluations.add(given.run, line)
            pipe.send(line=line)
            policies.thin(given.run / FOLDER, given.most, _waiting(given, passed_over))
        pipe.send(looked=look)


def _waiting(given: Assignment, passed_over: set[int] | None = None) -> dict[int, Path]:
    """The policies without a line, the oldest first."""
    there, lines = policies.written(given.run / FOLDER), evaluations.read(given.run)
    left_out = {*lines, *(passed_over or ())}
    return {update: path for update, path in there.items() if update not in left_out}


def _stand_back() -> None:
    """Take only what nobody else wants; or little, where the kernel does not allow that."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        os.nice(19)


def _mention(line: dict[str, Any]) -> None:
    mention(f"hts-train: {evaluations.in_words(line)}")


def _say(sentence: str) -> None:
    say(f"hts-train: {sentence}")
