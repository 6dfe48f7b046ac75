"""An executor in a process of its own.

It advances its blocks as far as they go and waits at its doorbell. Where it answers its own blocks
it holds a network; otherwise it never imports torch, unless a simulator does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from hts.determinism import numerics
from hts.memory.doorbell import Doorbell
from hts.roles.blocks import Episode, Strayed
from hts.roles.executor import Answering, Executor, InTurn, Part, Partners, Past, Stepping
from hts.runtime.clock import Clock
from hts.runtime.crew import make_blocks
from hts.runtime.jitter import Jitter
from hts.runtime.process import Pipe
from hts.runtime.shared import Inference, Shared, Tell, Terms, load
from hts.runtime.threads import Threads


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What one executor is told when it is spawned."""

    index: int
    terms: Terms
    threads: bool
    inline: Inference | None  # None: actors answer
    past: Past = Past({})  # what a predecessor has left to go on from


def run(pipe: Pipe, given: Assignment) -> None:
    """The whole life of the process."""
    numerics.set_environment()
    if given.inline is not None:
        numerics.prepare()
    from hts_envs.registry import parse

    terms, memory = given.terms, given.terms.memory
    shared, crew = memory.view(), memory.blueprint.crew
    bell = memory.bells.executors[given.index]
    parts = [crew.blocks[block] for block in crew.blocks_of(given.index)]
    spec = parse(terms.experiment.env)
    blocks = make_blocks(terms.experiment, spec, memory.blueprint.spaces, parts)
    stepping: Stepping = Threads(len(blocks), bell) if given.threads else InTurn()
    clock = Clock(shared.times[given.index])
    bells = memory.bells

    def asked(block: int) -> None:
        if crew.actors:
            bells.actors[crew.actor_of(block)].ring()

    pause = Jitter(terms.jitter, f"executor {given.index}")
    told = Told(pipe.send, bells.learner)
    partners = Partners(asked, told, pause, _answering(given, shared, pause), stepping)
    executor = Executor(given.index, blocks, shared.desk, shared.storages, partners)
    executor.resume(given.past)
    pipe.send(ready=True)
    _drive(executor, clock, bell, "for simulators" if given.threads else "for actors")


class Told:
    """Puts what the executor says into messages."""

    def __init__(self, tell: Tell, learner: Doorbell) -> None:
        self._tell = tell
        self._learner = learner

    def ended(self, rollout: int, episodes: list[Episode]) -> None:
        self._tell(ended=rollout, episodes=[dataclasses.asdict(each) for each in episodes])

    def part(self, at: Part) -> None:
        raw = np.ascontiguousarray(at.actions).tobytes()
        self._tell(raw, part=at.rollout, block=at.block, age=at.age)

    def filled(self, rollout: int) -> None:
        self._learner.ring()

    def strayed(self, rollout: int, step: int, strayed: list[Strayed]) -> None:
        replicas = [dataclasses.asdict(each) for each in strayed]
        self._tell(strayed=replicas, rollout=rollout, step=step)


def _drive(executor: Executor, clock: Clock, bell: Doorbell, otherwise: str) -> None:
    """Until the run is ended: a death is never mistaken for an end."""
    while True:
        while executor.advance():
            pass
        clock.wait(bell, "waited for the learner" if executor.waits_for_version else otherwise)


def _answering(given: Assignment, shared: Shared, pause: Jitter) -> Answering | None:
    """The executor's own actor, where it has one."""
    if given.inline is None:
        return None
    make: Callable[..., Answering] = load(given.terms.roles.answering)
    return make(given.terms, given.inline, shared, pause)
