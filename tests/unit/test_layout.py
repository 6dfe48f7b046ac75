"""The automatic layout: what is chosen for which costs, and what it may not touch."""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from hts.bench.costs import Costs
from hts.bench.walks import StepCosts, measure_worlds
from hts.config import PQL, Experiment, Machine
from hts.runtime.assemble import plan
from hts.runtime.layout import Layout, There, auto, choose
from hts_envs.registry import parse

TWO_CORES = There(cores=2)


def costs(
    step: float, *, cpu: float | None = None, answer: float = 1e-6, learning: float = 1e-6
) -> Costs:
    """Steps of this many seconds that compute all the time, or for `cpu` seconds of it."""
    steps = StepCosts(np.full(10, step), step if cpu is None else cpu, 1, ())
    return Costs(steps, {1: answer}, learning)


def chosen(found: Costs | None, there: There = TWO_CORES, **asked: Any) -> Layout:
    experiment = Experiment(
        replicas=asked.pop("replicas", 16), schedule=asked.pop("schedule", "hts")
    )
    return choose(Machine(**asked), experiment, there, found)


def who(layout: Layout) -> tuple[Any, ...]:
    machine = layout.machine
    return (machine.executors, machine.actors, machine.blocks, machine.stepping)


def has_a_thread_each(layout: Layout) -> bool:
    """Whether each of four replicas has a thread; how many executors share them depends on how busy
    this machine was while it was measured."""
    machine = layout.machine
    assert isinstance(machine.executors, int)
    assert isinstance(machine.blocks, int)
    return machine.stepping == "threads" and machine.blocks == -(-4 // machine.executors)


def test_steps_that_compute_share_the_cores() -> None:
    """Football: two executors without actors, for 2.2 + 0.2 ms are longer than learning's 0.9."""
    football = costs(2.2e-3, answer=0.2e-3, learning=0.9e-3)
    assert who(chosen(football)) == (2, 0, 1, "turns")
    assert who(chosen(football, There(cores=8))) == (3, 0, 1, "turns")
    assert who(chosen(football, There(cores=1))) == (1, 0, 1, "turns")


@pytest.mark.parametrize(("cores", "executors"), [(4, 4), (16, 10), (64, 10)])
def test_executors_are_added_until_the_learner_is_slowest(cores: int, executors: int) -> None:
    """Steps of 10 ms and 1 ms of learning: ten executors keep up with it; more would wait."""
    found = chosen(costs(10e-3, learning=1e-3), There(cores=cores), replicas=100)
    assert found.machine.executors == executors


def test_threads_of_the_learner_make_room_for_executors() -> None:
    """Where one learner thread is slowest, two let a second executor pay."""
    found = costs(1e-3, learning=1.2e-3)
    four = There(cores=4)
    assert chosen(found, four).machine.executors == 1
    assert chosen(found, four, learners=2).machine.executors == 2


def test_a_core_each_is_better_than_three_on_two() -> None:
    """A2C on Atari: where an executor takes as long as the learner, neither is cut: with three on
    two cores somebody would have less than a core, and everybody waits for whom that is."""
    atari = costs(0.4e-3, answer=0.24e-3, learning=0.66e-3)
    assert who(chosen(atari)) == (1, 0, 1, "turns")
    assert chosen(atari).machine.learners == 1


def test_in_turn_every_core_steps() -> None:
    """Under sync nobody learns while executors work, so they take all cores."""
    tiny = costs(2e-6, answer=2e-6, learning=18e-6)
    assert who(chosen(tiny)) == (1, 0, 1, "turns")
    assert who(chosen(tiny, schedule="sync")) == (2, 0, 1, "turns")


def test_beside_a_replay_steps_that_wait_get_a_thread_each_too() -> None:
    """Two learners have a core each; what waits needs none, and what computes gets what is left."""
    asked = Experiment(algo=PQL(), replicas=16)
    found = choose(Machine(), asked, TWO_CORES, costs(5e-3, cpu=40e-6))
    assert who(found) == (1, 0, 16, "threads")
    assert who(choose(Machine(), asked, There(cores=4), costs(5e-3))) == (2, 0, 1, "turns")
    sleeper = Experiment(env="sleeper:?control=number&mean=2", algo=PQL(batch=8), replicas=4)
    spec = parse(sleeper.env)
    measure = partial(measure_worlds, spec, sleeper.replicas)
    assert has_a_thread_each(auto(plan(sleeper, spec, "cpu"), spec, Machine(), measure))


def test_steps_that_wait_get_a_thread_each() -> None:
    """Sleeping replicas are blocks of one, in one executor, or in more where that is too busy: in
    two for each core at most."""
    sleeper = costs(5e-3, cpu=40e-6, answer=50e-6)
    found = chosen(sleeper, replicas=8)
    assert who(found) == (1, 0, 8, "threads")
    assert "waits 99%" in found.why
    assert who(chosen(sleeper)) == (2, 0, 8, "threads")
    assert who(chosen(sleeper, replicas=64)) == (4, 0, 16, "threads")


def test_a_batched_world_has_one_executor() -> None:
    """A world that steps all replicas in one call is not cut, whatever it costs."""
    assert who(chosen(None, There(cores=8, batched=True))) == (1, 0, 1, "turns")


def test_a_gpu_has_an_actor() -> None:
    """A network on a GPU answers everybody; blocks are stepped while others are answered."""
    found = chosen(None, There(cores=4, device="cuda:1"))
    assert who(found) == (4, 1, 2, "turns")
    assert "cuda:1" in found.why


def test_never_more_executors_than_replicas() -> None:
    """Three replicas on eight cores have three executors, measured or not."""
    assert chosen(None, There(cores=8), replicas=3).machine.executors == 3
    assert chosen(costs(1.0), There(cores=8), replicas=3).machine.executors == 3


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"executors": 3}, (3, 0, 6, "threads")),
        ({"actors": 2}, (1, 2, 16, "threads")),
        ({"blocks": 4}, (1, 0, 4, "threads")),
        ({"stepping": "turns"}, (2, 0, 1, "turns")),
        ({"stepping": "turns", "actors": 6, "executors": 2}, (2, 6, 3, "turns")),
    ],
)
def test_what_is_asked_for_is_kept(asked: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """Explicit values stand, and the others fit them."""
    assert who(chosen(costs(5e-3, cpu=40e-6), **asked)) == expected


def test_nothing_else_of_the_machine_is_touched() -> None:
    """Learners, barrier, delays and device are as they were."""
    machine = chosen(costs(1e-3), learners=2, barrier=True, jitter=3.0, device="cpu").machine
    assert (machine.learners, machine.barrier, machine.jitter, machine.device) == (
        2,
        True,
        3.0,
        "cpu",
    )


def looked(env: str, **asked: Any) -> Layout:
    """What is chosen for a world that is really there."""
    experiment = Experiment(env=env, replicas=4, rollout=16)
    spec = parse(env)
    measure = partial(measure_worlds, spec, experiment.replicas)
    return auto(plan(experiment, spec, "cpu"), spec, Machine(**asked), measure)


def test_a_sleeper_is_found_out() -> None:
    """A world that sleeps is measured as one that waits."""
    assert has_a_thread_each(looked("sleeper:?mean=5"))


def test_a_burner_is_found_out() -> None:
    """A world that burns as long as the other sleeps is measured as one that computes."""
    found = looked("sleeper:?mean=5&work=burn")
    assert (found.machine.stepping, found.machine.blocks) == ("turns", 1)
    assert re.search(r": per sample: step \S+ ms, inference \S+ ms, learning \S+ ms$", found.why)


def test_nothing_is_measured_where_nothing_is_asked() -> None:
    """Explicit layouts and the serial runner are known without a look at a world that breaks."""
    explicit = {"executors": 1, "actors": 0, "blocks": 2, "stepping": "turns"}
    for asked in (explicit, {"serial": True}):
        found = looked("python:tests.fakes.failing:make?after=2", **asked)
        assert (found.machine, found.why) == (Machine(**asked), "as asked for")


def test_a_world_that_fails_is_left_to_the_run() -> None:
    """What raises while it is measured gets a layout all the same, and the sentence says so."""
    found = looked("python:tests.fakes.failing:make?after=2")
    assert found.machine.stepping == "turns"
    assert "could not be measured" in found.why


def test_only_what_may_be_chosen_otherwise_is_thought_over() -> None:
    """Not where one core leaves no choice, simulators dial in, or one showed another episode the
    second time that it was played."""
    assert chosen(costs(1e-3)).asked == Machine()
    assert chosen(costs(1e-3), There(cores=1)).asked is None
    assert chosen(costs(1e-3), executors=1, learners=1).asked is None
    assert chosen(costs(1e-3), listen="tcp://127.0.0.1:0", remote=1).asked is None
    found = costs(1e-3)
    step = dataclasses.replace(found.step, repeats=False)
    assert chosen(dataclasses.replace(found, step=step)).asked is None
    assert looked("gym:CartPole-v1").asked == Machine()
    assert looked("python:tests.fakes.unsteady:Unsteady").asked is None
