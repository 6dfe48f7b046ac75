"""How long steps and resets take, how unevenly, and whether they compute or wait."""

from __future__ import annotations

import dataclasses
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hts.soundness.subject import Moment, Subject
from hts.soundness.trace import Plan, play
from hts_envs.contract import Array

_WARM_STEPS = 3


@dataclass(frozen=True)
class Times:
    """A distribution of durations, in seconds."""

    count: int
    mean: float
    p50: float
    p99: float
    worst: float
    deviation: float

    @property
    def variance(self) -> float:
        return self.deviation**2


def times(found: Array) -> Times:
    """What is told about these durations."""
    assert found.size, "there is at least one duration"
    p50, p99 = np.percentile(found, [50, 99])
    return Times(
        found.size,
        float(found.mean()),
        float(p50),
        float(p99),
        float(found.max()),
        float(found.std()),
    )


@dataclass(frozen=True)
class Stretch:
    """One call: its duration, CPU time of all threads, and was this process interrupted?"""

    wall: float
    cpu: float
    interrupted: bool


def undisturbed(stretches: Sequence[Stretch]) -> Array:
    """Durations as they would be on a machine of one's own.

    A call that the system interrupted for another program lasted longer than it needed. It is
    taken to have the CPU time that it had and, for that, as much waiting as the others.
    """
    wall = np.array([stretch.wall for stretch in stretches])
    cpu = np.array([stretch.cpu for stretch in stretches])
    interrupted = np.array([stretch.interrupted for stretch in stretches], bool)
    if not interrupted.any() or interrupted.all():
        return wall
    busy = cpu[~interrupted].sum() / wall[~interrupted].sum()
    return np.where(interrupted, np.minimum(wall, cpu / max(busy, 1e-9)), wall)


@dataclass
class Profile:
    """What was measured."""

    replicas: int = 1
    steps: list[Stretch] = field(default_factory=list)
    resets: list[Stretch] = field(default_factory=list)
    reset_after: list[int] = field(default_factory=list)  # steps before each reset but the first
    ends: int = 0  # of episodes that were not cut

    @property
    def step_times(self) -> Times:
        return times(undisturbed(self.steps))

    @property
    def reset_times(self) -> Times:
        return times(undisturbed(self.resets))

    @property
    def cores(self) -> float:
        """CPU seconds of all threads for each second of stepping."""
        wall = float(undisturbed(self.steps).sum())
        return sum(stretch.cpu for stretch in self.steps) / max(wall, 1e-9)

    @property
    def waiting(self) -> float:
        """The share of a step in which this process computes nothing."""
        return min(1.0, max(0.0, 1.0 - self.cores))

    @property
    def interrupted(self) -> float:
        """The share of steps that another program interrupted."""
        return sum(stretch.interrupted for stretch in self.steps) / len(self.steps)

    @property
    def episode_length(self) -> float | None:
        """Steps for each end, those of the episodes that were cut included."""
        return len(self.steps) * self.replicas / self.ends if self.ends else None

    @property
    def reset_share(self) -> float | None:
        """The share of resets in all the time, where episodes end by themselves."""
        length = self.episode_length
        if length is None:
            return None
        stepping = self.step_times.mean * length / self.replicas
        resetting = self.reset_times.mean
        return resetting / max(resetting + stepping, 1e-9)

    def costs(self) -> Array:
        """What each step cost one replica, the reset that followed it included."""
        costs = undisturbed(self.steps)
        resets = undisturbed(self.resets)
        for seconds, after in zip(resets[1:], self.reset_after, strict=True):
            costs[after - 1] += seconds
        return costs


class _Timed(Subject):
    """A subject whose calls are timed and nothing else."""

    def __init__(self, inner: Subject, profile: Profile) -> None:
        super().__init__(inner.world)
        self._inner = inner
        self._profile = profile
        self.replicas = inner.replicas

    def choose(self, keys: Array) -> Array:
        return self._inner.choose(keys)

    def _reset(self, rows: Array, seeds: Array) -> Moment:
        if self._profile.resets:
            self._profile.reset_after.append(len(self._profile.steps))
        moment, stretch = _timed(lambda: self._inner.reset(rows, seeds))
        self._profile.resets.append(stretch)
        return moment

    def _step(self, action: Array) -> Moment:
        moment, stretch = _timed(lambda: self._inner.step(action))
        self._profile.steps.append(stretch)
        return moment


def _timed(call: Callable[[], Moment]) -> tuple[Moment, Stretch]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    cpu, started = time.process_time(), time.perf_counter()
    moment = call()
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    after = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    return moment, Stretch(wall, cpu, after > before)


def measure(subject: Subject, plan: Plan, seconds: float) -> Profile:
    """Step a world, doing nothing else, for the ticks of the plan or until the time is over."""
    for _ in play(subject, dataclasses.replace(plan, ticks=_WARM_STEPS)):
        pass  # the first calls load what is loaded late
    profile = Profile(replicas=subject.replicas)
    deadline = time.perf_counter() + seconds
    for event in play(_Timed(subject, profile), plan):
        profile.ends += sum(event.ended())
        if time.perf_counter() > deadline and profile.steps:
            break
    return profile
