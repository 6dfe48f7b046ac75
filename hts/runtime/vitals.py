"""Looks at a run from outside, now and then: shared times, and what the kernel counts.

Nobody is asked and nobody waits: executors, actors and learner do not know that they are seen.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hts.machine import TIMES
from hts.report.vitals import Kind, Setting, Vitals
from hts_envs.contract import Array

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_IDLE = (3, 4)  # columns of /proc/stat: idle, and waiting for a disk
_GUEST = 8  # from here on they are counted twice
_BEHIND_NAME = 11  # from a process's name to its time, in its stat


@dataclass(frozen=True)
class Spent:
    """The times of all processes of one role: a row for each."""

    role: str
    rows: Array


@dataclass(frozen=True)
class Crewed:
    """A run as it is looked at: its times, its processes, how many were replaced, the threads of
    its learner, and the environment steps that were taken, unfinished rollouts included."""

    spent: Callable[[], Sequence[Spent]]
    pids: Callable[[], Sequence[int]]
    replaced: Callable[[], int]
    learners: Callable[[], int]
    taken: Callable[[], int]
    filled: Callable[[], tuple[int, int] | None] = lambda: None  # seats: with a simulator, and all


@dataclass(frozen=True)
class _Sample:
    at: float
    seconds: tuple[Array, ...]  # of each role: one number for each column
    busy: float  # seconds of all cores together
    own: dict[int, float]  # of each process of the run


class Look:
    """What the run did since the last look, or in the latest seconds if that is longer."""

    def __init__(self, seen: Crewed, setting: Setting, seconds: float = 0.0) -> None:
        self._seen = seen
        self._setting = setting
        self._seconds = seconds
        self._cores = frozenset(os.sched_getaffinity(0))
        self._samples = deque([self._sample()])

    def __call__(self) -> Vitals:
        now = self._sample()
        self._samples.append(now)
        while len(self._samples) > 2 and now.at - self._samples[1].at >= self._seconds:
            self._samples.popleft()
        before = self._samples[0]
        passed = max(now.at - before.at, 1e-9)
        busy = min(max(0.0, (now.busy - before.busy) / passed), float(len(self._cores)))
        computed = sum(now.own[pid] - before.own.get(pid, 0.0) for pid in now.own)
        own = min(max(0.0, computed / passed), busy)
        kinds = tuple(
            Kind(spent.role, len(spent.rows), _shares(after, earlier))
            for spent, after, earlier in zip(
                self._seen.spent(), now.seconds, before.seconds, strict=True
            )
        )
        return Vitals(
            dataclasses.replace(self._setting, learners=self._seen.learners()),
            kinds,
            cores=len(self._cores),
            busy=busy,
            others=busy - own,
            memory=_memory([os.getpid(), *self._seen.pids()]),
            replaced=self._seen.replaced(),
            taken=self._seen.taken(),
            filled=self._seen.filled(),
        )

    def _sample(self) -> _Sample:
        seconds = tuple(spent.rows.sum(0) for spent in self._seen.spent())
        own = {pid: _computed(pid) for pid in (os.getpid(), *self._seen.pids())}
        return _Sample(time.monotonic(), seconds, _busy(self._cores), own)


def _shares(after: Array, before: Array) -> dict[str, float]:
    """Of the time that was told in between, or of all of it where nobody told any, or where others
    sit there since."""
    passed = after - before
    if not passed.any() or (passed < 0.0).any():
        passed = after
    total = float(passed.sum())
    if not total:
        return {}
    return dict(zip(TIMES, (passed / total).tolist(), strict=True))


def _busy(cores: frozenset[int]) -> float:
    """Seconds that these cores have computed, since the machine was started."""
    ticks = 0
    with open("/proc/stat", encoding="ascii") as file:
        for line in file:
            name, *columns = line.split()
            if not name.startswith("cpu"):
                break
            if name != "cpu" and int(name.removeprefix("cpu")) in cores:
                counted = list(map(int, columns[:_GUEST]))
                ticks += sum(counted) - sum(counted[column] for column in _IDLE)
    return ticks / _TICK


def _computed(pid: int) -> float:
    """Seconds that a process has computed; none where it is gone."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        columns = file.read().rpartition(b")")[2].split()
        return sum(map(int, columns[_BEHIND_NAME : _BEHIND_NAME + 2])) / _TICK
    return 0.0


def _memory(pids: Sequence[int]) -> int:
    """Bytes: what each has for itself, and once the most that one of them shares."""
    own, shared = 0, [0]
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
            resident, common = map(int, file.read().split()[1:3])
            own += resident - common
            shared.append(common)
    return (own + max(shared)) * _PAGE
