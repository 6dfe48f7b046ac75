"""How runs end: killed, interrupted, failed; with a name, and nothing left behind."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hts.config import PPO, Experiment, Machine
from hts.errors import RoleFailed
from hts.roles.blocks import Episode
from hts.runtime.assemble import plan
from hts.runtime.parallel import ParallelRun
from hts.runtime.shared import Roles
from hts_envs import parse
from tests.fakes.births import children_of, nurseries
from tests.fakes.runs import experiment
from tests.limits import HANG

ENDLESS = experiment(updates=10**6)
EVERYBODY = Machine(executors=2, actors=2, replacements=0)


@contextmanager
def running(
    asked: Experiment, machine: Machine, roles: Roles | None = None
) -> Iterator[ParallelRun]:
    """A run in processes; afterwards nobody is left."""
    found = plan(asked, parse(asked.env), "cpu")
    run = ParallelRun(dataclasses.replace(found, roles=roles or Roles()), machine)
    pids = [child.pid for child in run.children]
    try:
        yield run
    finally:
        run.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("role", ["executor 0", "actor 1", "learner"])
def test_whoever_is_killed_ends_the_run_with_its_name(role: str) -> None:
    """Rule 35: the kernel's kill of any process, in the middle of a run."""
    with running(ENDLESS, EVERYBODY) as run:
        updates = iter(run)
        next(updates)
        (pid,) = [child.pid for child in run.children if child.name == role]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RoleFailed, match=f"^{role} failed: it was ended by SIGKILL$"):
            list(updates)


def held() -> tuple[int, int]:
    """How many files this process has open, and how many pieces of a run's memory it has mapped."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    return len(os.listdir("/proc/self/fd")), maps.count("memfd:hts")


def test_whoever_starts_many_runs_keeps_nothing_of_them() -> None:
    """Rule 35: files, doorbells, pipes and memory of a run are gone with it, so that a comparison
    of twenty layouts needs the memory of one; the first one starts a helper that stays."""

    def run_once() -> None:
        with running(experiment(updates=1), EVERYBODY) as run:
            list(run)

    run_once()
    before = held()
    run_once()
    assert held() == before


def test_what_an_actor_raises_ends_the_run() -> None:
    """Rule 35: with the role's name, its traceback, and its own words in short."""
    roles = Roles(answering="tests.fakes.telling_roles:failing")
    with pytest.raises(RoleFailed) as caught, running(ENDLESS, EVERYBODY, roles) as run:
        list(run)
    assert str(caught.value).startswith("actor ")
    assert "Traceback" in str(caught.value)
    assert caught.value.short.endswith(" failed: ArithmeticError: the actor's own words")


def test_what_the_learner_raises_ends_the_run() -> None:
    """Rule 35: parameters that are not finite, made in another process."""
    steep = dataclasses.replace(ENDLESS, algo=PPO(learning_rate=1e38, minibatches=2))
    with pytest.raises(RoleFailed) as caught, running(steep, EVERYBODY) as run:
        list(run)
    assert str(caught.value).startswith("learner failed: Traceback")
    assert "update 1 made parameters that are not finite" in caught.value.short


@pytest.mark.parametrize(
    "machine",
    [Machine(executors=2, actors=1, stepping="turns"), Machine(executors=2, stepping="threads")],
    ids=["turns", "threads"],
)
def test_what_a_simulator_raises_ends_the_run(machine: Machine) -> None:
    """Rules 6 and 35: also where it was stepped by a thread of its executor. Its episode has not
    ended: nothing was learnt from the rollout that it broke, and no end was made up."""
    asked = dataclasses.replace(ENDLESS, env="python:tests.fakes.failing:make?after=20")
    episodes: list[Episode] = []
    updates = 0

    def follow() -> None:
        nonlocal updates
        for updated in run:
            updates += 1
            episodes.extend(updated.episodes)

    with pytest.raises(RoleFailed) as caught, running(asked, machine) as run:
        follow()
    assert str(caught.value).startswith("executor ")
    assert "the simulator's own words" in str(caught.value)
    assert updates <= 1, "of 16 steps are rollouts, and the 21st step failed"
    assert episodes == []


def test_a_simulator_that_cannot_be_built_ends_the_run_before_it_begins() -> None:
    """Rule 35: the processes that were started already are ended too."""
    asked = dataclasses.replace(ENDLESS, env="python:tests.fakes.failing:absent")
    before = children_of(os.getpid())
    with pytest.raises(RoleFailed, match="no licence for a fourth engine") as caught:
        ParallelRun(plan(asked, parse(asked.env), "cpu"), EVERYBODY)
    assert str(caught.value).startswith("executor 1 failed")
    assert children_of(os.getpid()) <= before | nurseries(os.getpid())


def everybody_ends(descriptors: list[int]) -> bool:
    """Wait for the ends of these processes, which are not our children."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    left = set(descriptors)
    while left:
        ended = waiting.poll(60_000)
        if not ended:
            return False
        for descriptor, _ in ended:
            waiting.unregister(descriptor)
            left.discard(descriptor)
    return True


@contextmanager
def command(path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """`hts-train` in processes of every kind, in the middle of its run, as a terminal starts it:
    it leads a group of processes. With descriptors that tell when its children have ended."""
    world = "python:tests.fakes.small_worlds:Announcing"
    machine = ("--executors", "2", "--actors", "1", "--set", "stepping=threads")
    typed = ("--config", "smoke", "--env", world, "--steps", "1e9", *machine)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "hts.cli.train", *typed, "--run-dir", str(path)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "step 300 is played" in line:
            break
    pids = children_of(process.pid)
    helpers = nurseries(process.pid)
    descriptors = [os.pidfd_open(pid) for pid in pids]
    try:
        assert len(pids - helpers) == 4, "two executors, an actor, the learner"
        for pid in pids - helpers:
            maps = Path(f"/proc/{pid}/maps").read_text()
            assert "memfd:hts (deleted)" in maps, "they share memory without a name"
            assert "/dev/shm/" not in maps
        yield process, descriptors
    finally:
        process.kill()
        process.communicate()
        for descriptor in descriptors:
            os.close(descriptor)


def test_nobody_outlives_a_killed_run(tmp_path: Path) -> None:
    """Rule 35: SIGKILL of the process that started the others, which it cannot tell anybody; they
    end, and with them the memory that has no name."""
    with command(tmp_path / "run") as (process, descriptors):
        process.kill()
        assert everybody_ends(descriptors)
    assert process.returncode == -signal.SIGKILL


def test_a_terminal_s_interruption_ends_everybody_once(tmp_path: Path) -> None:
    """Rule 35: Ctrl-C reaches every process of the group; one of them answers it, with a record
    and without a traceback, and all end."""
    with command(tmp_path / "run") as (process, descriptors):
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=HANG)
        assert everybody_ends(descriptors)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert said.count("hts-train: interrupted: digest") == 1
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "interrupted"
