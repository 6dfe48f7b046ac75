"""Every violation of a configuration at once, with both sides of each equation in numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hts.config.records import A2C, PPO, Config, Experiment, Machine
from hts_envs.errors import WorldError
from hts_envs.registry import parse

_LEAST_ROWS = 4


def check(config: Config) -> list[str]:
    """Sentences that say what is wrong with the values taken together; empty when all is well."""
    return [
        *_environment(config.experiment),
        *_sizes(config.experiment),
        *_schedule(config.experiment),
        *_machine(config),
    ]


def _environment(experiment: Experiment) -> Iterator[str]:
    try:
        parse(experiment.env)
    except WorldError as error:
        yield f"experiment.env: {error}"


def _sizes(experiment: Experiment) -> Iterator[str]:
    rows = experiment.rows
    made = f"{experiment.replicas:,} replicas x rollout {experiment.rollout:,} = {rows:,} rows"
    if experiment.steps < rows:
        yield (
            f"experiment.steps: {experiment.steps:,} steps are less than one rollout: {made}; "
            f"give at least {rows:,} steps, or fewer replicas or a shorter rollout"
        )
    parts = experiment.algo.minibatches if isinstance(experiment.algo, PPO) else 1
    if rows % parts:
        yield (
            f"experiment.algo.minibatches: {made} do not divide into {parts:,} minibatches "
            f"({rows / parts:,.2f} rows each); {_divisors(rows, parts)}"
        )
    elif (rows // parts) % experiment.shards:
        yield (
            f"experiment.shards: a minibatch of {rows // parts:,} rows ({made}, {parts:,} parts) "
            f"does not divide into {experiment.shards:,} shards; "
            f"{_divisors(rows // parts, experiment.shards)}"
        )
    elif rows // parts // experiment.shards < _LEAST_ROWS:
        yield (
            f"experiment.shards: {made}, {parts:,} minibatches and {experiment.shards:,} shards "
            f"leave {rows // parts // experiment.shards} rows in each; it must be at least "
            f"{_LEAST_ROWS}, or a row is not the same bits when acting and when learning"
        )


def _divisors(rows: int, wanted: int) -> str:
    """The numbers nearest to `wanted`, on both sides, that divide `rows`."""
    below = max(n for n in range(1, wanted + 1) if rows % n == 0)
    above = next((n for n in range(wanted, rows + 1) if rows % n == 0), None)
    return f"{below:,} does" if above is None else f"{below:,} and {above:,} do"


def _schedule(experiment: Experiment) -> Iterator[str]:
    if experiment.schedule == "sync" and experiment.correction != "delayed":
        yield (
            f"experiment.correction: schedule sync has no lag, so there is nothing for "
            f"{experiment.correction!r} to correct; leave it out, or use schedule hts"
        )
    if experiment.correction == "ratio" and isinstance(experiment.algo, A2C):
        yield ("experiment.correction: a2c has no ratio to clip; use truncated_is, none or delayed")


def _machine(config: Config) -> Iterator[str]:
    machine, replicas = config.machine, config.experiment.replicas
    if machine.executors != "auto" and machine.executors > replicas:
        yield (
            f"machine.executors: {machine.executors:,} executors for {replicas:,} replicas: "
            f"an executor steps at least one; use at most {replicas:,}"
        )
    if machine.learners > config.experiment.shards:
        yield (
            f"machine.learners: {machine.learners:,} learner workers for "
            f"{config.experiment.shards:,} shards: a worker takes at least one; "
            f"use at most {config.experiment.shards:,}, or more experiment.shards"
        )
    if machine.barrier and config.experiment.schedule == "sync":
        yield "machine.barrier: schedule sync has no second storage to swap; leave it out"
    yield from _device(machine)


def _device(machine: Machine) -> Iterator[str]:
    if machine.device in ("auto", "cpu"):
        return
    if not re.fullmatch(r"cuda(:\d+)?", machine.device):
        yield f"machine.device: must be auto, cpu, cuda or cuda:N, got {machine.device!r}"
        return
    import torch  # a second of start-up that only people who name a GPU pay

    found = torch.cuda.device_count()
    index = int(machine.device.partition(":")[2] or 0)
    if index >= found:
        there = f"{found} GPUs here" if found else "no GPU that torch can use here"
        yield f"machine.device: {machine.device} is not there: {there}; use cpu or auto"
