"""Every field of an experiment changes what is learnt, or is no part of an experiment."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hts.config import A2C, PPO, PQL, Conv, Experiment, Impala, Mlp
from hts.config.extended import Extended
from hts.report.start import Start
from hts.runtime.assemble import Updated
from tests.fakes.runs import experiment, outcome

IMAGES = {
    "env": "sleeper:?mean=0&observation=36x36x1&dtype=uint8",
    "model": Conv(hidden=32),
    "rollout": 8,
}
REPLAYED = PQL(batch=16, replay=48, warm_up=6, beta_av=2, critic_hidden=(8,))
FROM_REPLAY = {
    "env": "python:tests.fakes.small_worlds:Small?action=vector",
    "rollout": 4,
    "updates": 6,
    "model": Mlp(hidden=(8,)),
}
REMEMBERS = {"recurrent": "gru", "recurrent_units": 8}
NARROW = torch.cpu.get_capabilities().get("avx512_bf16")

PLAIN: dict[type[Any], dict[str, Any]] = {
    Experiment: {},
    A2C: {"algo": A2C()},
    PPO: {"algo": PPO(epochs=2, minibatches=2)},
    PQL: {"algo": REPLAYED, **FROM_REPLAY},
    Mlp: {"model": Mlp()},
    Conv: IMAGES,
    Impala: {**IMAGES, "model": Impala(channels=(8,), hidden=32)},
}
"""The small experiment in which the fields of a record are changed, one at a time."""

BESIDE: dict[tuple[type[Any], str], dict[str, Any]] = {
    (Experiment, "model"): IMAGES,
    (Experiment, "recurrent"): REMEMBERS,
    (Experiment, "recurrent_units"): REMEMBERS,
    (Experiment, "sequence"): REMEMBERS,
    (Experiment, "policies"): {"env": "python:tests.fakes.small_worlds:Small?agents=3"},
    (Experiment, "squash"): {"env": "gym:Pendulum-v1"},
    **{
        (PQL, name): {"algo": dataclasses.replace(REPLAYED, critic="categorical")}
        for name in ("atoms", "value_low", "value_high")
    },
    (PQL, "smoothing_clip"): {"algo": dataclasses.replace(REPLAYED, smoothing=0.5)},
    (PQL, "target_entropy"): {"algo": dataclasses.replace(REPLAYED, policy="sac")},
}
"""What else it says for fields that are not heard in it."""

WEIGHTS = Start({"parameters": np.full(9155, 0.01, np.float32)}, {}, "a test")
"""Weights that no seed draws, for the small experiment's network."""

CHANGES: dict[type[Any], dict[str, Any]] = {
    Experiment: {
        "algo": A2C(),
        "env": "gym:Acrobot-v1",
        "model": Impala(channels=(8,), hidden=32),
        "seed": 1,
        "replicas": 8,
        "rollout": 8,
        "steps": 256,  # the step size falls to zero later
        "schedule": "sync",
        "correction": "none",
        "shards": 2,
        "recurrent": "lstm",
        "recurrent_units": 9,
        "sequence": 8,
        "policies": "separate",
        "squash": True,
        "frame_stack": 2,
        "clip_rewards": 0.5,
        "normalise_observations": True,
        "normalise_rewards": True,
        "start_from": WEIGHTS.content,
        "extended": Extended(from_steps=(64,), from_digests=("0" * 32,), horizons=("restart",)),
    },
    A2C: {
        "learning_rate": 1e-3,
        "learning_rate_schedule": "constant",
        "optimiser": "adam",
        "optimiser_epsilon": 1e-3,
        "gamma": 0.98,
        "gae_lambda": 0.9,
        "value_coefficient": 0.25,
        "entropy_coefficient": 0.1,
        "max_gradient_norm": 0.1,
    },
    PPO: {
        "learning_rate": 1e-3,
        "learning_rate_schedule": "constant",
        "optimiser": "rmsprop",
        "optimiser_epsilon": 1e-3,
        "gamma": 0.98,
        "gae_lambda": 0.9,
        "clip": 0.001,  # so low that ratios of two epochs leave it
        "value_clip": 0.001,
        "epochs": 3,
        "minibatches": 4,
        "normalise_advantages": False,
        "value_coefficient": 0.25,
        "entropy_coefficient": 0.1,
        "max_gradient_norm": 0.1,
    },
    PQL: {
        "learning_rate": 1e-3,
        "policy_learning_rate": 1e-3,
        "optimiser": "rmsprop",
        "optimiser_epsilon": 1e-3,
        "gamma": 0.98,
        "n_step": 2,
        "tau": 0.1,
        "batch": 32,
        "replay": 64,
        "warm_up": 9,  # learning begins a window later
        "beta_av": 3,
        "beta_pv": 1,
        "policy": "sac",
        "critic": "categorical",
        "atoms": 11,
        "value_low": -9.0,
        "value_high": 9.0,
        "noise_low": 0.1,
        "noise_high": 0.7,
        "smoothing": 0.2,
        "smoothing_clip": 0.1,
        "target_entropy": -3.0,
        "reward_scale": 0.5,
        "max_gradient_norm": 0.1,
        "critic_hidden": (9,),
        "critic_activation": "tanh",
        "critic_sees": ("numbers",),
        "policy_sees": ("numbers",),
    },
    Mlp: {"hidden": (64, 32), "activation": "relu", "shared": True},
    Conv: {"hidden": 33, "first": "sparse", "precision": "bfloat16"},
    Impala: {"channels": (9,), "hidden": 33},
}
"""Another value of every field that is tried."""

UNTRIED = {
    "name",  # tells records apart: tried as `algo` or `model`
    "pacing",  # by the clock, two runs of one experiment differ: tests/machine/test_pacing.py
}


def cases() -> Iterator[Any]:
    """Every record with every field that it has, whether the tables know of it or not."""
    absent = pytest.mark.skipif(not NARROW, reason="this processor has no bfloat16")
    for record in PLAIN:
        for name in (field.name for field in dataclasses.fields(record)):
            if name not in UNTRIED:
                marks = [absent] if name == "precision" else []
                yield pytest.param(record, name, id=f"{record.__name__}.{name}", marks=marks)


def changed(plain: Experiment, record: type[Any], name: str) -> Experiment:
    """The same experiment with another value of this field, and nothing else."""
    assert name in CHANGES[record], "a field says here with which value it changes what is learnt"
    change = {name: CHANGES[record][name]}
    if record is Experiment:
        return dataclasses.replace(plain, **change)
    (section,) = (
        section for section in ("algo", "model") if isinstance(getattr(plain, section), record)
    )
    inner = dataclasses.replace(getattr(plain, section), **change)
    return dataclasses.replace(plain, **{section: inner})


@functools.cache
def known(asked: Experiment) -> tuple[Updated, ...]:
    return tuple(outcome(asked))


@pytest.mark.parametrize(("record", "name"), [*cases()])
def test_a_field_reaches_the_parameters(record: type[Any], name: str) -> None:
    """Other parameters at the end of what both runs do, and another identity from the start."""
    plain = experiment(**{**PLAIN[record], **BESIDE.get((record, name), {})})
    start = WEIGHTS if name == "start_from" else None
    pairs = list(zip(known(plain), outcome(changed(plain, record, name), start), strict=False))
    first, last = pairs[0], pairs[-1]
    assert first[0].link.chain != first[1].link.chain
    assert last[0].link.parameters != last[1].link.parameters


def test_the_tables_speak_of_nothing_else() -> None:
    """No entry is left of a field that is gone."""
    fields = {(record, field.name) for record in PLAIN for field in dataclasses.fields(record)}
    assert {(record, name) for record, names in CHANGES.items() for name in names} <= fields
    assert set(BESIDE) <= fields
