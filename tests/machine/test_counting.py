"""Order and routing through the real machine, without a network: nothing is lost, torn or moved."""

from __future__ import annotations

import dataclasses

import pytest

from hts.config import PPO, Machine, Mlp
from hts.runtime.assemble import plan
from hts.runtime.parallel import ParallelRun
from hts.runtime.shared import Roles
from hts_envs import parse
from tests.fakes.runs import experiment

COUNTING = Roles("tests.fakes.counting_roles:answering", "tests.fakes.counting_roles:Learner")

LAYOUTS = {
    "inline": Machine(executors=2),
    "inline, small blocks": Machine(executors=2, blocks=3),
    "threads": Machine(executors=2, stepping="threads"),
    "one actor": Machine(executors=2, actors=1),
    "three actors, threads": Machine(executors=2, actors=3, stepping="threads"),
    "barrier": Machine(executors=3, actors=2, barrier=True),
}


def observations(env: str, machine: Machine, *, updates: int, replicas: int = 12) -> int:
    """How many observations the learner found to be right."""
    asked = experiment(
        env, replicas=replicas, rollout=40, updates=updates, model=Mlp(), algo=PPO(minibatches=1)
    )
    found = plan(asked, parse(env), "cpu", machine.jitter)
    run = ParallelRun(dataclasses.replace(found, roles=COUNTING), machine)
    try:
        return int([updated.told["observations"] for updated in run][-1])
    finally:
        run.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_keeps_every_observation_in_its_place(layout: str) -> None:
    """Uneven episodes, two agents: actions, rewards, ends and values stand where they belong."""
    counted = observations("counting:?length=13&agents=2", LAYOUTS[layout], updates=12)
    assert counted == 12 * 40 * 12


@pytest.mark.parametrize("layout", ["inline, small blocks", "three actors, threads"])
def test_delays_anywhere_change_nothing(layout: str) -> None:
    """Random delays at every named point, wide observations that take time to write."""
    machine = dataclasses.replace(LAYOUTS[layout], jitter=0.3)
    assert observations("counting:?length=9&width=4000", machine, updates=3) == 3 * 40 * 12


def test_a_million_observations() -> None:
    """A batched world with two actors: more than 2^20 observations, each checked four ways."""
    env, machine = "counting:?length=13&batch=true", Machine(executors=2, actors=2)
    counted = observations(env, machine, updates=27, replicas=1000)
    assert counted == 27 * 40 * 1000 > 2**20
