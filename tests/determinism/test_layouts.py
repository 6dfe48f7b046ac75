"""One experiment, many machine layouts, one digest: through real processes and shared memory."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from hts.config import Machine, configure
from hts.determinism.digest import Link
from hts.determinism.strategy import Strategy
from hts.errors import RoleFailed
from hts.runtime.assemble import Plan, plan
from hts.runtime.crew import shares
from hts.runtime.parallel import ParallelRun
from hts.runtime.serial import SerialRun
from hts_envs import parse

SMALL = ("replicas=6", "rollout=8", "steps=192", "shards=2")
PQL = (
    "env=batched:pendulum",
    "algo=pql",
    "batch=64",
    "replay=100",  # two windows, so that it is written over
    "warm_up=8",
    "beta_av=1",
    "critic_hidden=16",
    "normalise_observations=true",
)
EXPERIMENTS = {
    "discrete actions": ("env=gym:CartPole-v1",),
    "more values than are computed at once": ("env=gym:CartPole-v1", "rollout=64", "steps=1536"),
    "continuous actions, both normalisers": (
        "env=gym:Pendulum-v1",
        "normalise_observations=true",
        "normalise_rewards=true",
        "frame_stack=2",
    ),
    "a layer of 33 units": ("env=gym:CartPole-v1", "hidden=33"),
    "a batched world": ("env=batched:cartpole",),
    "slow and uneven steps": ("env=sleeper:?mean=2&length=5",),
    "several agents": ("env=python:tests.fakes.team:make",),
    "images, residual net": ("env=sleeper:?mean=0&observation=20x20x2&dtype=uint8", "model=impala"),
    "football, four frames": (
        "env=gfootball:run_to_score",
        "model=conv",
        "model.first=sparse",
        "frame_stack=4",
    ),
    "recurrent, in sequences": (
        "env=gym:CartPole-v1",
        "recurrent=gru",
        "recurrent_units=16",
        "sequence=4",
        "algo.minibatches=1",
        "shards=1",
    ),
    "recurrent, images": (
        "env=sleeper:?mean=0&observation=40x40x2&dtype=uint8&length=5",
        "model=conv",
        "recurrent=lstm",
        "recurrent_units=16",
        "algo.minibatches=1",
        "shards=1",
    ),
    "separate policies": ("env=python:tests.fakes.team:make", "policies=separate"),
    "squashed actions": ("env=gym:Pendulum-v1", "squash=true"),
    "atari, a2c": ("env=atari:Breakout", "algo=a2c", "model=conv", "frame_stack=4"),
    "critics, mixed exploration, stacks": (*PQL, "algo.smoothing=0.2", "frame_stack=2"),
    "critics, soft and categorical": (*PQL, "algo.policy=sac", "critic=categorical"),
    "turn by turn": ("env=gym:CartPole-v1", "schedule=sync"),
}


@contextmanager
def running(sets: tuple[str, ...], machine: Machine) -> Iterator[SerialRun | ParallelRun]:
    """A run of a small experiment on this machine, ended whatever happens."""
    experiment = configure("smoke", (*SMALL, *sets)).config.experiment
    spec = parse(experiment.env)
    found = plan(experiment, spec, "cpu", machine.jitter)
    if machine.serial:
        run: SerialRun | ParallelRun = SerialRun(found, spec)
    else:
        run = ParallelRun(found, machine)
    try:
        yield run
    finally:
        run.close()


def links(sets: tuple[str, ...], machine: Machine) -> list[Link]:
    """Of each update: what the rollout was, what was learnt from it, and the digest behind it."""
    with running(sets, machine) as run:
        return [updated.link for updated in run]


LAYOUTS = {
    "two executors": Machine(executors=2),
    "small blocks, two actors, two learners": Machine(executors=2, actors=2, learners=2),
    "a thread for each replica": Machine(executors=1, stepping="threads"),
    "threads, three actors, delays": Machine(
        executors=2, actors=3, stepping="threads", learners=2, jitter=1.0
    ),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_processes_give_the_digest_of_the_serial_runner(name: str) -> None:
    """Every experiment on every kind of layout, against one process: every update agrees."""
    expected = links(EXPERIMENTS[name], Machine(serial=True))
    assert len({link.chain for link in expected}) == len(expected) == 4
    for layout, machine in LAYOUTS.items():
        if "shards=1" in EXPERIMENTS[name]:
            machine = dataclasses.replace(machine, learners=1)
        assert links(EXPERIMENTS[name], machine) == expected, layout


@pytest.mark.skipif(
    not torch.cpu.get_capabilities().get("avx512_bf16"), reason="this processor has no bfloat16"
)
def test_narrow_products_are_the_same_bits_everywhere() -> None:
    """bfloat16 in acting and learning, with a sparse first layer: small blocks, actors, threads."""
    sets = (*EXPERIMENTS["football, four frames"], "model.precision=bfloat16")
    expected = links(sets, Machine(serial=True))
    assert expected != links(EXPERIMENTS["football, four frames"], Machine(serial=True))
    assert links(sets, LAYOUTS["small blocks, two actors, two learners"]) == expected


def test_three_players_of_one_football_team_are_the_same_bits_everywhere() -> None:
    """One policy for all of them, on the layout that mixes most: small blocks, actors, learners."""
    sets = (
        "env=gfootball:3v1?agents=3",
        "model=conv",
        "model.first=sparse",
        *("replicas=4", "rollout=4", "steps=48"),
    )
    expected = links(sets, Machine(serial=True))
    assert len({link.chain for link in expected}) == len(expected) == 3
    assert links(sets, LAYOUTS["small blocks, two actors, two learners"]) == expected


@dataclasses.dataclass(frozen=True)
class Placed(Plan):
    """The plan of a run whose network no padding is safe for, whatever this processor does."""

    def strategy(self) -> Strategy:
        return Strategy(0, "fixed places, as the test wants it")


def test_fixed_places_give_the_digest_of_the_serial_runner() -> None:
    """Every replica at its place in a batch of all: whoever answers whom, and when."""
    experiment = configure("smoke", (*SMALL, "hidden=33")).config.experiment
    spec = parse(experiment.env)
    plain = plan(experiment, spec, "cpu")
    placed = Placed(experiment, plain.spaces, "cpu")
    run = SerialRun(placed, spec)
    expected = [updated.link for updated in run]
    run.close()
    for layout, machine in LAYOUTS.items():
        found = dataclasses.replace(placed, jitter=machine.jitter)
        parallel = ParallelRun(found, machine)
        try:
            assert [updated.link for updated in parallel] == expected, layout
        finally:
            parallel.close()


def test_learners_that_take_turns_are_the_same_bits_everywhere() -> None:
    """V-learner and P-learner in one process, the critics of this turn for the policy."""
    sets = (*PQL, "schedule=sync", "clip_rewards=1")
    expected = links(sets, Machine(serial=True))
    assert links(sets, LAYOUTS["small blocks, two actors, two learners"]) == expected


@pytest.mark.parametrize("name", ["discrete actions", "slow and uneven steps"])
def test_uneven_shares_and_the_barrier_change_nothing(name: str) -> None:
    """Four executors for six replicas, with the paper's swap of storages."""
    expected = links(EXPERIMENTS[name], Machine(serial=True))
    assert links(EXPERIMENTS[name], Machine(executors=4, barrier=True)) == expected


def test_another_seed_has_another_digest() -> None:
    """Equality means something: from the first update on, another seed disagrees."""
    one = links(("env=gym:CartPole-v1",), Machine(serial=True))
    other = links(("env=gym:CartPole-v1", "seed=1"), Machine(serial=True))
    assert not {link.chain for link in one} & {link.chain for link in other}


def test_a_killed_executor_ends_the_run_with_its_name() -> None:
    """SIGKILL where nobody may be replaced: the sentence says which, and nobody is left."""
    machine = Machine(executors=2, replacements=0)
    with running(("env=sleeper:?mean=5", "steps=48000"), machine) as run:
        assert isinstance(run, ParallelRun)
        updates = iter(run)
        next(updates)
        pids = [child.pid for child in run.children]
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(RoleFailed, match="executor 1 failed: it was ended by SIGKILL"):
            list(updates)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_an_environment_that_raises_is_told_with_its_traceback() -> None:
    """The first error anywhere ends the run, with the role's name and the simulator's own words."""
    world = "env=python:tests.fakes.failing:make?after=5"
    with (
        pytest.raises(RoleFailed, match="executor") as caught,
        running((world,), Machine(executors=2)) as run,
    ):
        list(run)
    assert "the simulator's own words" in str(caught.value)


@pytest.mark.parametrize(("replicas", "executors"), [(1, 1), (7, 3), (16, 16), (5, 4)])
def test_every_replica_has_one_executor(replicas: int, executors: int) -> None:
    """I1: shares are disjoint, complete, in order, and differ by one replica at most."""
    parts = shares(range(replicas), executors)
    assert [replica for part in parts for replica in part] == list(range(replicas))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
