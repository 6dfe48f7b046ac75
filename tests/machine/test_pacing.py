"""Parallel Q-Learning that the clock paces: as many updates as there is time for."""

from __future__ import annotations

import os
import signal

import pytest

from hts.config import PQL, Machine, Mlp, configure
from hts.errors import BadConfig
from hts.roles.pace import by_clock, by_count
from hts.runtime.assemble import plan
from hts.runtime.parallel import ParallelRun
from hts_envs.registry import parse
from tests.fakes.runs import experiment

SMALL = PQL(batch=8, replay=256, warm_up=4, beta_av=2, pacing="clock", critic_hidden=(8,))


def test_a_turn_lasts_until_the_next_window_is_full() -> None:
    """At least one update, whatever the clock says; behind the last turn nothing fills."""
    asked: list[int] = []

    def is_complete(rollout: int) -> bool:
        asked.append(rollout)
        return len(asked) >= 3

    updates = by_clock(is_complete, turns=8)
    assert list(updates(5, 100)) == [0, 1, 2]
    assert asked == [6, 6, 6]
    assert list(updates(5, 100)) == [0], "it was full before this turn began"
    assert list(updates(7, 4)) == list(by_count(7, 4)) == [0, 1, 2, 3]


def test_slow_steps_leave_time_for_more_updates() -> None:
    """No step, no death and no learner waits for a count: a world that takes 20 ms a step has more
    than two updates of the critics learnt meanwhile, also by those who take over."""
    asked = experiment(
        "python:tests.fakes.small_worlds:Small?action=vector&takes=0.02",
        algo=SMALL,
        model=Mlp(hidden=(8,)),
        rollout=4,
        updates=16,
    )
    run = ParallelRun(plan(asked, parse(asked.env), "cpu"), Machine(executors=2, actors=0))
    told = []
    try:
        for updated in run:
            told.append(updated.told)
            if len(told) in (6, 9):
                name = "learner" if len(told) == 6 else "P-learner"
                (pid,) = [child.pid for child in run.children if child.name == name]
                os.kill(pid, signal.SIGKILL)
        assert len(run.replaced) == 2
    finally:
        run.close()
    counted = asked.rollout * SMALL.beta_av
    assert len(told) == 16
    made = {
        who: [int(each.get(f"train/{who}_updates", 0)) for each in told]
        for who in ("critic", "policy")
    }
    assert made["critic"][-1] == counted
    assert made["policy"][-1] == counted // SMALL.beta_pv
    for numbers in made.values():
        assert max(numbers) > counted, "nobody was held back"
        assert all(number >= 1 for number in numbers[1:])


@pytest.mark.parametrize(
    ("also", "said"),
    [
        (("experiment.schedule", "sync"), "learners take turns with executors"),
        (("machine.serial", "true"), "one process has no clock to pace learners"),
    ],
)
def test_it_is_refused_where_nothing_is_done_at_once(also: tuple[str, str], said: str) -> None:
    clock = [f"{path}={value}" for path, value in (("experiment.algo.pacing", "clock"), also)]
    with pytest.raises(BadConfig, match=said):
        configure("pql-pendulum", clock, [])
