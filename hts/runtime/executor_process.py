"""An executor in a process of its own.

It advances its blocks as far as they go and waits at its doorbell. Where it answers its own blocks
it holds a network; otherwise it never imports torch, unless a simulator does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from hts.determinism import numerics
from hts.memory.doorbell import Doorbell
from hts.models.bounds import taken_in
from hts.remote.port import Remote
from hts.roles.blocks import Block, ChangedSetting, Episode, Strayed
from hts.roles.executor import Answering, Executor, InTurn, Part, Partners, Past, Stepping
from hts.runtime.clock import Clock, Door
from hts.runtime.crew import make_blocks
from hts.runtime.jitter import Jitter
from hts.runtime.process import Pipe
from hts.runtime.shared import Inference, Shared, Tell, Terms, load
from hts.runtime.threads import Threads, Turns


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What one executor is told when it is born."""

    index: int
    terms: Terms
    threads: bool
    inline: Inference | None  # None: actors answer
    remote: Remote | None  # its simulators dial in; None: they are built here
    past: Past = Past({})  # what a predecessor has left to go on from


def run(pipe: Pipe, given: Assignment) -> None:
    """The whole life of the process."""
    numerics.set_environment()
    if given.inline is not None:
        numerics.prepare()
    terms, memory = given.terms, given.terms.memory
    shared, crew = memory.view(), memory.blueprint.crew
    bell = memory.bells.executors[given.index]
    clock = Clock(shared.times[given.index])
    bells = memory.bells
    if given.remote is None:
        kept = _local(given, bell)
    else:
        began = bool(shared.desk.asked[list(crew.blocks_of(given.index))].any())
        kept = _remote(pipe, given, bell, began=began)

    def asked(block: int) -> None:
        if crew.actors:
            bells.actors[crew.actor_of(block)].ring()

    pause = Jitter(terms.jitter, f"executor {given.index}")
    told = Told(pipe.send, bells.learner, terms.experiment.env)
    partners = Partners(asked, told, pause, _answering(given, shared, pause), kept.stepping)
    executor = Executor(given.index, kept.blocks, shared.desk, shared.storages, partners)
    rebuilt = executor.resume(given.past)
    if rebuilt.steps:
        pipe.send(note=f"executor {given.index}: {rebuilt}")
    pipe.send(ready=True)
    _drive(executor, clock, kept, by_all=given.inline is None or given.inline.device == "cpu")


@dataclasses.dataclass(frozen=True)
class _Kept:
    """An executor's simulators, how they step, and where it waits for them and for everybody."""

    blocks: Sequence[Block]
    stepping: Stepping
    door: Door
    otherwise: str  # what it waits for, if not for the learner


def _local(given: Assignment, bell: Doorbell) -> _Kept:
    """They are built here."""
    from hts_envs.registry import parse

    blueprint, experiment = given.terms.memory.blueprint, given.terms.experiment
    parts = _parts(given)
    blocks = make_blocks(experiment, parse(experiment.env), blueprint.spaces, parts)
    if given.threads:
        return _Kept(blocks, Threads(len(blocks), bell), bell, "for simulators")
    return _Kept(blocks, InTurn(), bell, "for actors")


def _remote(pipe: Pipe, given: Assignment, bell: Doorbell, *, began: bool) -> _Kept:
    """They dial in."""
    from hts.remote.block import RemoteBlock
    from hts.remote.host import Host

    assert given.remote is not None, "somewhere they dial in"
    experiment, spaces = given.terms.experiment, given.terms.memory.blueprint.spaces
    taken = taken_in(spaces, experiment.bounds)
    blocks = [
        RemoteBlock(seat, part, taken, experiment.seed, spaces)
        for seat, part in enumerate(_parts(given))
    ]

    def note(sentence: str, **facts: int) -> None:
        pipe.send(note=sentence, facts=facts)

    last = experiment.updates * experiment.rollout
    host = Host(given.remote, spaces, blocks, bell, note, last=last, began=began)
    return _Kept(blocks, host, host, "for simulators")


def _parts(given: Assignment) -> list[range]:
    """The replicas of each of its blocks."""
    crew = given.terms.memory.blueprint.crew
    return [crew.blocks[block] for block in crew.blocks_of(given.index)]


class Told:
    """Puts what the executor says into messages."""

    def __init__(self, tell: Tell, learner: Doorbell, environment: str) -> None:
        self._tell = tell
        self._learner = learner
        self._environment = environment
        self._named: set[tuple[str, str]] = set()  # settings and calls that were reported

    def ended(self, rollout: int, episodes: list[Episode]) -> None:
        self._tell(ended=rollout, episodes=[dict(vars(each)) for each in episodes])

    def part(self, at: Part) -> None:
        raw = np.ascontiguousarray(at.actions).tobytes()
        self._tell(raw, part=at.rollout, block=at.block, age=at.age)
        for each in at.snapshots:
            self._tell(each.state, snapshot=each.replica, episode=each.episode, age=each.age)

    def filled(self, rollout: int) -> None:
        self._learner.ring()

    def strayed(self, rollout: int, step: int, strayed: list[Strayed]) -> None:
        replicas = [dataclasses.asdict(each) for each in strayed]
        self._tell(strayed=replicas, rollout=rollout, step=step)

    def changed(self, setting: ChangedSetting) -> None:
        name = (setting.change.setting, setting.call)
        if name not in self._named:  # a simulator may do it in every episode
            self._named.add(name)
            self._tell(note=setting.sentence(self._environment))


def _drive(executor: Executor, clock: Clock, kept: _Kept, *, by_all: bool) -> None:
    """Until the run is ended: a death is never mistaken for an end.

    `by_all`: threads of blocks take turns, too. Not where a GPU answers, for every thread that asks
    for something would hold memory there.
    """

    def advance() -> None:
        clock.turns_to("worked")
        while executor.advance():
            pass
        waits = executor.waits_for_version
        clock.turns_to("waited for the learner" if waits else kept.otherwise)

    turns = Turns(advance)
    if by_all and isinstance(kept.stepping, Threads):
        kept.stepping.take_turns(turns.take)
    while True:
        turns.take()
        kept.door.wait()


def _answering(given: Assignment, shared: Shared, pause: Jitter) -> Answering | None:
    """The executor's own actor, where it has one."""
    if given.inline is None:
        return None
    make: Callable[..., Answering] = load(given.terms.roles.answering)
    return make(given.terms, given.inline, shared, pause)
