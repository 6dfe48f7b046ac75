"""The serial runner: the same roles over the same memory, in one process and a fixed order.

One executor with one block of all replicas advances until a rollout is complete, then the learner
learns from it. What is read follows from versions alone, so this run and the parallel one give
the same digest; this is the one to step through with a debugger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from hts.config import Machine
from hts.errors import WorldFailed
from hts.memory.versions import Version
from hts.report.say import say
from hts.roles.blocks import Block
from hts.roles.executor import Executor, Partners, Past
from hts.roles.explorer import actor_for
from hts.runtime.assemble import Plan, Updated
from hts.runtime.crew import make_blocks
from hts.runtime.executor_process import Told
from hts.runtime.failures import Failures
from hts.runtime.heard import Heard
from hts.runtime.jitter import Jitter
from hts.runtime.learners import Computing, learner_for
from hts.runtime.learning import Learning
from hts.runtime.process import as_failure
from hts.runtime.shared import allocate
from hts.runtime.standing import Standing, look, stand
from hts.runtime.vitals import Crewed
from hts_envs.registry import Spec


class SerialRun:
    """One run, from its first observation to its last update."""

    def __init__(self, found: Plan, spec: Spec, begin: Standing | None = None) -> None:
        self.experiment = found.experiment
        self.strategy = found.strategy()
        self.replaced: list[str] = []  # why simulators were rebuilt
        self._spec = spec
        self._pause = Jitter(found.jitter, "serial")
        blueprint = found.blueprint(Machine(executors=1, actors=0, blocks=1))
        self._memory, self._heard = allocate(blueprint), Heard(blueprint)
        self._shared = self._memory.view()
        if begin is not None:
            stand(self._shared, self._heard, begin)
        self.storages, self.desk = self._shared.storages, self._shared.desk
        self.actor = actor_for(
            self.experiment,
            partial(found.policy, packs=self.strategy.packs),
            self.strategy.padding,
            blueprint.sizes.replicas,
        )
        limit = self.strategy.ratio_error_limit(found.device)
        computing = Computing(found.policy, padding=self.strategy.learning, ratio_error_limit=limit)
        self.learner = learner_for(self.experiment, self._shared, computing)
        self._learning = Learning(found, self.learner, self._shared, self._pause)
        self._failures = Failures(found, self._shared, self._heard)
        self.blocks: list[Block] = []
        self._build()

    def __iter__(self) -> Iterator[Updated]:
        """Rollout after rollout, each with the version that the schedule names."""
        for rollout in range(self._heard.told, self.experiment.updates):
            self.desk.may_begin = rollout
            while self._advance():
                pass
            self._learning.update(self._hear)
            yield self._heard.next()

    def _build(self) -> None:
        """Build the simulators, and bring them to where the run stands."""
        blueprint = self._memory.blueprint
        told = Told(self._hear, self._memory.bells.learner, self.experiment.env)
        partners = Partners(self._asked, told, self._pause, self._answer)
        past = Past(dict(enumerate(self._heard.past)), self._heard.began, self._heard.snapshots)
        while True:
            parts = list(blueprint.crew.blocks)
            self.blocks = make_blocks(self.experiment, self._spec, blueprint.spaces, parts)
            self.executor = Executor(0, self.blocks, self.desk, self.storages, partners)
            try:
                self.executor.resume(past)
            except WorldFailed as error:
                self._failed(error)
            else:
                return

    def _advance(self) -> bool:
        """Do all that can be done; a simulator that raises is rebuilt, and may try once more."""
        try:
            return self.executor.advance()
        except WorldFailed as error:
            self._failed(error)
            self._build()
            return True

    def _failed(self, error: WorldFailed) -> None:
        """Give up all simulators, or the run if this one failed there before."""
        failure = as_failure("executor 0", error)
        self._failures.raised(failure)
        for block in self.blocks:
            with suppress(Exception):  # it has failed already, and may do so again
                block.close()
        self.replaced.append(failure.short)
        say(f"hts: {failure.short}; its simulators are rebuilt")

    def rest(self) -> Iterator[Updated]:
        """What was learnt and not told: one process tells what it does."""
        yield from ()

    @property
    def versions(self) -> list[Version]:
        """The versions that are alive: acted with now, and next."""
        return self._learning.versions

    def standing(self) -> Standing | None:
        """Where the run stands; None before its first update."""
        return look(self._shared, self._heard, len(self.versions))

    def _hear(self, raw: bytes | None = None, **message: Any) -> None:
        if "note" in message:
            say(f"hts: {message['note']}")
        self._heard.take({**message, "raw": raw})
        if "strayed" in message:
            self._failures.strayed(message)

    def _answer(self, blocks: Sequence[int]) -> None:
        self._pause("answer")
        self.actor.answer(self.desk, blocks, self.storages, self._read)

    def _read(self, number: int) -> Version:
        assert self.versions[0].number == number, "I3: a rollout is made with its own version"
        return self.versions[0]

    def _asked(self, block: int) -> None:
        """Nobody has to be woken: the executor answers itself."""

    @property
    def marks(self) -> list[str]:
        """Why the digest is not that of an undisturbed run, if it is not."""
        return self._heard.marks

    @property
    def chain(self) -> str:
        """The digest so far."""
        return self._learning.chain

    def time_budget(self) -> str:
        """Where time went: in one process, everything waits for everything."""
        return "one process: executor and learner take turns"

    def crewed(self) -> Crewed:
        """What is seen of it from outside: this process alone."""
        return Crewed(lambda: (), lambda: (), lambda: 0, lambda: 1, lambda: self.desk.taken)

    def close(self) -> None:
        self._learning.close()
        self.executor.close()
        self._memory.close()
