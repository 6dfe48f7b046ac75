"""The learner in a process of its own: rollout after rollout, each as soon as it is complete.

Publishing version v + 2 implies that rollout v has been learnt from, so two storages and three
places for versions suffice, and nobody can see who was faster. With a barrier, rollout v + 1 begins
only when every replica has filled rollout v, as in the paper: slower, and the same numbers.
"""

from __future__ import annotations

import dataclasses

from hts.determinism import numerics
from hts.determinism.divergence import Keep
from hts.report.policies import Policies
from hts.runtime.clock import Clock
from hts.runtime.jitter import Jitter
from hts.runtime.process import Pipe
from hts.runtime.shared import Inference, Shared, Terms, load


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What the learner is told when it is spawned."""

    terms: Terms
    inference: Inference  # how actors batch, and where networks compute
    workers: int
    barrier: bool
    keep: Keep | None
    policies: Policies | None


def run(pipe: Pipe, given: Assignment) -> None:
    """The whole life of the process."""
    numerics.prepare()
    from hts.runtime.assemble import Plan
    from hts.runtime.learning import Learning

    experiment, memory = given.terms.experiment, given.terms.memory
    shared = memory.view()
    spaces = memory.blueprint.spaces
    found = Plan(experiment, spaces, given.inference.device, keep=given.keep, policies=given.policies)
    make = load(given.terms.roles.learner)
    learner = make(experiment, found.policy(), given.workers, given.inference.padding)
    learning = Learning(found, learner, shared, Jitter(given.terms.jitter, "learner"))
    clock = Clock(shared.times[-1])
    pipe.send(ready=True)
    for rollout in range(learning.updates, experiment.updates):
        newest = learning.versions[-1].number
        _let_begin(given, shared, rollout if given.barrier else newest)
        while not shared.desk.is_complete(rollout):
            clock.wait(memory.bells.learner, "for executors")
        if given.barrier:
            _let_begin(given, shared, newest)
        learning.update(pipe.send)
    learning.close()
    while True:  # stays until it is ended, so that a death is never mistaken for an end
        pipe.receive()


def _let_begin(given: Assignment, shared: Shared, rollout: int) -> None:
    """Blocks may begin rollouts up to this one."""
    last = given.terms.experiment.updates - 1
    shared.desk.may_begin = max(min(rollout, last), shared.desk.may_begin)
    for bell in given.terms.memory.bells.executors:
        bell.ring()
