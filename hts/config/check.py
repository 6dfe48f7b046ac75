"""Every violation of a configuration at once, with both sides of each equation in numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hts.config.records import A2C, Config, Conv, Experiment, Machine
from hts.determinism import numerics
from hts_envs.errors import WorldError
from hts_envs.registry import parse

_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
"""What processors that multiply bfloat16 say they have; the last one is ARM's word."""


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
        spec = parse(experiment.env)
    except WorldError as error:
        yield f"experiment.env: {error}"
        return
    is_sparse = isinstance(experiment.model, Conv) and experiment.model.first == "sparse"
    if is_sparse and getattr(spec.options, "representation", "") == "pixels":
        yield (
            f"experiment.model.first: sparse is for planes that are almost empty, and "
            f"{experiment.env} shows full pictures, on which it is a hundred times as slow as "
            "dense; use --set model.first=dense"
        )


def _sizes(experiment: Experiment) -> Iterator[str]:
    rows, length = experiment.rows, experiment.sequence_length
    made = f"{experiment.replicas:,} replicas x rollout {experiment.rollout:,} = {rows:,} rows"
    if experiment.steps < rows:
        yield (
            f"experiment.steps: {experiment.steps:,} steps are less than one rollout: {made}; "
            f"give at least {rows:,} steps, or fewer replicas or a shorter rollout"
        )
    if experiment.sequence is not None and experiment.recurrent == "none":
        yield (
            f"experiment.sequence: sequences of {experiment.sequence:,} steps are for a network "
            "that remembers; leave it out, or use recurrent lstm or gru"
        )
    if experiment.rollout % length:
        yield (
            f"experiment.sequence: a rollout of {experiment.rollout:,} steps does not divide into "
            f"sequences of {length:,}; {_divisors(experiment.rollout, length)}"
        )
    elif length == 1:
        yield from _parts(experiment, rows, made, "rows")
    else:
        sequences = f"{made} in {rows // length:,} sequences of {length:,}"
        yield from _parts(experiment, rows // length, sequences, "sequences")


def _parts(experiment: Experiment, count: int, made: str, what: str) -> Iterator[str]:
    """Whether a rollout of `count` rows or sequences divides into minibatches and shards."""
    parts, shards = experiment.minibatches, experiment.shard_count
    if count % parts:
        yield (
            f"experiment.algo.minibatches: {made} do not divide into {parts:,} minibatches "
            f"({count / parts:,.2f} {what} each); {_divisors(count, parts)}"
        )
    elif (count // parts) % shards:
        yield (
            f"experiment.shards: a minibatch of {count // parts:,} {what} ({made}, {parts:,} "
            f"parts) does not divide into {shards:,} shards; {_divisors(count // parts, shards)}"
        )


def _shards(count: int) -> str:
    return f"{count:,} shard" if count == 1 else f"{count:,} shards"


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
    here = machine.dialled_in(replicas).start if machine.remote != "all" else replicas
    if machine.executors != "auto" and machine.executors > here:
        yield (
            f"machine.executors: {machine.executors:,} executors for {here:,} replicas: "
            f"an executor steps at least one; use at most {here:,}"
        )
    yield from _dialling_in(config)
    shards = config.experiment.shard_count
    if machine.learners != "auto" and machine.learners > shards:
        yield (
            f"machine.learners: {machine.learners:,} learner workers for {_shards(shards)}: "
            f"a worker takes at least one; use at most {shards:,}, or more experiment.shards"
        )
    if machine.barrier and config.experiment.schedule == "sync":
        yield "machine.barrier: schedule sync has no second storage to swap; leave it out"
    yield from _device(machine)
    yield from _precision(config)


def _dialling_in(config: Config) -> Iterator[str]:
    """Simulators that dial in: where, which replicas, and how many together."""
    machine, experiment = config.machine, config.experiment
    theirs = machine.dialled_in(experiment.replicas)
    if machine.listen is None:
        if experiment.env.startswith("remote:"):
            yield (
                "machine.listen: simulators of remote: dial in, and need to know where: "
                "say --listen tcp://127.0.0.1:5555"
            )
        for name in ("remote", "seat", "keys"):
            if getattr(machine, name) != getattr(Machine(), name):
                yield f"machine.{name}: is for simulators that dial in, which need --listen"
        return
    if machine.serial:
        yield "machine.serial: simulators dial in to a run of several processes; leave one out"
    if machine.remote != "all" and machine.remote >= experiment.replicas:
        yield (
            f"machine.remote: {machine.remote:,} of {experiment.replicas:,} replicas; "
            "leave it out where all of them dial in"
        )
    elif machine.remote != "all" and experiment.env.startswith("remote:"):
        yield "machine.remote: all replicas of remote: dial in; leave it out"
    if len(theirs) % machine.seat:
        yield (
            f"machine.seat: {len(theirs):,} replicas dial in, which cannot be cut into parts of "
            f"{machine.seat:,}"
        )


def _device(machine: Machine) -> Iterator[str]:
    if machine.device in ("auto", "cpu"):
        return
    if not re.fullmatch(r"cuda(:\d+)?", machine.device):
        yield f"machine.device: must be auto, cpu, cuda or cuda:N, got {machine.device!r}"
        return
    numerics.prepare()
    import torch  # a second of start-up that only people who name a GPU pay

    found = torch.cuda.device_count()
    index = int(machine.device.partition(":")[2] or 0)
    if index >= found:
        there = f"{found} GPUs here" if found else "no GPU that torch can use here"
        yield f"machine.device: {machine.device} is not there: {there}; use cpu or auto"


def _precision(config: Config) -> Iterator[str]:
    model, device = config.experiment.model, config.machine.device
    if not isinstance(model, Conv) or model.precision == "float32" or device.startswith("cuda"):
        return
    numerics.prepare()
    import torch  # paid by people who ask for it, as above

    if device == "auto" and torch.cuda.is_available():
        return
    if not any(torch.cpu.get_capabilities().get(name) for name in _BFLOAT16):
        yield (
            "experiment.model.precision: this processor does not multiply bfloat16 (none of "
            f"{', '.join(_BFLOAT16)}), and to imitate it is slower than float32; use float32"
        )
