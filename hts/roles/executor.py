"""An executor: advances its blocks, each as far as it can, and never waits by itself.

`advance` does everything that can be done now; whoever drives it waits at the doorbell in between,
or, where blocks have threads, for its own block's step. A block begins rollout v when the learner
says so and its own part of v - 1 is done, so nobody else's slowness holds it up. Blocks are stepped
in turn, or each in a thread of its own where a step waits without using the processor. With an
actor of its own the executor answers its blocks itself, all that have asked by then in one batch;
without one, the actors at the other side of the desk do.

Nothing here knows whether the storage is shared: every replica has one executor (I1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from hts.determinism.digest import replica_digest
from hts.errors import SettingsChanged
from hts.memory.desk import Desk
from hts.memory.storage import Storage
from hts.roles.blocks import BUILDING, Block, ChangedSetting, Episode, Left, Strayed
from hts.roles.rebuilding import Rebuilt, Snapshot, Snapshots
from hts_envs.contract import Array

Answering = Callable[[Sequence[int]], None]
"""Answers what these blocks have asked: for an executor whose blocks nobody else answers."""


@dataclass(frozen=True)
class Past:
    """What is known of the time before an executor began."""

    actions: Mapping[int, Mapping[int, Array]]  # by block and rollout: (replicas, steps, ...)
    since: int = 0  # of rollouts before this one only the last frames stand in the storage
    snapshots: Snapshots = field(default_factory=dict)


class Told(Protocol):
    """What the executor says to whoever listens."""

    def ended(self, rollout: int, episodes: list[Episode]) -> None:
        """These episodes ended in a rollout that is being filled."""

    def part(self, at: Part) -> None:
        """A block's part of a rollout is done."""

    def filled(self, rollout: int) -> None:
        """Every block's part is done; the learner may have to be woken."""

    def strayed(self, rollout: int, step: int, strayed: list[Strayed]) -> None:
        """Of a block that was rebuilt at this step, these replicas did not come back."""

    def changed(self, setting: ChangedSetting) -> None:
        """A simulator changed a setting that reaches arithmetic; it is restored."""


@dataclass(frozen=True)
class Part:
    """A block's part of a rollout: its actions, how many the longest running episode needs, and
    the snapshots that were due behind it."""

    rollout: int
    block: int
    actions: Array
    age: int
    snapshots: Sequence[Snapshot] = ()


class Stepping(ABC):
    """How a block's step is run: now, or by a thread of its own."""

    beside_answers = False  # a step may run while another thread computes an answer

    @abstractmethod
    def start(self, place: int, step: Callable[[], None]) -> None:
        """Run this for the block in this place."""

    @abstractmethod
    def is_over(self, place: int) -> bool:
        """What was started for this block is done; raises what it raised."""

    def together(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Run these, one for each block, and return behind the last of them."""
        for job in jobs:
            job()


class InTurn(Stepping):
    """Steps are run where they are started."""

    def start(self, place: int, step: Callable[[], None]) -> None:
        step()

    def is_over(self, place: int) -> bool:
        return True


@dataclass(frozen=True)
class Partners:
    """Everything at the other side: answers, threads, delays, and who is told."""

    asked: Callable[[int], None]  # a block of this number has asked (somebody may have to be woken)
    told: Told
    pause: Callable[[str], None]
    answering: Answering | None = None
    stepping: Stepping = InTurn()


@dataclass
class _Progress:
    """Where a block stands."""

    place: int
    number: int
    block: Block
    rollout: int = 0
    step: int = -1  # -1: waits for its rollout to begin
    stepping: bool = False


class Executor:
    """The blocks of one executor, by their numbers at the desk."""

    def __init__(
        self,
        index: int,
        blocks: Sequence[Block],
        desk: Desk,
        storages: tuple[Storage, Storage],
        partners: Partners,
    ) -> None:
        self.index = index
        self.desk = desk
        self.storages = storages
        self.partners = partners
        numbers = desk.crew.blocks_of(index)
        places = range(len(blocks))
        self._mine = [_Progress(*each) for each in zip(places, numbers, blocks, strict=True)]
        # Two rollouts can be filling at a time: a block that is ahead is ahead by one.
        self._unfilled = [len(blocks), len(blocks)]

    def advance(self) -> bool:
        """Do all that can be done; False when there was nothing. One thread at a time may."""
        may_begin, moved = self.desk.may_begin, False
        for at in self._mine:
            if at.stepping:
                moved |= self._ask_again(at)
            elif at.step < 0 and at.rollout <= may_begin:
                self._begin(at)
                moved = True
        if self.partners.answering is not None:
            pending = self.desk.pending([at.number for at in self._mine if not at.stepping])
            if pending:
                self.partners.answering(pending)
        for at in self._mine:
            if not at.stepping and at.step >= 0 and self.desk.drained(at.number):
                moved = True
                if self._go_on(at):  # in turn, the step is over by now
                    self._ask_again(at)
        return moved

    def _ask_again(self, at: _Progress) -> bool:
        """Ask for the next step, if the one that was begun is over."""
        if not self.partners.stepping.is_over(at.place):
            return False
        at.stepping = False
        self._ask(at, at.step + 1)
        return True

    @property
    def waits_for_version(self) -> bool:
        """Some block may not begin its rollout yet."""
        return any(at.step < 0 and not at.stepping for at in self._mine)

    def _begin(self, at: _Progress) -> None:
        storage = self.storages[at.rollout % 2]
        if at.rollout:
            at.block.take_over(storage, self.storages[(at.rollout - 1) % 2])
            self._ask(at, 0)
            return
        at.stepping = True
        self.partners.stepping.start(at.place, lambda: at.block.begin(storage))
        self._ask_again(at)

    def resume(self, past: Past) -> Rebuilt:
        """Go on where another process stopped: every block as it was when it asked last."""
        filled = int(self.desk.filled[self.index])
        began = [at for at in self._mine if self.desk.asked[at.number]]
        rebuilt: list[Rebuilt] = []
        jobs = [partial(self._rebuild, at, past, rebuilt) for at in began]
        self.partners.stepping.together(jobs)
        for at in began:
            rollout, step = self.desk.question(at.number)
            self._tell_strayed(at.block, rollout, step)
            at.rollout, at.step = rollout, step
            if step == self.desk.steps and rollout < filled:
                at.rollout, at.step = rollout + 1, -1
        for rollout in (filled, filled + 1):
            self._unfilled[rollout % 2] = sum(at.rollout <= rollout for at in self._mine)
        return sum(rebuilt, Rebuilt())

    def _rebuild(self, at: _Progress, past: Past, rebuilt: list[Rebuilt]) -> None:
        """Bring the block's simulators to where it asked last."""
        rollout, step = self.desk.question(at.number)
        storage = self.storages[rollout % 2]
        older = past.actions.get(at.number, {})
        trail = [older[number] for number in sorted(older) if number < rollout]
        trail.append(storage.action[at.block.slice, :step])
        known = 0 if rollout >= past.since else step
        at.block.turn = rollout * storage.sizes.steps + step
        left = Left(np.concatenate(trail, axis=1), known, past.snapshots)
        rebuilt.append(at.block.rebuild(storage, step, left))

    def _tell_strayed(self, block: Block, rollout: int, step: int) -> None:
        if block.strayed:
            self.partners.told.strayed(rollout, step, block.strayed)
            block.strayed = []

    def _tell_changed(self, block: Block) -> None:
        """Report settings that the block's simulators changed; raise SettingsChanged where a thread
        may have computed an answer with them before they were restored."""
        changed, block.changed = block.changed, []
        for each in changed:
            self.partners.told.changed(each)
        shared = [
            each.change.in_words
            for each in changed
            if not each.change.per_thread and each.call != BUILDING
        ]
        if shared and self.partners.answering is not None and self.partners.stepping.beside_answers:
            raise SettingsChanged(shared)

    def _ask(self, at: _Progress, step: int) -> None:
        self._tell_strayed(at.block, at.rollout, max(0, step - 1))
        self._tell_changed(at.block)
        if at.block.episodes:
            self.partners.told.ended(at.rollout, at.block.episodes)
            at.block.episodes = []
        self.partners.pause("ask")
        at.step = step
        self.desk.ask(at.number, at.rollout, step)
        self.partners.asked(at.number)

    def _go_on(self, at: _Progress) -> bool:
        """What was asked is answered: begin the step, or, behind the last one, be done (False)."""
        storage = self.storages[at.rollout % 2]
        if at.step == storage.sizes.steps:
            self._finish(at, storage)
            return False
        at.stepping = True
        block, step = at.block, at.step

        def run() -> None:
            self.partners.pause("step")
            block.step(storage, step)

        self.partners.stepping.start(at.place, run)
        return True

    def _finish(self, at: _Progress, storage: Storage) -> None:
        """The block's part of its rollout is complete: hash it; the last one reports it."""
        place = at.rollout % 2
        for replica in at.block.replicas:
            digest = replica_digest(storage, replica)
            self.desk.hashes[place, replica] = np.frombuffer(digest, np.uint8)
        mine = at.block.slice
        age = int(storage.age[mine, storage.sizes.steps].max())
        snapshots = at.block.snapshots()
        self.partners.told.part(Part(at.rollout, at.number, storage.action[mine], age, snapshots))
        at.rollout, at.step = at.rollout + 1, -1
        self._unfilled[place] -= 1
        if not self._unfilled[place]:
            self._report(at.rollout - 1)

    def _report(self, rollout: int) -> None:
        assert rollout == self.desk.filled[self.index], "I5: rollouts are filled one by one"
        self._unfilled[rollout % 2] = len(self._mine)
        self.partners.pause("report")
        self.desk.filled[self.index] = rollout + 1
        self.partners.told.filled(rollout)

    def close(self) -> None:
        for at in self._mine:
            at.block.close()
