"""The bench: costs against worlds whose costs are known, and what it says of a real run."""

from __future__ import annotations

import dataclasses
import itertools
import json
import mmap
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from hts.bench.costs import Budget, Costs, cpu_seconds, filled, measure, measure_learning
from hts.bench.limits import limits, slept
from hts.bench.parts import observation_parts
from hts.bench.processes import cpu_seconds_of, cpu_seconds_of_all, family, private_bytes
from hts.bench.throughput import Reading, endless, run_machine
from hts.bench.walks import StepCosts, measure_steps
from hts.cli import bench
from hts.config import PPO, Config, Experiment, Machine, Mlp
from hts.determinism.keys import episode_seed
from hts.machine import SharedArray
from hts.memory.arena import Arena
from hts.runtime.assemble import Plan, plan
from hts_envs.contract import Place
from hts_envs.registry import Spec, make, parse
from hts_envs.sleeper import SleeperWorld

ACTING = ["key", "gather", "network", "sampling", "values", "write", "step", "settings"]
ACTING += ["digest", "book"]
SHORT = Budget(steps=0.05, inference=0.02, learning=0.02)


def steps(env: str, seconds: float = 0.3, replicas: int = 1) -> StepCosts:
    world = make(env, Place(0, replicas, 0))
    try:
        return measure_steps([world], seconds)
    finally:
        world.close()


def planned(env: str = "gym:CartPole-v1", **changes: Any) -> Plan:
    values: dict[str, Any] = {"replicas": 4, "rollout": 16, "algo": PPO(epochs=2, minibatches=2)}
    return plan(Experiment(env=env, **{**values, **changes}), parse(env), "cpu")


def test_a_burning_step_is_all_cpu() -> None:
    """Steps that burn 2 ms of CPU are seen to cost that, to 10 %, and to wait for nothing."""
    found = steps("sleeper:?mean=2&shape=10000&work=burn")
    assert found.cpu == pytest.approx(2e-3, rel=0.1)
    assert found.waiting < 0.1
    assert found.at_once == 1


def test_a_sleeping_step_is_none() -> None:
    """Steps that sleep 5 ms take at least that, and wait for nearly all of it."""
    found = steps("sleeper:?mean=5&shape=10000")
    assert found.mean > 4.9e-3
    assert found.waiting > 0.8


def test_short_steps_are_timed_together() -> None:
    """A step of microseconds is not drowned by the clock: 64 of them are one duration."""
    found = steps("sleeper:?mean=0", 0.1)
    assert found.at_once == 64
    assert 0.2e-6 < found.cpu < 50e-6


def test_a_batched_step_is_shared() -> None:
    """A call that burns 16 times 0.5 ms costs each of the 16 replicas 0.5 ms."""
    found = steps("sleeper:?mean=0.5&shape=10000&work=burn&batch=true", replicas=16)
    assert found.cpu == pytest.approx(0.5e-3, rel=0.2)
    assert found.seen[0]["observation"].shape == (1, 4)


def test_resets_are_part_of_steps() -> None:
    """Where every step is followed by a reset, a step costs more than where none is."""
    ends_at_once, goes_on = (steps(f"sleeper:?mean=0&length={n}", 0.1) for n in (1, 10_000))
    assert ends_at_once.cpu > 1.5 * goes_on.cpu


def test_whether_a_world_shows_the_same_twice_is_seen_however_slow_it_is() -> None:
    """Of one whose step takes longer than there is time, a step is seen all the same."""
    slow = make("sleeper:?mean=20&shape=10000", Place(0, 1, 0))
    assert measure_steps([slow], 0.01).repeats
    unsteady = make("python:tests.fakes.unsteady:make", Place(0, 1, 0))
    assert not measure_steps([unsteady], 0.4).repeats


def test_resets_are_no_more_and_no_less_where_worlds_take_turns() -> None:
    """Of fifty worlds in turn none comes to the end of its episode of two hundred steps, or all do
    at once: what resets cost is what it is where one world goes from end to end."""
    env = "sleeper:?mean=0.1&shape=10000&work=burn&length=200&lengths=fixed"
    worlds = [make(env, Place(first, 1, 0)) for first in range(50)]
    plain = [world.reset for world in worlds]
    for world, reset in zip(worlds, plain, strict=True):
        world.reset = _slow(reset)  # type: ignore[method-assign]
    found = measure_steps(worlds, 0.6)
    assert found.cpu == pytest.approx(0.2e-3, rel=0.2), "0.1 ms, and 20 ms of every 200th"


def _slow(reset: Any) -> Any:
    def burns(seed: int) -> Any:
        until = time.process_time() + 0.02
        while time.process_time() < until:
            pass
        return reset(seed)

    return burns


def test_deviation_and_shape_are_of_single_steps() -> None:
    """Means of 64 exponential steps still tell the deviation of one, to 10 %; so does the shape."""
    drawn = np.random.default_rng(3).exponential(1e-6, (4000, 64)).mean(axis=1)
    found = StepCosts(drawn, 1e-6, 64, ())
    assert found.deviation == pytest.approx(1e-6, rel=0.1)
    assert found.shape == pytest.approx(1.0, rel=0.2)


def test_everything_has_a_cost() -> None:
    """Batches up to all replicas are measured; between two sizes a cost lies between theirs."""
    found = measure(planned(replicas=16), parse("gym:CartPole-v1"), SHORT)
    assert sorted(found.inference) == [1, 4, 8, 16]
    assert found.inference[1] > found.inference[16] > 0
    assert found.answer(6) == pytest.approx((found.answer(4) + found.answer(8)) / 2)
    assert found.answer(1000) == found.answer(16)
    assert found.questions == 1.0
    assert 0 < found.values < found.inference[16], "values of a rollout are computed together"
    assert found.sample(16) == found.step.cpu + found.inference[16] + found.values + found.learning


def test_values_that_share_layers_with_actions_are_asked_with_them() -> None:
    """And one more for each rollout, behind it."""
    found = measure(planned(replicas=16, model=Mlp(shared=True)), parse("gym:CartPole-v1"), SHORT)
    assert found.questions == 1 + 1 / 16, "behind a rollout of 16 steps a value is asked for"
    acting = found.step.cpu + found.inference[16] * found.questions
    assert (found.values, found.acting(16)) == (0.0, acting)


def test_a_part_of_an_update_stands_for_all_of_it() -> None:
    """One minibatch, once, says what a row of the whole update costs, to a factor of two: the
    middle one of three readings."""
    found = planned(replicas=32, rollout=64, algo=PPO(epochs=4, minibatches=4))
    step = steps("gym:CartPole-v1", 0.05)
    shares = [
        measure_learning(found, step, 0.0) / measure_learning(found, step, 1.0) for _ in range(3)
    ]
    assert 0.5 < statistics.median(shares) < 2.0


def test_a_storage_is_filled_with_what_was_seen() -> None:
    """Learning is measured on real observations, one after the other, and on real actions."""
    found, step = planned(), steps("gym:CartPole-v1", 0.05)
    storage = filled(found, step, 16)
    seen = np.stack([each["observation"] for each in step.seen])
    frames = storage.arrays["frames.observation"].reshape(-1, *seen.shape[1:])
    assert np.array_equal(frames[: len(seen)], seen[: len(frames)])
    assert set(storage.action.reshape(-1)) == {0, 1}


def test_the_cpu_time_of_a_call_is_its_own() -> None:
    """A call that sleeps costs next to nothing; one that computes costs what it computes."""
    burnt: list[float] = []

    def burn() -> None:
        begun = time.process_time()
        while time.process_time() < begun + 0.02:
            pass
        burnt.append(time.process_time() - begun)

    cost = cpu_seconds(burn, 0.0)
    assert cost == pytest.approx(burnt[-1], rel=0.2)
    assert cpu_seconds(lambda: time.sleep(0.02), 0.0) < 0.5 * cost


def costs(step: float, cpu: float) -> Costs:
    return Costs(StepCosts(np.full(10, step), cpu, 1, ()), {1: 0.2e-3}, 0.6e-3)


def test_a_task_that_computes_is_limited_by_cores() -> None:
    """1.7 + 0.2 + 0.6 ms of CPU on two cores are 800 steps per second, whoever waits."""
    config = Config(experiment=Experiment(env="gfootball:3v1"))
    found = limits(costs(1.7e-3, 1.7e-3), config, parse("gfootball:3v1"), 2)
    assert found.cpu == found.best == pytest.approx(800)
    assert found.waiting is None


def test_a_task_that_waits_is_limited_by_waiting() -> None:
    """16 sleepers make 2,900 steps per second at best, and fewer with answers and updates."""
    name = "sleeper:?mean=5"
    config = Config(experiment=Experiment(env=name, replicas=16, rollout=16))
    found = limits(costs(5e-3, 0.0), config, parse(name), 4)
    assert found.best == found.waiting == pytest.approx(2900, rel=0.015)
    assert found.expected is not None
    assert found.expected < 0.99 * found.best
    barrier = Config(experiment=config.experiment, machine=Machine(barrier=True))
    assert limits(costs(5e-3, 0.0), barrier, parse(name), 4).best < 0.8 * found.best


def _drawn(spec: Spec, replica: int, steps: int) -> list[float]:
    """By a world that plays, for a run of seed 0."""
    world, found = SleeperWorld(dataclasses.replace(spec.options, mean=0.0)), list[float]()
    asleep = SleeperWorld(spec.options)
    for episode in itertools.count():
        for each in (world, asleep):
            each.reset(episode_seed(0, replica, episode))
        for age in itertools.count():
            if age % 64 == 0:
                asleep._draw(age)
            found.append(asleep._durations[age % 64])
            if len(found) == steps:
                return found
            if world.step(np.zeros((), np.int64)).terminated:
                break
    raise AssertionError("there is always one more episode")


def test_what_a_reading_is_held_to_are_the_steps_that_it_slept() -> None:
    """Another seed draws other steps, and a few thousand of them are a percent longer or shorter:
    the limit is that of the very updates that were read."""
    experiment = Experiment(env="sleeper:?mean=5", replicas=3, rollout=4)
    spec, config = parse(experiment.env), Config(experiment=experiment)
    known = slept(experiment, spec, 1000)
    for replica, steps in enumerate(known):
        np.testing.assert_array_equal(_drawn(spec, replica, 1000), steps)
    reading = Reading(
        100.0, 1.0, 40, since=20, cores=1.0, others=0.0, private={}, storages=0, time=""
    )
    found = limits(costs(5e-3, 0.0), config, spec, 4, reading)
    ready, made = np.zeros(3), [0.0, 0.0]
    for rollout in range(60):
        took = known[:, 4 * rollout : 4 * rollout + 4].sum(axis=1)
        ready = np.maximum(ready, made[rollout]) + took
        made.append(max(float(ready.max()), made[-1]))
    assert found.waiting == pytest.approx(40 * 4 * 3 / (made[61] - made[21]))
    assert limits(costs(5e-3, 0.0), config, spec, 4).waiting != found.waiting


def test_private_memory_leaves_out_what_is_shared() -> None:
    """Twenty megabytes of one's own are counted, sixty of a run's shared memory are not."""
    before = private_bytes(os.getpid())
    own = mmap.mmap(-1, 20 * 2**20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    np.frombuffer(own, np.uint8).fill(1)  # nothing of it from the heap, which keeps what is freed
    arena = Arena.create([[SharedArray("all", (60 * 2**20,), "uint8", "all", "all")]])
    arena.arrays([SharedArray("all", (60 * 2**20,), "uint8", "all", "all")])["all"][:] = 1
    grown = private_bytes(os.getpid()) - before
    assert len(own) <= grown + 2**20
    assert grown < 40 * 2**20


def test_the_kernel_counts_our_cpu() -> None:
    """Burning a fifth of a second is seen in our own time and in everybody's."""
    assert family(os.getpid())[0] == os.getpid()
    mine, all_ = cpu_seconds_of([os.getpid()]), cpu_seconds_of_all()
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    assert cpu_seconds_of([os.getpid()]) - mine == pytest.approx(0.2, abs=0.05)
    assert cpu_seconds_of_all() - all_ > 0.15


def reading(seconds: float = 0.6) -> Reading:
    found = planned("sleeper:?mean=1&shape=10000")
    found = plan(endless(found.experiment), parse(found.experiment.env), "cpu")
    return run_machine(found, Machine(serial=True), seconds)


def test_a_running_machine_is_read_in_the_middle() -> None:
    """Four replicas that sleep a millisecond in turn make fewer than 1,000 steps a second."""
    found = reading()
    assert 0 < found.steps_per_second < 1000
    assert found.updates == pytest.approx(found.steps_per_second * found.seconds / 64)
    assert found.updates >= 1
    assert found.storages > 2 * 4 * 17 * 4 * 4
    assert list(found.private) == ["this process"]


def test_a_sample_is_taken_apart() -> None:
    """The parts are those that the module lists, and each of the real ones takes time."""
    found, step = planned("sleeper:?mean=0"), steps("sleeper:?mean=0", 0.05)
    parts = observation_parts(found, parse("sleeper:?mean=0"), step, 0.4)
    assert list(parts) == [*ACTING, "learning"]
    assert all(
        parts[name] > 0 for name in ("key", "network", "sampling", "settings", "digest", "learning")
    )


def test_the_command_prints_one_object() -> None:
    """Costs, limits and reading of every combination come out as JSON that adds up."""
    asked = ["--config", "smoke", "--set", "serial=true", "--rollout", "16", "--seconds", "1"]
    asked += ["--schedule", "hts,hts_barrier"]
    command = [sys.executable, "-m", "hts.cli.bench", *asked, "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    ran = [(each["experiment"]["rollout"], each["schedule"]) for each in said["outcomes"]]
    assert (said["format"], ran) == (1, [(16, "hts"), (16, "hts_barrier")])
    for each in said["outcomes"]:
        assert each["ratio"] == each["reading"]["steps_per_second"] / each["limits"]["best"]
        assert 0 < each["ratio"] < 1.2
        crowded = each["limits"]["crowded"]
        assert crowded is None or 0 < crowded < 4 * each["limits"]["cpu"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (["fotball"], "did you mean 'football'?"),
        (["--seconds", "never"], "--seconds: must be a number from 1 to 1000000, not 'never'"),
        (["sleeper", "--executors", "1,many"], "--executors: must be auto or a whole number"),
        (["sleeper", "--schedule", "hts,hst"], "must be hts, hts_barrier or sync, not 'hst'"),
        (["ppo-cartpole"], "did you mean '--config ppo-cartpole'?"),
        ([], "no environment is named; add --env gym:CartPole-v1"),
    ],
)
def test_wrong_usage_is_told(
    asked: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be run is said before anything is measured, and the exit code is 2."""
    assert bench.main(asked) == 2
    assert sentence in capsys.readouterr().err
