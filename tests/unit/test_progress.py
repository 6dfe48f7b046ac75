"""What a run says about itself: counted in steps and whole games, never in seconds."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hts.report import progress
from hts.report.progress import Progress
from hts.roles.blocks import Episode
from hts_envs.contract import Place
from hts_envs.registry import make, parse
from tests.fakes.runs import experiment, serial


def ended(**facts: float) -> Episode:
    return Episode(0, 0, {"return": 1.0, "length": 2.0, **facts})


def test_a_step_is_one_step_of_one_replica() -> None:
    """Rule 32: three agents and skipped frames make no more steps; four replicas make four."""
    run = serial(experiment("python:tests.fakes.team:make", updates=2))
    told = Progress(run.experiment)
    lines = [told.update(updated.told, updated.episodes) for updated in run]
    run.close()
    assert [line["steps"] for line in lines] == [64, 128]
    assert told.result("done", "")["steps"] == 128
    world = make(parse("atari:Pong"), Place(0, 1, 0))
    assert world.traits.frame_skip == 4
    world.close()
    skipping = Progress(experiment("atari:Pong", updates=2))
    assert skipping.update({}, [])["steps"] == 64


def test_what_is_recorded_does_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 22: a line for each update, the same on a machine on which a second lasts an hour, but
    for what the clock itself says."""

    def lines(tick: float) -> list[dict[str, float]]:
        now = itertools.count(0.0, tick)
        monkeypatch.setattr(progress.time, "perf_counter", lambda: next(now))
        told, found = Progress(experiment(updates=5)), []
        told.start()
        for update in range(5):
            found.append(told.update({"train/entropy": 0.1 * update}, [ended()] * update))
            told.tell(found[-1], "chain")
        return found

    slow, fast = lines(3600.0), lines(1e-4)
    assert len(slow) == len(fast) == 5
    for one, other in zip(slow, fast, strict=True):
        assert one.pop("time/seconds") > other.pop("time/seconds")
        assert one.pop("time/steps_per_second") < other.pop("time/steps_per_second")
        assert one == other


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"train/entropy": 0.5, "train/value_loss": 2.0}, "entropy 0.5  digest"),
        ({"train/critic_loss": 0.25, "train/value": -7.125}, "critic loss 0.25  value -7.12  dig"),
        ({}, "/s  digest"),
    ],
)
def test_a_plain_line_shows_what_the_algorithm_learns(
    metrics: dict[str, float], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Entropy for PPO, critics and values off-policy, neither before the first update of these."""
    told = Progress(experiment())
    told.start()
    told.tell(metrics, "abcdef", last=True)
    assert words in capsys.readouterr().err


def test_only_whole_games_are_reported() -> None:
    """Rules 11 and 12: where a lost life is an end for learning, the game's own return and length
    are told when the game is over, and its parts never."""
    told = Progress(experiment())
    parts = [ended(game_over=0.0, game_return=3.0, game_length=7.0)] * 4
    assert "episode/return" not in told.update({}, parts)
    over = {"game_over": 1.0, "game_return": 9.0, "game_length": 30.0}
    line = told.update({}, [*parts, ended(**over)])
    assert (line["episode/return"], line["episode/length"]) == (9.0, 30.0)
    assert line["episode/count"] == 1
    line = told.update({}, [ended()])
    assert (line["episode/return"], line["episode/count"]) == (5.0, 2)


def test_means_are_over_the_latest_hundred_episodes() -> None:
    """However many updates they took; scores only where a world has some."""
    told = Progress(experiment())
    told.update({}, [ended(score=1.0)] * 50)
    line: dict[str, Any] = told.update({}, [ended(score=0.0)] * 75)
    assert line["episode/score"] == 0.25
    assert line["episode/count"] == 125
    assert "episode/score" not in Progress(experiment()).update({}, [ended()])
