"""The learner in a process of its own: rollout after rollout, each as soon as it is complete.

Publishing version v + 2 implies that rollout v has been learnt from, so two storages and three
places for versions suffice, and nobody can see who was faster. With a barrier, rollout v + 1 begins
only when every replica has filled rollout v, as in the paper: slower, and the same numbers.
"""

from __future__ import annotations

import dataclasses

from hts.determinism import numerics
from hts.determinism.divergence import Keep
from hts.runtime.clock import Clock
from hts.runtime.jitter import Jitter
from hts.runtime.process import Pipe
from hts.runtime.shared import Shared, Terms, load


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What the learner is told when it is spawned."""

    terms: Terms
    device: str
    workers: int
    barrier: bool
    keep: Keep | None


def run(pipe: Pipe, given: Assignment) -> None:
    """The whole life of the process."""
    numerics.prepare()
    from hts.determinism.digest import Digest, rollout_digest
    from hts.memory.versions import Published
    from hts.runtime.assemble import Plan

    experiment, memory = given.terms.experiment, given.terms.memory
    shared = memory.view()
    found = Plan(experiment, memory.blueprint.spaces, given.device)
    published = Published(shared.versions, tuple(memory.blueprint.scaled))
    learner = load(given.terms.roles.learner)(experiment, found.policy(), given.workers)
    digest, versions = found.digest(), found.first_versions()
    if shared.learnt.updates:  # a predecessor has come so far
        learner.kept.take(shared.learnt.kept())
        digest = Digest.after(shared.learnt.updates, shared.learnt.chain)
        newer = range(shared.learnt.updates, shared.learnt.updates + len(versions))
        versions = [published.read(number).copy() for number in newer]
    else:
        for version in versions:
            published.publish(version)
    pause = Jitter(given.terms.jitter, "learner")
    clock = Clock(shared.times[-1])
    pipe.send(ready=True)
    for rollout in range(shared.learnt.updates, experiment.updates):
        _let_begin(given, shared, rollout if given.barrier else versions[-1].number)
        while not shared.desk.is_complete(rollout):
            clock.wait(memory.bells.learner, "for executors")
        if given.barrier:
            _let_begin(given, shared, rollout + 1)
        storage = shared.storages[rollout % 2]
        storage.version = versions[0].number
        parts = shared.desk.parts(rollout)
        if given.keep is not None:
            given.keep.complete(rollout, storage)
        pause("update")
        made, told = learner.update(storage, versions[0], versions[-1], rollout)
        pause("publish")
        published.publish(made)
        versions = [*versions[1:], made]
        if given.keep is not None:
            given.keep.learnt(rollout, made.parameters.numpy())
        link = digest.fold(rollout_digest(parts), made.parameters.numpy().tobytes())
        replicas = [part.hex() for part in parts]
        pipe.send(link=dataclasses.asdict(link), told=told, replicas=replicas)
        # From here on the update is done: storages may be written again, a successor goes on.
        shared.learnt.complete(learner.kept.arrays(), link.chain)
    learner.close()
    while True:  # stays until it is ended, so that a death is never mistaken for an end
        pipe.receive()


def _let_begin(given: Assignment, shared: Shared, rollout: int) -> None:
    """Blocks may begin rollouts up to this one."""
    last = given.terms.experiment.updates - 1
    shared.desk.may_begin = max(min(rollout, last), shared.desk.may_begin)
    for bell in given.terms.memory.bells.executors:
        bell.ring()
