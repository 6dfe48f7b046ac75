"""The learner in a process of its own: rollout after rollout, each as soon as it is complete.

Publishing version v + 2 implies that rollout v has been learnt from, so two storages and three
places for versions suffice, and nobody can see who was faster. With a barrier, rollout v + 1 begins
only when every replica has filled rollout v, as in the paper: slower, and the same numbers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hts.determinism import numerics
from hts.determinism.divergence import Keep
from hts.report.policies import Policies
from hts.report.start import Start
from hts.runtime.clock import Clock
from hts.runtime.jitter import Jitter
from hts.runtime.process import Pipe
from hts.runtime.shared import Inference, Shared, Terms, load

if TYPE_CHECKING:
    from hts.roles.q_learner import Beside


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What the learner is told when it is born."""

    terms: Terms
    inference: Inference  # how actors batch, and where networks compute
    workers: int
    barrier: bool
    keep: Keep | None
    policies: Policies | None
    start: Start | None


def run(pipe: Pipe, given: Assignment) -> None:
    """The whole life of the process."""
    numerics.prepare()
    from hts.runtime.assemble import Plan
    from hts.runtime.learners import Computing
    from hts.runtime.learning import Learning

    experiment, memory = given.terms.experiment, given.terms.memory
    shared = memory.view()
    spaces = memory.blueprint.spaces
    found = Plan(
        experiment,
        spaces,
        given.inference.device,
        keep=given.keep,
        policies=given.policies,
        start=given.start,
    )
    clock = Clock(shared.times[-1])
    make = load(given.terms.roles.learner)
    strategy, device = given.inference.strategy, given.inference.device
    computing = Computing(
        found.policy, given.workers, strategy.learning, strategy.ratio_error_limit(device)
    )
    learner = make(experiment, shared, computing, _beside(given, shared, clock))
    learning = Learning(found, learner, shared, Jitter(given.terms.jitter, "learner"))
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


def _beside(given: Assignment, shared: Shared, clock: Clock) -> Beside | None:
    """The P-learner, where there is one in a process of its own."""
    if shared.beside is None or given.terms.experiment.schedule == "sync":
        return None
    from hts.runtime.learners import Away

    bell = given.terms.memory.bells.learner
    return Away(shared.beside, lambda: clock.wait(bell, "waited for the learner"))


def _let_begin(given: Assignment, shared: Shared, rollout: int) -> None:
    """Blocks may begin rollouts up to this one."""
    last = given.terms.experiment.updates - 1
    shared.desk.may_begin = max(min(rollout, last), shared.desk.may_begin)
    bells = given.terms.memory.bells
    for bell in (*bells.executors, bells.beside):
        bell.ring()
