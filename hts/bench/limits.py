"""What the machine could do at best, from what a sample costs and who has to wait for whom."""

from __future__ import annotations

from dataclasses import dataclass

from hts.bench.costs import Costs
from hts.bench.model import (
    Dataflow,
    GammaTimes,
    MeasuredTimes,
    Schedule,
    StepTimes,
    cpu_limit,
    simulate,
)
from hts.config import Config
from hts_envs.registry import Spec

_WAITING = 0.5  # of a step: from here on it matters who waits for whom


@dataclass(frozen=True)
class Limits:
    """Steps per second at best; None where a limit means nothing for this simulator."""

    cpu: float
    waiting: float | None  # replicas wait for each other; answers and updates take no time
    expected: float | None  # the same with answers and updates as long as they were measured
    crowded: float | None = None  # by the CPU, at the costs of a sample where every core computes

    @property
    def best(self) -> float:
        return self.cpu if self.waiting is None else min(self.cpu, self.waiting)


def limits(costs: Costs, config: Config, spec: Spec, cores: int) -> Limits:
    """The limits of an experiment on so many cores."""
    experiment = config.experiment
    cpu = cpu_limit(cores, costs.sample(experiment.replicas))
    if spec.batched or costs.step.waiting < _WAITING:
        return Limits(cpu, None, None)
    times, schedule = step_times(costs, spec), schedule_of(config)
    free = Dataflow(replicas=experiment.replicas, alpha=experiment.rollout, schedule=schedule)
    real = Dataflow(
        replicas=experiment.replicas,
        alpha=experiment.rollout,
        schedule=schedule,
        learning=costs.learning * experiment.rows,
        latency=costs.step.cpu + costs.answer(1),
    )
    ideal, expected = simulate(times, free), simulate(times, real)
    return Limits(cpu, ideal.steps_per_second, expected.steps_per_second)


def schedule_of(config: Config) -> Schedule:
    """As --schedule has it: with the barrier, or without."""
    if config.experiment.schedule == "sync":
        return "sync"
    return "hts_barrier" if config.machine.barrier else "hts"


def step_times(costs: Costs, spec: Spec) -> StepTimes:
    """How long steps take: known of a sleeper, measured of every other."""
    if spec.family.name == "sleeper":
        return GammaTimes(spec.options.mean / 1e3, spec.options.shape)
    return MeasuredTimes(costs.step.durations)
