"""The real machine, for some seconds: how fast it is in the middle, and what it uses."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hts.bench.processes import cpu_seconds_of, cpu_seconds_of_all, family, private_bytes
from hts.config import Experiment, Machine
from hts.machine import SharedArray
from hts.runtime.assemble import Plan
from hts.runtime.parallel import ParallelRun
from hts.runtime.serial import SerialRun
from hts.runtime.train import make_run

_WARM = 0.25  # of the time: the first rollouts are made by cold caches


@dataclass(frozen=True)
class Reading:
    """What was read off a running machine."""

    steps_per_second: float
    seconds: float
    updates: int
    since: int  # updates before that
    cores: float  # that its processes kept busy
    others: float  # cores that other programs kept busy meanwhile
    private: dict[str, int]  # bytes of memory of each process
    storages: int  # bytes that they share, computed from shapes
    time: str  # where time went


def endless(experiment: Experiment) -> Experiment:
    """The same with more steps than anybody waits for."""
    return dataclasses.replace(experiment, steps=experiment.rows * 10**9)


def run_machine(found: Plan, machine: Machine, seconds: float) -> Reading:
    """Train for so long, or until one update was seen after the warm part."""
    run = make_run(found, machine)
    try:
        updates = iter(run)
        begun = time.perf_counter()
        first = _until(updates, begun + _WARM * seconds)
        last = _until(updates, begun + seconds, first)
        private = _memory(run)
    finally:
        run.close()
    elapsed, made = last.time - first.time, last.updates - first.updates
    cores = (last.cpu - first.cpu) / elapsed
    return Reading(
        steps_per_second=made * found.experiment.rows / elapsed,
        seconds=elapsed,
        updates=made,
        since=first.updates,
        cores=cores,
        others=max(0.0, (last.everybody - first.everybody) / elapsed - cores),
        private=private,
        storages=sum(map(_size, found.blueprint(machine).tables())),
        time=run.time_budget(),
    )


@dataclass(frozen=True)
class _Mark:
    """A moment at the end of an update."""

    time: float
    updates: int
    cpu: float  # seconds, of this run's processes
    everybody: float  # of all processes of the machine


def _until(updates: Iterator[object], deadline: float, since: _Mark | None = None) -> _Mark:
    """The end of the first update behind this moment."""
    count = since.updates if since else 0
    for _ in updates:
        count += 1
        now = time.perf_counter()
        if now >= deadline:
            break
    return _Mark(now, count, cpu_seconds_of(family(os.getpid())), cpu_seconds_of_all())


def _memory(run: SerialRun | ParallelRun) -> dict[str, int]:
    """Of each process by its name; this one starts the others and listens."""
    children = run.children if isinstance(run, ParallelRun) else []
    named = {"this process": os.getpid(), **{child.name: child.pid for child in children}}
    return {name: private_bytes(pid) for name, pid in named.items()}


def _size(table: tuple[SharedArray, ...]) -> int:
    return sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in table)
