"""The P-learner in a process of its own: a turn for each of the learner's, at the same time.

Its turn v begins when the learner has completed turn v - 1: the critics and the replay are then as
they have to be, and version v + 1 is there. The learner waits for it at the end of its own turn.
"""

from __future__ import annotations

import dataclasses

from hts.determinism import numerics
from hts.runtime.clock import Clock
from hts.runtime.jitter import Jitter
from hts.runtime.process import Pipe
from hts.runtime.shared import Terms


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What the P-learner is told when it is born."""

    terms: Terms
    device: str


def run(pipe: Pipe, given: Assignment) -> None:
    """The whole life of the process."""
    numerics.prepare()
    from hts.memory.versions import Published
    from hts.models.policy import Policy
    from hts.runtime.learners import Computing, p_turns

    experiment, memory = given.terms.experiment, given.terms.memory
    shared, bells = memory.view(), memory.bells
    assert shared.beside is not None, "there is a place for what it makes"
    spaces = memory.blueprint.spaces
    published = Published(shared.versions, tuple(memory.blueprint.scaled))
    turns = p_turns(experiment, shared, Computing(lambda: Policy(experiment, spaces, given.device)))
    crew = memory.blueprint.crew
    clock = Clock(shared.times[crew.executors + crew.actors])
    pause = Jitter(given.terms.jitter, "P-learner")
    pipe.send(ready=True)
    for turn in range(shared.beside.updates, experiment.updates):
        while shared.learnt.updates < turn or shared.desk.may_begin < 0:  # nothing published
            clock.wait(bells.beside, "waited for the learner")
        pause("update")
        turns.take(turn, published.read(turn + 1), shared.learnt.kept(turn)["critics"])
        pause("publish")
        bells.learner.ring()
    while True:  # stays until it is ended, so that a death is never mistaken for an end
        pipe.receive()
