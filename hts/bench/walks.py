"""Worlds that are stepped with random actions and do nothing else, to see how long steps take."""

from __future__ import annotations

import dataclasses
import itertools
import math
import resource
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hts.determinism.keys import Purpose, episode_seed, episode_seeds, keys
from hts.soundness.profile import Stretch, undisturbed
from hts.soundness.subject import actions
from hts_envs.contract import Array, BatchedWorld, Observation, Place, World
from hts_envs.registry import Spec, make

_SHORT = 100e-6  # seconds: shorter steps are timed several at once, or the clock would count
_AT_ONCE = 64
_WARM_STEPS = 3
_KEPT = 64  # observations, for the network to look at


@dataclass(frozen=True, eq=False)
class StepCosts:
    """Seconds of one step of one replica, its share of resets included.

    `durations` are of single steps, or means of `at_once` steps where those are short; behind a
    call for many replicas, they are that call's for each of them.
    """

    durations: Array
    cpu: float
    at_once: int
    seen: tuple[Observation, ...]  # some of what was observed
    repeats: bool = True  # equal seeds and actions have shown the same, as far as was looked

    @property
    def mean(self) -> float:
        return float(self.durations.mean())

    @property
    def deviation(self) -> float:
        """Of a single step."""
        return float(self.durations.std() * math.sqrt(self.at_once))

    @property
    def shape(self) -> float:
        """Of the gamma distribution with this mean and deviation."""
        return (self.mean / max(self.deviation, 1e-12)) ** 2

    @property
    def waiting(self) -> float:
        """The share of a step in which this process computes nothing."""
        return min(1.0, max(0.0, 1.0 - self.cpu / self.mean))


def measure_worlds(spec: Spec, replicas: int, seconds: float, worlds: int = 1) -> StepCosts:
    """Build as many worlds, one of all replicas where it is batched, and measure their steps."""
    made = [
        make(spec, Place(first, replicas if spec.batched else 1, 0))
        for first in range(1 if spec.batched else min(worlds, replicas))
    ]
    try:
        return measure_steps(made, seconds)
    finally:
        for world in made:
            world.close()


def measure_steps(worlds: Sequence[World | BatchedWorld], seconds: float) -> StepCosts:
    """Step a batched world, or single ones in turn, with random actions, doing nothing else.

    In turn each of them takes few steps, in which episodes end too rarely or too often: what resets
    take is then seen on the first one alone.
    """
    first = worlds[0]
    if isinstance(first, BatchedWorld):
        return _measured(_BatchedWalk(first), seconds)
    singles = [world for world in worlds if isinstance(world, World)]
    walk = _SingleWalk(singles)
    found = _measured(walk, seconds / 2)
    alone = _SingleWalk(singles[:1])
    _measured(alone, seconds / 2)
    wall, cpu = alone.resetting - walk.resetting
    return dataclasses.replace(
        found,
        durations=np.maximum(found.durations + wall, 1e-9),
        cpu=max(found.cpu + cpu, 1e-9),
        repeats=_repeats(singles[0], seconds / 4),
    )


def _repeats(world: World, seconds: float) -> bool:
    """An episode's begin, twice with the same seed and the same actions, for so long together."""
    until, first = time.perf_counter() + seconds / 2, list[object]()
    for shown in _shown(world):
        first.append(shown)
        if len(first) > 1 and time.perf_counter() >= until:  # a step at least, however slow
            break
    return first == list(itertools.islice(_shown(world), len(first)))


def _shown(world: World) -> Iterator[object]:
    """What an episode shows from its reset on."""
    yield _bytes(world.reset(episode_seed(0, 0, 0)))
    for number in itertools.count():
        drawn = actions(world.spaces, keys(0, Purpose.CHECK, 0, 0, np.arange(number, number + 1)))
        step = world.step(drawn[0])
        yield _bytes(step.observation), step.reward.tobytes(), step.terminated, step.truncated
        if step.terminated or step.truncated:
            return


def _bytes(seen: Observation) -> list[bytes]:
    return [array.tobytes() for array in seen.values()]


def _measured(walk: _Walk, seconds: float) -> StepCosts:
    walk.timed(_WARM_STEPS)
    at_once = 1 if walk.timed(1).wall > _SHORT else _AT_ONCE
    stretches, deadline = [walk.timed(at_once)], time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        stretches.append(walk.timed(at_once))
    steps = at_once * walk.replicas
    return StepCosts(
        durations=undisturbed(stretches) / steps,
        cpu=sum(stretch.cpu for stretch in stretches) / (len(stretches) * steps),
        at_once=at_once,
        seen=tuple(walk.seen[:: -(-len(walk.seen) // _KEPT)]),
    )


class _Walk(ABC):
    """Steps and resets, with actions that were drawn before the clock runs."""

    def __init__(self, world: World | BatchedWorld) -> None:
        self.replicas = world.replicas if isinstance(world, BatchedWorld) else 1
        self.seen: list[Observation] = []
        self._spaces = world.spaces
        self._stepped = 0
        self._resets = np.zeros(2)  # seconds of the clock and of the CPU
        self._begin()

    @property
    def resetting(self) -> Array:
        """Seconds of resets, of the clock and of the CPU, for each step that was taken."""
        return self._resets / self._stepped

    def timed(self, steps: int) -> Stretch:
        """The next steps, and the resets between them."""
        first, self._stepped = self._stepped, self._stepped + steps * self.replicas
        named = keys(0, Purpose.CHECK, 0, 0, np.arange(first, self._stepped))
        drawn = actions(self._spaces, named)
        drawn = drawn.reshape(steps, self.replicas, *drawn.shape[1:])
        before = resource.getrusage(resource.RUSAGE_SELF)
        cpu, began = time.process_time(), time.perf_counter()
        last = self._go(drawn)
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        after = resource.getrusage(resource.RUSAGE_SELF)
        if after.ru_nvcsw == before.ru_nvcsw:
            wall = min(wall, cpu)  # nothing was waited for: what is longer was taken by others
        if len(self.seen) < 16 * _KEPT:
            self.seen.append({name: array.copy() for name, array in last.items()})
        return Stretch(wall, cpu, after.ru_nivcsw > before.ru_nivcsw)

    @abstractmethod
    def _begin(self) -> None:
        """The first episode of every replica."""

    @abstractmethod
    def _go(self, drawn: Array) -> Observation:
        """Take these actions; returns what one replica saw last."""


class _SingleWalk(_Walk):
    def __init__(self, worlds: Sequence[World]) -> None:
        self._worlds = worlds
        self._episode = [0] * len(worlds)
        self._turn = 0
        super().__init__(worlds[0])

    def _begin(self) -> None:
        for row, world in enumerate(self._worlds):
            world.reset(episode_seed(0, row, 0))

    def _go(self, drawn: Array) -> Observation:
        for action in drawn:
            row = self._turn = (self._turn + 1) % len(self._worlds)
            step = self._worlds[row].step(action[0])
            if step.terminated or step.truncated:
                self._episode[row] += 1
                began = time.perf_counter(), time.process_time()
                self._worlds[row].reset(episode_seed(0, row, self._episode[row]))
                self._resets += time.perf_counter() - began[0], time.process_time() - began[1]
        return step.observation


class _BatchedWalk(_Walk):
    def __init__(self, world: BatchedWorld) -> None:
        self._world = world
        self._episode = np.zeros(world.replicas, np.int64)
        super().__init__(world)

    def _begin(self) -> None:
        self._reset(np.arange(self.replicas))

    def _go(self, drawn: Array) -> Observation:
        for action in drawn:
            step = self._world.step(action)
            ended = np.flatnonzero(step.terminated | step.truncated)
            if len(ended):
                self._reset(ended)
        row = self._stepped % self.replicas
        return {name: array[row] for name, array in step.observation.items()}

    def _reset(self, rows: Array) -> None:
        self._world.reset(rows, episode_seeds(0, rows, self._episode[rows]))
        self._episode[rows] += 1
