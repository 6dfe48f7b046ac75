"""Simulators that raise, hang or die in a run: tried once more, written down, and named."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hts.bench.processes import family
from hts.cli import check
from hts.config import PPO, Experiment, Machine
from hts.errors import RoleFailed
from hts.runtime.assemble import Updated, plan
from hts.runtime.parallel import ParallelRun
from hts.soundness.case import Case, Kind
from hts_envs import parse
from tests.fakes.births import is_born
from tests.fakes.flaky import FAULTS, faults
from tests.fakes.once import MARK
from tests.fakes.runs import experiment, outcome

TURNS = Machine(executors=2, actors=0, blocks=1, stepping="turns")
LAYOUTS = {
    "turns": TURNS,
    "threads": Machine(executors=1, actors=1, blocks=4, stepping="threads"),
    "in a moment": dataclasses.replace(TURNS, step_limit=0.5, patience=0.3),
}


def failing(how: str, **changes: int) -> Experiment:
    """Four replicas of a world that breaks once, in its seventeenth step."""
    name = f"python:tests.fakes.once:make?how={how}"
    return experiment(name, rollout=8, updates=6, algo=PPO(minibatches=1), **changes)


def run_of(asked: Experiment, machine: Machine, cases: Path) -> tuple[list[Updated], ParallelRun]:
    """The whole run, ended."""
    found = dataclasses.replace(plan(asked, parse(asked.env), "cpu"), cases=cases)
    run = ParallelRun(found, machine)
    try:
        return list(run), run
    finally:
        run.close()


@pytest.mark.parametrize(
    ("how", "layout", "words"),
    [
        ("raises", "turns", "RuntimeError: the engine has lost the ball 16"),
        ("raises", "threads", "RuntimeError: the engine has lost the ball 16"),
        ("exits", "turns", "it ended with exit code 3"),
        ("dies", "threads", "it was ended by SIGSEGV"),
        ("hangs", "in a moment", "it was ended by SIGKILL"),
    ],
)
def test_what_fails_once_costs_nothing(
    how: str,
    layout: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The executor is replaced, its simulators are rebuilt: the same updates and episodes, and a
    case that shows how it failed."""
    mark = tmp_path / "broken"
    monkeypatch.setenv(MARK, str(mark))
    asked = failing(how)
    mark.touch()
    expected = outcome(asked)
    mark.unlink()
    told, run = run_of(asked, LAYOUTS[layout], tmp_path / "cases")
    assert [u.link for u in told] == [u.link for u in expected]
    assert [u.episodes for u in told] == [u.episodes for u in expected]
    (line,) = run.replaced
    assert words in line
    assert run.marks == []
    cases = [Case.read(path) for path in (tmp_path / "cases").iterdir()]
    assert {case.failure.kind for case in cases} == {Kind(how if how != "exits" else "dies")}
    assert any(16 in case.age for case in cases), "that is when it broke"


@pytest.mark.parametrize("layout", ["turns", "threads"])
@pytest.mark.parametrize("kind", ["make", "batch"])
def test_what_raises_in_a_rebuild_costs_nothing(
    kind: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replica 2 raises in a step, then twice while it is rebuilt, in two other steps: the same
    rollouts and episodes, no mark, and the place of each failure."""
    monkeypatch.setenv(FAULTS, str(tmp_path))

    def asked(steps: str) -> Experiment:
        name = f"python:tests.fakes.flaky:{kind}?steps={steps}"
        return experiment(name, rollout=8, updates=6, algo=PPO(minibatches=1))

    expected = outcome(asked(""))
    told, run = run_of(asked("17.9.4"), LAYOUTS[layout], tmp_path / "cases")
    assert [u.link.rollout for u in told] == [u.link.rollout for u in expected]
    assert [u.episodes for u in told] == [u.episodes for u in expected]
    assert faults(tmp_path, "spawned") == len(run.replaced) == 3
    for line, ball in zip(run.replaced, (16, 8, 3), strict=True):
        assert f"the engine has lost the ball {ball}" in line
        assert line.endswith("which it had passed before)") == (ball != 16)
    assert run.marks == []


def test_what_fails_again_ends_the_run_and_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same step raises twice: its traceback, and a file that lets it raise a third time."""
    asked = experiment("python:tests.fakes.breaking:make?how=raises&step=12&action=one", rollout=8)
    with pytest.raises(RoleFailed, match="the engine has lost the ball 11") as caught:
        run_of(asked, dataclasses.replace(TURNS, executors=1), tmp_path / "cases")
    assert "Traceback" in str(caught.value)
    (path,) = (tmp_path / "cases").iterdir()
    assert f"hts-check --replay {path}" in str(caught.value)
    place = f"{re.escape(str(path))} lets it fail again"
    short = rf"replica \d, step 12 of episode \d+: .*lost the ball 11; hts-check --replay {place}"
    assert re.fullmatch(short, caught.value.short)
    assert check.main(["--replay", str(path)]) == 1
    said = capsys.readouterr().out
    assert "the engine has lost the ball 11" in said


def test_what_hangs_again_ends_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Longer than the user allows, twice in one step: the run ends, and says in which line."""
    asked = experiment("python:tests.fakes.breaking:make?how=hangs&step=12&action=one", rollout=8)
    machine = dataclasses.replace(TURNS, step_limit=0.5, patience=0.0)
    with pytest.raises(RoleFailed, match=r"take step 3 of rollout 1 .* for the second time"):
        run_of(asked, machine, tmp_path / "cases")
    assert "hts-check --replay" in capfd.readouterr().err
    case = Case.read(next((tmp_path / "cases").iterdir()))
    assert "breaking.py" in case.failure.words
    assert "in _break" in case.failure.words


@pytest.mark.parametrize("role", ["executor 1", "actor 0", "learner"])
def test_it_is_said_who_is_waited_for(role: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A process that is stopped is named with what it had to do, once, and is not killed; when it
    goes on, the run goes on."""
    asked = experiment(updates=40)
    machine = Machine(executors=2, actors=1, patience=0.4, blocks=1, stepping="turns")
    run = ParallelRun(plan(asked, parse(asked.env), "cpu"), machine)
    try:
        updates = iter(run)
        next(updates)
        (pid,) = [child.pid for child in run.children if child.name == role]
        os.kill(pid, signal.SIGSTOP)
        waker = subprocess.Popen(
            [sys.executable, "-c", f"import os, time; time.sleep(3); os.kill({pid}, 18)"]
        )
        count = len(list(updates))
        assert waker.wait() == 0
    finally:
        run.close()
    assert count == 39
    assert run.replaced == []
    said = capfd.readouterr().err
    told = re.findall(f"hts: {role} has had to .*; it is stopped .SIGCONT lets it go on", said)
    assert len(told) == 1, said


def test_a_slow_simulator_is_shown_and_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """A step of a second, half a second of patience: its stack is told, and it may take its
    time."""
    asked = experiment(
        "sleeper:?mean=1000&shape=1000",
        replicas=1,
        rollout=2,
        updates=1,
        shards=1,
        algo=PPO(epochs=1, minibatches=1),
    )
    machine = Machine(executors=1, actors=0, blocks=1, stepping="turns", patience=0.4)
    run = ParallelRun(plan(asked, parse(asked.env), "cpu"), machine)
    try:
        assert len(list(run)) == 1
    finally:
        run.close()
    said = capfd.readouterr().err
    assert "executor 0 has had to take step 0 of rollout 0 of replica 0" in said
    assert "it is waiting:" in said
    assert "sleeper.py" in said


def kill_newborn(times: int) -> threading.Thread:
    """Kill so many of this process's next children, each as soon as it is there."""

    def kill() -> None:
        seen = {pid for pid in family(os.getpid()) if is_born(pid)}
        ready.set()
        for _ in range(times):
            while not (new := {pid for pid in family(os.getpid()) if is_born(pid)} - seen):
                pass
            os.kill(min(new), signal.SIGKILL)
            seen |= new

    ready = threading.Event()
    thread = threading.Thread(target=kill)
    thread.start()
    ready.wait()
    return thread


def test_who_dies_while_it_starts_is_started_again() -> None:
    """Killed before it is ready: another one starts in its place."""
    asked = experiment(updates=3)
    found = plan(asked, parse(asked.env), "cpu")
    thread = kill_newborn(1)
    run = ParallelRun(found, Machine(executors=1, actors=0, blocks=1, stepping="turns"))
    try:
        assert [u.link for u in run] == [u.link for u in outcome(asked)]
    finally:
        run.close()
        thread.join()
    (line,) = run.replaced
    assert line == "executor 0 failed: it was ended by SIGKILL"
