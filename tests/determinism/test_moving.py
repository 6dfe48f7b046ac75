"""A run that `auto` moves to another layout is the run that stayed where it was."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hts.config import PPO, Experiment, Machine, configure
from hts.errors import RoleFailed
from hts.report.vitals import Setting
from hts.runtime import moving
from hts.runtime.assemble import Plan, Updated, plan
from hts.runtime.layout import Layout, Work
from hts.runtime.moving import MovingRun, Seen, Thoughts
from hts.runtime.parallel import ParallelRun
from hts.runtime.process import Child
from hts.runtime.train import DONE, FAILED, train
from hts.runtime.vitals import Crewed, Look, _shares
from hts_envs import parse
from tests.determinism.test_resume import CASES
from tests.fakes.runs import experiment, outcome

ASKED = Machine(revise=0.3)
COUNTED = dataclasses.replace(
    ASKED, executors=1, actors=0, learners=1, blocks=1, stepping="turns", jitter=1.0
)
BURNING = experiment(
    "sleeper:?mean=1&shape=10000&work=burn&length=50",
    algo=PPO(epochs=1, minibatches=1),
    replicas=4,
    rollout=16,
    updates=30,
    shards=4,
)


def thoughts(**changes: Any) -> Thoughts:
    layout = Layout(COUNTED, "", dataclasses.replace(ASKED, **changes))
    return Thoughts(layout, Experiment(replicas=16, shards=4), 2)


def seen(counts: tuple[int, int], seconds: float, acting: float, learning: float) -> Seen:
    return Seen(counts, seconds, Work(lambda _: acting, learning))


def test_what_would_be_a_tenth_faster_is_wanted() -> None:
    """Where executors are what is waited for, more of them; where the learner is, its threads: the
    time in which three share two cores, and the rest of the longer work."""
    three_on_two = (1.0 * 1.5 + 2.0 - 1.0) * (1.0 + 0.15 / 4)
    assert thoughts().better(seen((1, 1), 4.0, 4.0, 1.0)) == ((2, 1), pytest.approx(three_on_two))
    assert thoughts().better(seen((1, 1), 4.0, 1.0, 4.0)) == ((1, 2), pytest.approx(three_on_two))
    assert thoughts().better(seen((1, 1), 1.0, 1.0, 0.95)) is None
    assert thoughts().better(seen((2, 1), three_on_two, 4.0, 1.0)) is None


def test_what_was_asked_for_is_kept() -> None:
    """An explicit number is nobody's to change."""
    assert thoughts(executors=1, learners=1).better(seen((1, 1), 4.0, 4.0, 1.0)) is None
    found = thoughts(executors=1).better(seen((1, 1), 4.0, 1.0, 4.0))
    assert found is not None
    assert found[0] == (1, 2)


def test_what_was_tried_is_remembered() -> None:
    """What is slower than what was before it is left again, and not taken soon, also where
    everything has become ten times as slow meanwhile; but it is not held against it for ever."""
    asked = thoughts(learners=1)
    found = asked.better(seen((1, 1), 4.0, 4.0, 1.0))
    assert found is not None
    assert found[0] == (2, 1)
    assert asked.better(seen((2, 1), 50.0, 40.0, 10.0)) == ((1, 1), pytest.approx(40.0))
    assert asked.better(seen((1, 1), 40.0, 40.0, 10.0)) is None
    again = [asked.better(seen((1, 1), 40.0, 40.0, 10.0)) for _ in range(8)]
    assert again[0] is None
    assert again[-1] is not None


def test_nothing_follows_from_a_look_that_was_too_short() -> None:
    """Where no tick of the clock was counted, nobody knows what a sample costs."""
    assert thoughts().better(seen((1, 1), 1.0, 0.0, 0.0)) is None


def burning(jitter: float = 0.0) -> MovingRun:
    """One executor on two cores, which is what everybody waits for."""
    found = plan(BURNING, parse(BURNING.env), "cpu", jitter)
    return MovingRun(found, Layout(COUNTED, "", ASKED), 2)


def assert_undisturbed(told: list[Updated], asked: Experiment) -> None:
    """What was told is what a run tells that stays in one process."""
    expected = outcome(asked)
    assert [update.link for update in told] == [update.link for update in expected]
    assert [update.told for update in told] == [update.told for update in expected]
    assert [update.episodes for update in told] == [update.episodes for update in expected]


def mapped() -> int:
    """How many runs' memory this process sees."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(line.endswith("/memfd:hts (deleted)") for line in lines)


@pytest.fixture
def _moves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little is left to be saved."""
    monkeypatch.setattr(moving, "_SAVED", 0.0)


@pytest.mark.usefixtures("_moves_at_once")
def test_a_run_that_moves_tells_what_one_that_stays_tells() -> None:
    """Executors are slowest, so there are soon two of them: the same updates, metrics, episodes."""
    run = burning(jitter=1.0)
    try:
        told = list(run)
        assert "1 executor and 1 learner thread became 2 executors" in run.moved[0]
        assert not run.marks + run.replaced
    finally:
        run.close()
    assert_undisturbed(told, BURNING)


@pytest.fixture
def _moves_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """To one executor or two, whatever is seen."""

    def other(_: Thoughts, found: Seen) -> tuple[tuple[int, int], float]:
        return (3 - found.counts[0], 1), 0.0

    monkeypatch.setattr(Thoughts, "better", other)
    monkeypatch.setattr(moving, "_SAVED", 0.0)


@pytest.mark.usefixtures("_moves_always")
@pytest.mark.parametrize(
    "case", ["recurrent, both normalisers", "in turn", "long episodes, from snapshots"]
)
def test_whatever_is_remembered_moves_along(case: str) -> None:
    """States of cells, statistics, optimisers, and the snapshots of simulators: there and back
    again, with executors that are killed where the run has gone to."""
    asked = CASES[case]
    found = plan(asked, parse(asked.env), "cpu", 2.0)
    layout = dataclasses.replace(COUNTED, revise=0.02)
    run, told, killed = MovingRun(found, Layout(layout, "", ASKED), 2), [], 0
    try:
        for updated in run:
            told.append(updated)
            if len(run.moved) > killed:
                killed += 1
                os.kill(run.crewed().pids()[0], signal.SIGKILL)
        assert len(run.moved) >= 2
        assert len(run.replaced) >= 1
        assert not run.marks
    finally:
        run.close()
    assert_undisturbed(told, asked)


@pytest.mark.usefixtures("_moves_at_once")
def test_nobody_moves_any_more_where_simulators_stayed_away() -> None:
    """Also where it was wanted before that: more of them might stay away."""
    run = burning()
    try:
        for updated in itertools.islice(run, 4):
            if updated.link.update == 1:
                run._wanted = moving._Wanted((2, 1), 1.0, 0.0)
                run._marks.append("replica 0 cannot be rebuilt")
        assert run.moved == []
    finally:
        run.close()


@pytest.mark.usefixtures("_moves_at_once")
def test_a_run_that_is_stopped_on_its_way_stands_where_it_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C between two layouts loses nothing: what stands there goes on to the same digest."""
    run = burning()

    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(moving, "ParallelRun", stopped)
    with pytest.raises(KeyboardInterrupt):
        list(run)
    standing = run.standing()
    assert standing is not None
    assert not list(run.rest())
    assert run.chain == standing.chain
    assert run.moved == []
    run.close()
    other = ParallelRun(plan(BURNING, parse(BURNING.env), "cpu"), COUNTED, standing)
    try:
        told = [update.link for update in other]
    finally:
        other.close()
    assert told == [update.link for update in outcome(BURNING)][standing.updates :]


@pytest.mark.usefixtures("_moves_at_once")
@pytest.mark.parametrize("ended", [0, 1])
def test_a_run_that_is_stopped_while_it_leaves_ends_everybody(
    ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was not ended yet when somebody asked for a second time is ended by `close`."""
    run = burning()
    end, pids, asked = Child.end, run.crewed().pids(), 0

    def interrupted(child: Child) -> None:
        nonlocal asked
        asked += 1
        if asked == ended + 1:
            raise KeyboardInterrupt
        end(child)

    monkeypatch.setattr(Child, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(run)
    assert run.standing() is not None
    assert [os.path.exists(f"/proc/{pid}") for pid in pids] == [not ended, True]
    run.close()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.mark.usefixtures("_moves_at_once")
def test_a_run_that_cannot_move_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody asked for a move, so one that fails is no end: the same digest, and no second try. Nor
    does anybody who comes need more memory than who leaves: that of two is nowhere held."""
    gc.collect()
    before, asked = mapped(), list[tuple[object, int]]()
    run, assign = burning(), ParallelRun._assign

    def seated(*given: Any) -> ParallelRun:
        asked.append((given[1].executors, mapped() - before))
        return ParallelRun(*given)

    def sometimes(self: ParallelRun, found: Plan, machine: Machine) -> Any:
        if machine.executors == 2:
            raise RoleFailed("executor 1", "Traceback:\n  somewhere\nno room for two")
        return assign(self, found, machine)

    monkeypatch.setattr(moving, "ParallelRun", seated)
    monkeypatch.setattr(ParallelRun, "_assign", sometimes)
    try:
        told = [update.link for update in run]
    finally:
        run.close()
    assert asked == [(2, 0), (1, 0)]
    assert run.moved == []
    said = "could not change: executor 1 failed: no room for two\n"
    assert said in capsys.readouterr().err
    assert told == [update.link for update in outcome(BURNING)]


@pytest.mark.usefixtures("_moves_at_once")
def test_hts_train_moves_where_a_run_costs_more_than_random_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A game that is slow for those who play it well: one executor is chosen, there are two in the
    end, and the digest is that of a run that had one all the time."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    common = (
        *("env=python:tests.fakes.growing:make?ms=1", "algo=ppo", "replicas=8", "rollout=16"),
        *("steps=6400", "minibatches=1", "learning_rate=3e-3", "evaluate_every=0", "log=none"),
    )
    digests = []
    for name, sets in (("moved", ["revise=0.5"]), ("stayed", ["executors=1", "learners=1"])):
        assert train(configure(None, [*common, *sets]), tmp_path / name, "quiet") == 0
        result = json.loads((tmp_path / name / "result.json").read_text())
        digests.append(result["digest"])
        if name == "moved":
            sentence = "1 executor and 1 learner thread became 2 executors and 1 learner thread"
            assert result["moved"][0].partition(": ")[2] == sentence
        else:
            assert result["moved"] == []
    assert digests[0] == digests[1]


def test_where_simulators_cannot_come_back_a_run_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A world whose episodes follow from more than their seed says so before the run begins, and
    nobody thinks of moving it."""

    def moves(*_: Any) -> Any:
        raise NotImplementedError

    monkeypatch.setattr(MovingRun, "__init__", moves)
    short = ("algo=a2c", "replicas=2", "rollout=5", "steps=20", "evaluate_every=0", "log=none")
    codes = [
        train(configure(None, [f"env={env}", *short]), tmp_path / str(number), "quiet")
        for number, env in enumerate(
            ("atari:Breakout?life_loss=terminates", "atari:Breakout?life_loss=none")
        )
    ]
    assert codes == [DONE, FAILED]


def test_the_learner_is_seen_with_the_threads_that_it_has_now() -> None:
    """What is advised to whoever looks on goes by those, not by what a run began with."""
    threads = 1
    look = Look(
        Crewed(lambda: (), lambda: (), lambda: 0, lambda: threads, lambda: 0), Setting(4, shards=4)
    )
    assert look().setting.learners == 1
    threads = 2
    assert look().setting.learners == 2


def test_who_sits_there_since_is_not_measured_by_who_sat_there_before() -> None:
    """Clocks begin at zero behind a move: shares are those of the new ones alone."""
    before, after = np.array([100.0, 5.0, 0, 0, 0]), np.array([3.0, 6.0, 0, 0, 0])
    shares = list(_shares(after, before).values())
    assert shares == pytest.approx([1 / 3, 2 / 3, 0, 0, 0])
    assert list(_shares(before + after, before).values()) == pytest.approx(shares)
