"""The desk: where blocks ask, actors answer, and the learner hears that a rollout is complete.

Everything is a number in shared memory with one writer, followed by a ring:

    asked[block]      the ticket that the block waits for       executor -> its actor
    answered[block]   the last ticket that was answered         actor -> its executor
    open              rollouts that blocks may begin            learner -> executors
    filled[executor]  rollouts that this executor has filled    executor -> learner

All of it begins at zero: nothing asked, nothing open. A ticket says which rollout and which step,
and only grows, so whoever takes over from a lost actor sees what is still unanswered. What belongs
to a ticket lies in the storage, written before it. (That order holds between processes on x86-64;
the ring, a system call, is the fence elsewhere.)

    a block's place   drained --ask--> asked --answer--> drained
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hts.machine import desk_arrays
from hts.memory.doorbell import Doorbell
from hts_envs.contract import Array


@dataclass(frozen=True)
class Crew:
    """Who does what: blocks of replicas, whose they are, and who answers them."""

    blocks: tuple[range, ...]
    executor_of: tuple[int, ...]
    executors: int
    actors: int

    def __post_init__(self) -> None:
        together = [replica for block in self.blocks for replica in block]
        assert together == list(range(len(together))), "I1: every replica is in one block, in order"
        assert len(self.executor_of) == len(self.blocks), "every block has an executor"

    @property
    def replicas(self) -> int:
        return self.blocks[-1].stop

    def actor_of(self, block: int) -> int:
        return block % self.actors

    def block_with(self, replica: int) -> int:
        return next(number for number, block in enumerate(self.blocks) if replica in block)

    def blocks_of(self, executor: int) -> range:
        """The blocks of one executor: consecutive, as are their replicas."""
        first = self.executor_of.index(executor)
        return range(first, first + self.executor_of.count(executor))

    def answered_by(self, actor: int) -> range:
        return range(actor, len(self.blocks), self.actors)


@dataclass(frozen=True)
class Bells:
    """Every process has one. Inline actors share that of their executor; not every run has
    somebody beside its learner."""

    executors: tuple[Doorbell, ...]
    actors: tuple[Doorbell, ...]
    learner: Doorbell
    beside: Doorbell

    @staticmethod
    def of(crew: Crew) -> Bells:
        executors = tuple(Doorbell() for _ in range(crew.executors))
        actors = tuple(Doorbell() for _ in range(crew.actors))
        return Bells(executors, actors, Doorbell(), Doorbell())

    def ring_all(self) -> None:
        """Wake everybody: whoever is lost may have owed a ring."""
        for bell in self._all():
            bell.ring()

    def close(self) -> None:
        for bell in self._all():
            bell.close()

    def _all(self) -> Iterator[Doorbell]:
        yield from (*self.executors, *self.actors, self.learner, self.beside)


class Desk:
    """One process's view of it."""

    def __init__(self, crew: Crew, steps: int, arrays: Mapping[str, Array] | None = None) -> None:
        declared = desk_arrays(len(crew.blocks), crew.executors, crew.replicas)
        if arrays is None:
            arrays = {array.name: np.zeros(array.shape, array.dtype) for array in declared}
        self.crew = crew
        self.steps = steps
        self._questions = steps + 1  # of a block in a rollout: one for each step, one at its end
        self.asked, self.answered = arrays["asked"], arrays["answered"]
        self.filled, self.hashes = arrays["filled"], arrays["hashes"]
        self._open = arrays["open"]

    def ask(self, block: int, rollout: int, step: int) -> None:
        """This block waits for the answers of this step (or, behind the last, for its values)."""
        assert self.drained(block), f"I6: block {block} asks before it was answered"
        ticket = self._ticket(rollout, step)
        assert ticket > self.asked[block], "I6: tickets only grow"
        self.asked[block] = ticket

    def _ticket(self, rollout: int, step: int) -> int:
        return rollout * self._questions + step + 1

    def stand(self, rollouts: int) -> None:
        """As it is when so many rollouts are filled, and nobody has asked in the next one."""
        self.asked[:] = self.answered[:] = self._ticket(rollouts - 1, self._questions - 1)
        self.filled[:] = rollouts

    def drained(self, block: int) -> bool:
        """Nothing that this block asked is unanswered."""
        return bool(self.asked[block] == self.answered[block])

    def pending(self, blocks: Sequence[int]) -> list[int]:
        """Those of these blocks that wait for an answer."""
        return [block for block in blocks if self.asked[block] != self.answered[block]]

    def stepping(self, blocks: Sequence[int]) -> list[int]:
        """Those of these blocks that were answered and have not finished their step."""
        drained = [block for block in blocks if self.asked[block] and self.drained(block)]
        return [block for block in drained if self.question(block)[1] < self.steps]

    def question(self, block: int) -> tuple[int, int]:
        """Rollout and step of what this block asked last."""
        return divmod(int(self.asked[block]) - 1, self._questions)

    @property
    def taken(self) -> int:
        """Environment steps that all replicas have taken, those of unfinished rollouts included."""
        rollouts, steps = np.divmod(self.asked - 1, self._questions)
        replicas = np.array([len(block) for block in self.crew.blocks])
        return int((rollouts * self.steps + steps) @ replicas)

    def answer(self, block: int) -> None:
        """What this block asked stands in the storage now."""
        self.answered[block] = self.asked[block]

    @property
    def may_begin(self) -> int:
        """The last rollout that blocks may begin; -1 before the first version is published."""
        return int(self._open[0]) - 1

    @may_begin.setter
    def may_begin(self, rollout: int) -> None:
        assert rollout >= self.may_begin, "what may begin is never taken back"
        self._open[0] = rollout + 1  # memory that nobody has written lets nothing begin

    def is_complete(self, rollout: int) -> bool:
        """I2: every executor has filled its part of this rollout."""
        return bool(self.filled.min() > rollout)

    def parts(self, rollout: int) -> list[bytes]:
        """The hash of what each replica did, in replica order."""
        return [row.tobytes() for row in self.hashes[rollout % 2]]
