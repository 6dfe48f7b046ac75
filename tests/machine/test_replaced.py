"""Whoever is killed is replaced: the digest and the episodes are those that would have been."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hts.config import A2C, PPO, Conv, Experiment, Machine
from hts.runtime.assemble import Updated, plan
from hts.runtime.parallel import ParallelRun
from hts_envs import parse
from tests.fakes.long import FATAL, LENGTH, MARKS
from tests.fakes.runs import experiment, outcome

LEARNING = PPO(epochs=2, minibatches=1)

CASES: dict[str, Experiment] = {
    "episodes longer than both storages": experiment(
        "sleeper:?mean=1&length=60", replicas=4, rollout=8, updates=30, frame_stack=3
    ),
    "a batched world": experiment(
        "sleeper:?mean=1&length=40&batch=true", replicas=6, rollout=8, updates=60
    ),
    "recurrent, both normalisers": experiment(
        "gym:Pendulum-v1",
        algo=LEARNING,
        rollout=32,
        updates=30,
        recurrent="gru",
        recurrent_units=8,
        normalise_observations=True,
        normalise_rewards=True,
    ),
}

LAYOUTS = {
    "inline": Machine(executors=2, stepping="turns"),
    "inline, threads": Machine(executors=1, stepping="threads"),
    "actors and threads": Machine(executors=2, actors=1, stepping="threads"),
    "barrier": Machine(executors=1, actors=2, barrier=True, stepping="turns"),
}


@dataclass
class Told:
    """What a run said, and who was replaced in it."""

    updates: list[Updated]
    replaced: list[str]
    marks: list[str]


def disturbed(
    asked: Experiment, machine: Machine, disturb: Callable[[ParallelRun, int], Any]
) -> Told:
    """The whole run; `disturb` is called after every update, while everybody works on."""
    run = ParallelRun(plan(asked, parse(asked.env), "cpu"), machine)
    updates = []
    try:
        for updated in run:
            updates.append(updated)
            disturb(run, len(updates))
        return Told(updates, run.replaced, run.marks)
    finally:
        run.close()


def kill(run: ParallelRun, name: str) -> None:
    (pid,) = [child.pid for child in run.children if child.name == name]
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_every_role_is_killed_and_nothing_is_lost(case: str, layout: str) -> None:
    """Each role in turn, some updates apart, the learner twice: digests, metrics and episodes."""
    asked, machine = CASES[case], LAYOUTS[layout]
    expected = outcome(asked)
    names = ["executor 0", "learner", *(["actor 0"] if machine.actors != "auto" else []), "learner"]
    at = {3 + 6 * place: name for place, name in enumerate(names)}

    def disturb(run: ParallelRun, update: int) -> None:
        if update in at:
            kill(run, at[update])

    found = disturbed(asked, machine, disturb)
    assert [u.link for u in found.updates] == [u.link for u in expected]
    assert [u.told for u in found.updates] == [u.told for u in expected]
    assert [u.episodes for u in found.updates] == [u.episodes for u in expected]
    assert [line.split(" failed")[0] for line in found.replaced] == names


def test_everybody_is_killed_at_once() -> None:
    """All five processes together: what is left is the shared memory and what was heard."""
    asked = CASES["episodes longer than both storages"]
    machine = LAYOUTS["actors and threads"]

    def disturb(run: ParallelRun, update: int) -> None:
        if update == 7:
            for child in run.children:
                os.kill(child.pid, signal.SIGKILL)

    found = disturbed(asked, machine, disturb)
    assert [u.link for u in found.updates] == [u.link for u in outcome(asked)]
    assert len(found.replaced) == 4


@pytest.mark.parametrize(
    ("world", "told", "most"),
    [
        ("Long", "from snapshots", 2 * (256 + 64)),
        ("Misremembering", "from the start of their episodes", 2 * LENGTH),
        ("Refusing", "from the start of their episodes", 2 * LENGTH),
    ],
)
def test_the_shorter_way_back_is_taken_and_told(
    world: str,
    told: str,
    most: int,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed deep in long episodes, in the middle of a step: from the latest snapshots; what comes
    back wrong from one comes back from its episode's begin. The run is that of nobody killed."""
    asked = experiment(
        f"python:tests.fakes.long:{world}", replicas=4, rollout=64, updates=27, shards=1
    )
    expected = outcome(asked)
    monkeypatch.setenv(MARKS, str(tmp_path))
    found = disturbed(asked, Machine(executors=2, stepping="turns"), lambda _run, _update: None)
    assert [u.link for u in found.updates] == [u.link for u in expected]
    assert [u.episodes for u in found.updates] == [u.episodes for u in expected]
    assert any(u.episodes for u in expected), "with what the whole episode says at its end"
    said = capfd.readouterr().err
    steps = re.findall(
        rf"hts: executor \d: \d replicas? restored {told}; (.*) steps replayed", said
    )
    assert len(steps) == len(FATAL), said
    assert all(int(each.replace(",", "")) <= most for each in steps)


def test_atari_games_come_back_from_snapshots(capfd: pytest.CaptureFixture[str]) -> None:
    """The real emulator, in the middle of a game that is longer than that, stepped in a thread."""
    asked = experiment(
        "atari:Pong", replicas=1, rollout=128, updates=4, shards=1, model=Conv(), algo=A2C()
    )

    def disturb(run: ParallelRun, update: int) -> None:
        if update == 3:
            kill(run, "executor 0")

    found = disturbed(asked, Machine(executors=1, stepping="threads"), disturb)
    assert [u.link for u in found.updates] == [u.link for u in outcome(asked)]
    assert "1 replica restored from snapshots; " in capfd.readouterr().err


def test_a_simulator_that_cannot_be_repeated_is_found_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Rebuilt from the same seed and actions, its seventh step is another: the run says so, cuts
    that episode short, and goes on. A kill in the first third of an episode finds nothing."""
    asked = experiment("python:tests.fakes.unsteady:make", replicas=2, rollout=8, updates=60)

    def disturb(run: ParallelRun, update: int) -> None:
        if update % 10 == 3:
            kill(run, "executor 0")

    found = disturbed(asked, Machine(executors=1, stepping="turns"), disturb)
    assert len(found.updates) == 60
    assert found.marks
    said = capfd.readouterr().err
    for mark in found.marks:
        assert re.match(r"replica [01] cannot be rebuilt: after step 7 of episode \d+ it ", mark)
        assert f"hts: {mark}; its next episode begins, and the digest is marked" in said
    episodes = [episode for u in found.updates for episode in u.episodes]
    assert {episode.replica for episode in episodes} == {0, 1}, "both go on with whole episodes"
    assert all(episode.facts["length"] == 21 for episode in episodes)


def test_a_game_that_goes_on_between_episodes_cannot_be_rebuilt() -> None:
    """Where a lost life ends an episode, its seed says too little: its replicas begin again."""
    asked = experiment(
        "atari:Breakout?life_loss=terminates",
        replicas=2,
        rollout=8,
        updates=9,
        model=Conv(),
        shards=1,
    )

    def disturb(run: ParallelRun, update: int) -> None:
        if update == 3:
            kill(run, "executor 0")

    found = disturbed(asked, Machine(executors=1, stepping="turns"), disturb)
    assert len(found.updates) == 9
    assert len(found.marks) == 2
    assert all("its world has no seed for each episode" in mark for mark in found.marks)
