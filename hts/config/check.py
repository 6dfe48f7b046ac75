"""Every violation of a configuration at once, with both sides of each equation in numbers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from hts.config.lineage import check_lineage
from hts.config.records import A2C, PQL, Config, Conv, Experiment, Machine
from hts.determinism import numerics
from hts_envs.errors import WorldError
from hts_envs.registry import parse

_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
"""What processors that multiply bfloat16 say they have; the last one is ARM's word."""


def check(config: Config) -> list[str]:
    """Sentences that say what is wrong with the values taken together; empty when all is well."""
    return [
        *_environment(config.experiment),
        *(_sizes(config.experiment) if not _is_pql(config) else _replayed(config.experiment)),
        *_schedule(config.experiment),
        *check_lineage(config.experiment),
        *_machine(config),
    ]


def _environment(experiment: Experiment) -> Iterator[str]:
    try:
        spec = parse(experiment.env)
    except WorldError as error:
        yield f"experiment.env: {error}"
        return
    if spec.family.untrainable:
        yield f"experiment.env: {spec.family.untrainable}"
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
    yield from _too_few_steps(experiment, "rollout", made)
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


def _too_few_steps(experiment: Experiment, whole: str, made: str) -> Iterator[str]:
    if experiment.steps < experiment.rows:
        yield (
            f"experiment.steps: {experiment.steps:,} steps are less than one {whole}: {made}; "
            f"give at least {experiment.rows:,} steps, or fewer replicas or a shorter rollout"
        )


def _is_pql(config: Config) -> bool:
    return isinstance(config.experiment.algo, PQL)


def _replayed(experiment: Experiment) -> Iterator[str]:
    """An off-policy experiment: what its counts make, and what is not for it."""
    algo, rows = experiment.algo, experiment.rows
    assert isinstance(algo, PQL), "the only one there is"
    made = f"{experiment.replicas:,} replicas x rollout {experiment.rollout:,} = {rows:,} rows"
    if experiment.windows < 2:
        yield (
            f"experiment.algo.replay: {algo.replay:,} transitions do not hold two windows "
            f"of {made}; give at least {2 * rows:,}"
        )
    updates = algo.beta_av * experiment.rollout
    if updates % algo.beta_pv:
        yield (
            f"experiment.algo.beta_pv: a window has {algo.beta_av:,} x {experiment.rollout:,} = "
            f"{updates:,} updates of the critics, which do not divide by {algo.beta_pv:,}; "
            f"{_divisors(updates, algo.beta_pv)}"
        )
    if algo.batch % experiment.shard_count:
        yield (
            f"experiment.shards: a batch of {algo.batch:,} transitions does not divide into "
            f"{experiment.shard_count:,} shards; {_divisors(algo.batch, experiment.shard_count)}"
        )
    for low, high in (("value_low", "value_high"), ("noise_low", "noise_high")):
        least, most = getattr(algo, low), getattr(algo, high)
        if least > most or (low == "value_low" and least == most):
            yield (
                f"experiment.algo.{low}: {least:g} is not below experiment.algo.{high}, {most:g}; "
                "make it smaller"
            )
    yield from _too_few_steps(experiment, "window", made)
    for name, why in _ON_POLICY.items():
        if getattr(experiment, name) != getattr(Experiment(), name):
            yield f"experiment.{name}: {why}; leave it out with pql"


_ON_POLICY = {
    "correction": "a replay is older than a version anyhow, and nothing corrects for that",
    "recurrent": "networks that remember are for a2c and ppo",
    "sequence": "networks that remember are for a2c and ppo",
    "policies": "there is one agent, with one policy",
    "squash": "the policy's own actions lie within the bounds",
    "normalise_rewards": "rewards in a replay are scaled by experiment.algo.reward_scale",
}
"""Fields that say nothing to an off-policy algorithm."""


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
    if experiment.schedule == "sync" and experiment.is_paced_by_clock:
        yield (
            "experiment.algo.pacing: under schedule sync learners take turns with executors, and "
            "the clock says nothing; use count, or schedule hts"
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
    if machine.serial and config.experiment.is_paced_by_clock:
        yield "machine.serial: one process has no clock to pace learners; leave it out or use count"
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
                "machine.listen: simulators of remote: dial in, and need an address; "
                "add --listen tcp://127.0.0.1:5555"
            )
        for name in ("remote", "seat", "keys"):
            if getattr(machine, name) != getattr(Machine(), name):
                yield f"machine.{name}: is for simulators that dial in; add --listen ADDRESS"
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
            f"machine.seat: {len(theirs):,} replicas dial in, which do not divide into seats of "
            f"{machine.seat:,}; {_divisors(len(theirs), machine.seat)}"
        )


def _device(machine: Machine) -> Iterator[str]:
    yield from _named_device("machine.device", machine.device)
    for field in dataclasses.fields(machine.devices):
        said = getattr(machine.devices, field.name)
        if said is not None:
            yield from _named_device(f"machine.devices.{field.name}", said)


def _named_device(path: str, device: str) -> Iterator[str]:
    if device in ("auto", "cpu"):
        return
    if not re.fullmatch(r"cuda(:\d+)?", device):
        yield f"{path}: must be auto, cpu, cuda or cuda:N, not {device!r}"
        return
    numerics.prepare()
    import torch  # a second of start-up that only people who name a GPU pay

    found = torch.cuda.device_count()
    index = int(device.partition(":")[2] or 0)
    if index >= found:
        there = f"{found} GPU{'s' * (found > 1)}" if found else "no GPU that torch can use"
        yield f"{path}: {device} is not there: this machine has {there}; use cpu or auto"


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
    elif model.first == "dense" and not _convolves_bfloat16():
        yield (
            "experiment.model.precision: oneDNN's bfloat16 convolutions are wrong by more than "
            "rounding on this processor (its AMX instructions); use float32, first=sparse, or set "
            "the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
        )


def _convolves_bfloat16() -> bool:
    """Return whether a convolution of this form is right in bfloat16, up to rounding.

    On Intel processors with AMX, oneDNN's is wrong by half of its value where kernels of 8x8 move
    in steps of four, as in the first layer; all other layers are right.
    """
    import torch

    image = torch.arange(16.0 * 72 * 96).sin_().reshape(1, 16, 72, 96)
    kernel = torch.arange(32.0 * 16 * 8 * 8).cos_().reshape(32, 16, 8, 8)
    with torch.no_grad():
        right = torch.conv2d(image, kernel, stride=4)
        narrow = torch.conv2d(image.bfloat16(), kernel.bfloat16(), stride=4)
    return bool((narrow - right).norm() < 0.05 * right.norm())
