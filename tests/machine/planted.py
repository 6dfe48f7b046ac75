"""Mistakes that somebody could make in the machine, each planted by itself.

Each is a small change of the kind that works nearly always: found by the order of things alone, or
by a death in the wrong moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

from hts.memory import versions
from hts.memory.desk import Bells, Crew
from hts.memory.learnt import Learnt
from hts.memory.versions import Published, Version
from hts.roles.executor import Executor
from hts.runtime import standing
from hts.runtime.heard import Heard
from hts.runtime.learning import Learning
from hts.runtime.shared import Tell
from hts_envs.contract import Array
from tests.fakes import numbered_roles

Plant = Callable[[], AbstractContextManager[Any]]


def early_publish() -> AbstractContextManager[Any]:
    """The learner lets a rollout begin before the version that it needs is written."""
    real = Learning.update

    def update(self: Learning, tell: Tell) -> None:
        desk = self._shared.desk
        desk.may_begin = max(self.versions[-1].number + 1, desk.may_begin)
        real(self, tell)

    return patch.object(Learning, "update", update)


def stale_parameters() -> AbstractContextManager[Any]:
    """An actor takes its whole batch with one version: that of the oldest rollout in it."""

    def read(published: Published, rollouts: Iterable[int]) -> dict[int, Version]:
        return dict.fromkeys(rollouts, published.read(min(rollouts)))

    return patch.object(numbered_roles, "read", read)


def double_take() -> AbstractContextManager[Any]:
    """Every actor takes whatever has been asked, so that two may take the same."""
    return patch.object(Crew, "answered_by", lambda self, _: range(len(self.blocks)))


def lost_wake_up() -> AbstractContextManager[Any]:
    """A block rings its actor before it leaves its ticket."""

    def ask(self: Executor, at: Any, step: int) -> None:
        if at.block.episodes:
            self.partners.told.ended(at.rollout, at.block.episodes)
            at.block.episodes = []
        at.step = step
        self.partners.asked(at.number)
        self.desk.ask(at.number, at.rollout, step)

    return patch.object(Executor, "_ask", ask)


def torn_write() -> AbstractContextManager[Any]:
    """An update counts as complete before all of what is kept of it is written."""
    real = Learnt.stand

    def stand(self: Learnt, updates: int, kept: Mapping[str, Array], chain: str) -> None:
        self._arrays["learnt"][0] = updates
        real(self, updates, kept, chain)

    return patch.object(Learnt, "stand", stand)


def two_places() -> AbstractContextManager[Any]:
    """A version is written over the one that a successor of the learner would need."""
    both = ExitStack()
    for module in (versions, standing):
        both.enter_context(patch.object(module, "ALIVE", 2))
    return both


def nobody_rung() -> AbstractContextManager[Any]:
    """Who waited for somebody who has died is not woken."""
    return patch.object(Bells, "ring_all", lambda _: None)


def forgotten_too_early() -> AbstractContextManager[Any]:
    """Actions are forgotten a rollout before the last one that may need them."""
    real = Heard._forget
    return patch.object(
        Heard, "_forget", lambda self, block, rollout: real(self, block, rollout + 1)
    )


FIVE: dict[str, Plant] = {
    "early publish": early_publish,
    "stale parameters": stale_parameters,
    "double take": double_take,
    "lost wake-up": lost_wake_up,
    "torn write": torn_write,
}

MORE: dict[str, Plant] = {
    "two places for versions": two_places,
    "nobody rung for the dead": nobody_rung,
    "forgotten too early": forgotten_too_early,
}
