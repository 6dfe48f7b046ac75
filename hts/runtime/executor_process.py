"""An executor in a process of its own.

It fills rollout after rollout, each as soon as the version of the same number is there and its own
part of the rollout before is done; nobody else's slowness holds it up (unless the run has a
barrier: then it is told when it may begin). What it says after each rollout is small: hashes,
episodes that ended, and how long it worked and waited.
"""

from __future__ import annotations

import dataclasses
import time

from hts.config import Experiment
from hts.determinism import numerics
from hts.memory.arena import Arena
from hts.runtime.process import Pipe
from hts_envs.contract import Spaces


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What one executor is told when it is spawned."""

    experiment: Experiment
    spaces: (
        Spaces  # as the run found them: a simulator is built where it is stepped, and only there
    )
    replicas: range
    device: str
    jitter: float
    padding: int
    memory: Arena


def run(pipe: Pipe, assignment: Assignment) -> None:
    """The whole life of the process."""
    numerics.prepare()
    from hts.determinism.invariance import Strategy
    from hts.runtime.assemble import Plan, make_executor
    from hts.runtime.shared import view
    from hts_envs.registry import parse

    spec = parse(assignment.experiment.env)
    found = Plan(assignment.experiment, assignment.spaces, assignment.device, assignment.jitter)
    memory = view(assignment.memory, found)
    strategy = Strategy(assignment.padding, "as the run found out")
    executor = make_executor(found, spec, assignment.replicas, strategy, memory.storages)
    pipe.send(ready=True)
    may_begin = -1
    for rollout in range(assignment.experiment.updates):
        began = time.perf_counter()
        while may_begin < rollout:
            may_begin = pipe.receive()["may_begin"]
        got = time.perf_counter()
        episodes = executor.fill(rollout, memory.published.read(rollout))
        executor.pause("report")
        pipe.send(
            rollout=rollout,
            digests=[part.hex() for part in executor.digests(rollout)],
            episodes=[dataclasses.asdict(episode) for episode in episodes],
            waited=got - began,
            worked=time.perf_counter() - got,
        )
    executor.close()
    while True:  # stays until it is ended, so that a death is never mistaken for an end
        pipe.receive()
