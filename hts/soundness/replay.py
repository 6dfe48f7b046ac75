"""A case is taken again in a fresh process, call by call, as the run took it.

The child builds the simulators as an executor does and is not closed, as no executor is. It says
what it is about to call and what came of it; the parent hears where it stopped. A call that takes
too long is ended by the child's own watchdog, a thread below Python that writes down every stack
first. So is the stack of a process that dies by a signal.
"""

from __future__ import annotations

import faulthandler
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from hts.determinism import numerics
from hts.determinism.keys import episode_seeds
from hts.errors import RoleDied
from hts.memory.storage import as_declared
from hts.models.bounds import taken_in
from hts.runtime.crew import make_worlds
from hts.runtime.process import Child, Pipe
from hts.scratch import scratch
from hts.signals import wait
from hts.soundness.case import Case, Failure, Kind
from hts.soundness.subject import Batch, Single, Subject
from hts.soundness.trace import digest
from hts.tracebacks import simulator_failure
from hts_envs.contract import Array, BatchedWorld
from hts_envs.finite import not_finite
from hts_envs.registry import parse

LIMIT = 60.0
"""Seconds without progress that are taken for a hang."""

CONSTRUCTION = "its construction"

_LONGEST = 1e6  # seconds that a system can be asked to wait
_GRACE = 10.0  # for a child that starts, or that writes down its stacks
_TIMEOUT = "Timeout"  # how the watchdog's words begin

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Call:
    """One call that returned: how long it took, and a hash of what it showed."""

    name: str
    step: int  # 0 where an episode was begun
    seconds: float
    mark: str


@dataclass(frozen=True)
class Replayed:
    """Every call that returned, and how it ended; `failure` is None where the whole case was taken.

    `strayed` says where it showed something else than in the run.
    """

    calls: tuple[Call, ...]
    where: str
    failure: Failure | None
    strayed: str | None = None


def replay(case: Case, limit: float = LIMIT, tell: Tell = lambda _: None) -> Replayed:
    """Take it again in a process of its own, which is gone afterwards."""
    limit = min(limit, _LONGEST)
    numerics.set_environment()  # C reads it when the child starts
    with scratch() as folder:
        stacks = folder / "stacks.txt"
        child = Child("replay", run, case, limit, str(stacks))
        try:
            return _follow(child, stacks, limit, tell)
        finally:
            child.end()


def _follow(child: Child, stacks: Path, limit: float, tell: Tell) -> Replayed:
    """Hear it until it ends, one way or another."""
    calls: list[Call] = []
    where, step, strayed = "its start", 0, None

    def ended(kind: Kind | None, words: str = "") -> Replayed:
        return Replayed(tuple(calls), where, Failure(kind, words) if kind else None, strayed)

    while True:
        if not wait(child.signs, limit + _GRACE):
            return ended(Kind.HANGS, "it does not even show its stack")
        try:
            said = child.hear()
        except RoleDied as death:
            stack = stacks.read_text(errors="replace") if stacks.exists() else ""
            if stack.startswith(_TIMEOUT):
                return ended(Kind.HANGS, stack.partition("\n")[2])
            return ended(Kind.DIES, f"{death.short.partition(': ')[2]}\n{stack}".rstrip())
        if "begins" in said:
            where, step = said["begins"], said["step"]
            tell(where)
        elif "seconds" in said:
            calls.append(Call(where, step, said["seconds"], said["mark"]))
        elif "strayed" in said:
            strayed = said["strayed"]
        else:
            return ended(Kind.RAISES if said["raised"] else None, said["raised"])


def run(pipe: Pipe, case: Case, limit: float, stacks: str) -> None:
    """The child's side."""
    with open(stacks, "w") as file:
        faulthandler.enable(file)
        watch = _Watch(pipe, limit, file)
        try:
            _take(case, watch)
        except _Strayed as strayed:
            pipe.send(strayed=str(strayed))
        except Exception as error:
            pipe.send(raised=simulator_failure(error))
            return
        finally:
            faulthandler.cancel_dump_traceback_later()
            faulthandler.disable()
        pipe.send(raised="")


class _Strayed(Exception):
    """It can be followed no further: it did something else than in the run."""


class _Watch:
    """Tells the parent about each call, and ends the process when one does not return."""

    def __init__(self, pipe: Pipe, limit: float, stacks: TextIO) -> None:
        self.pipe = pipe
        self._limit = limit
        self._stacks = stacks
        self._begun = 0.0

    def begins(self, name: str, step: int = 0) -> None:
        self.pipe.send(begins=name, step=step)
        faulthandler.dump_traceback_later(self._limit, exit=True, file=self._stacks)
        self._begun = time.perf_counter()

    def returned(self, shown: Mapping[str, Array]) -> None:
        seconds = time.perf_counter() - self._begun
        faulthandler.cancel_dump_traceback_later()
        marks = "".join(f"{name} {digest(array)} " for name, array in shown.items())
        mark = hashlib.blake2b(marks.encode(), digest_size=8).hexdigest()
        self.pipe.send(seconds=seconds, mark=mark)


def _take(case: Case, watch: _Watch) -> None:
    """Build everything, then take one world's part after the other's."""
    watch.begins(CONSTRUCTION)
    worlds = make_worlds(parse(case.env), case.replicas, case.seed)
    numerics.settle()
    watch.returned({})
    if isinstance(worlds, BatchedWorld):
        _Play(Batch(worlds), case, watch).run()
        return
    for row, world in enumerate(worlds):
        _Play(Single(world), case.alone(row), watch).run()


class _Play:
    """The rows of one world: single, or batched, whose rows are aligned at their ends."""

    def __init__(self, subject: Subject, case: Case, watch: _Watch) -> None:
        self._subject = subject
        self._case = case
        self._watch = watch
        self._numbers = np.array(case.replicas)
        self._taken = taken_in(subject.spaces, case.bounds)
        self._eldest = int(np.argmax(case.age))
        spaces = subject.spaces
        self._seen = {
            name: np.zeros((len(case.age), spaces.agents, *space.shape), space.dtype)
            for name, space in spaces.observation.items()
        }

    def run(self) -> None:
        """Up to where the run stood, then the action that it was taking."""
        case, longest = self._case, int(self._case.age[self._eldest])
        if case.age.min() < longest:
            self._begin(np.arange(len(case.age)), case.episode)
        for left in range(longest, -1, -1):
            starts = np.flatnonzero(case.age == left)
            if len(starts):
                self._begin(starts, case.episode[starts])
            if left:
                self._catch_up(left)
        self._hold()
        if case.action is not None:
            ended = np.flatnonzero(self._step(np.arange(len(case.age)), case.action, longest + 1))
            if len(ended):
                self._begin(ended, case.episode[ended] + 1)

    def _catch_up(self, left: int) -> None:
        """Take the first one of so many actions that are left of the trail.

        A row whose turn has not come plays on in an episode that is thrown away.
        """
        case = self._case
        action = case.trail[:, case.trail.shape[1] - left]
        rows = np.flatnonzero(case.age >= left)
        step = int(case.age[self._eldest]) - left + 1
        ended = self._step(rows, action, step)
        for row in rows[ended[rows]]:
            name = self._name(int(row), int(case.age[row]) - left + 1)
            raise _Strayed(f"{name} ends the episode, which went on in the run")
        over = np.flatnonzero(ended)
        if len(over):
            self._begin(over, case.episode[over])

    def _begin(self, rows: Array, episodes: Array) -> None:
        replica = self._case.replicas[int(rows[0])]
        self._watch.begins(f"the reset of episode {episodes[0]} of replica {replica}")
        seeds = episode_seeds(self._case.seed, self._numbers[rows], episodes)
        observation = self._subject.reset(rows, seeds).observation
        self._show(rows, observation)
        found = not_finite(observation)
        if found is not None:
            raise found.error(self._case.replicas[rows[found.row]], episodes[found.row], 0)
        self._watch.returned({name: array[rows] for name, array in self._seen.items()})

    def _step(self, rows: Array, action: Array, step: int) -> Array:
        """Of all rows, of which these are looked at; says which ones have ended."""
        self._watch.begins(self._name(self._eldest, step), step)
        moment = self._subject.step(self._taken(action.copy()))
        fields = {name: array[rows] for name, array in moment.fields().items()}
        observation = {name: array[rows] for name, array in moment.observation.items()}
        self._show(rows, observation)
        found = not_finite(observation, fields["reward"])
        if found is not None:
            row, case = int(rows[found.row]), self._case
            age = step - int(case.age[self._eldest] - case.age[row])
            raise found.error(case.replicas[row], case.episode[row], age)
        self._watch.returned(fields)
        assert moment.terminated is not None, "a step has flags"
        assert moment.truncated is not None, "a step has flags"
        return np.asarray(moment.terminated | moment.truncated)

    def _name(self, row: int, step: int) -> str:
        replica, episode = self._case.replicas[row], self._case.episode[row]
        return f"step {step} of episode {episode} of replica {replica}"

    def _show(self, rows: Array, observation: Mapping[str, Array]) -> None:
        """As it is written into a storage, which refuses what has another shape."""
        for name, array in self._seen.items():
            array[rows] = as_declared(name, observation[name], (len(rows), *array.shape[1:]))

    def _hold(self) -> None:
        """What is seen now to what the run saw."""
        for name, recorded in self._case.seen.items():
            seen = self._seen.get(name)
            if seen is None or seen.tobytes() != recorded.tobytes():
                age = int(self._case.age[self._eldest])
                where = self._name(self._eldest, age) if age else "the reset"
                self._watch.pipe.send(strayed=f"behind {where} {name} is not what the run saw")
                return
