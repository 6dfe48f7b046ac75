"""An actor in a process of its own: answers whatever is asked, all of it in one batch.

It keeps nothing: what is unanswered stands at the desk, for this actor or for its successor.
"""

from __future__ import annotations

import dataclasses

from hts.determinism import numerics
from hts.runtime.clock import Clock
from hts.runtime.jitter import Jitter
from hts.runtime.process import Pipe
from hts.runtime.shared import Inference, Terms, load


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What one actor is told when it is born."""

    index: int
    terms: Terms
    inference: Inference


def run(pipe: Pipe, given: Assignment) -> None:
    """The whole life of the process."""
    numerics.prepare()
    terms, memory = given.terms, given.terms.memory
    shared = memory.view()
    crew, bell = memory.blueprint.crew, memory.bells.actors[given.index]
    pause = Jitter(terms.jitter, f"actor {given.index}")
    answer = load(terms.roles.answering)(terms, given.inference, shared, pause)
    mine = crew.answered_by(given.index)
    clock = Clock(shared.times[crew.executors + given.index])
    pipe.send(ready=True)
    while True:
        asked = shared.desk.pending(mine)
        if not asked:
            clock.wait(bell, "for executors")
            continue
        answer(asked)
        for executor in {crew.executor_of[block] for block in asked}:
            memory.bells.executors[executor].ring()
