"""What is said about runs, against numbers that were worked out by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from hts.report import evaluations, statistics
from hts.report.statistics import HUMAN, OverGames, Reached
from hts_envs.atari.games import GAMES

PAPERS = (
    *("BankHeist", "BeamRider", "Breakout", "Frostbite", "Jamesbond", "Krull", "KungFuMaster"),
    *("MsPacman", "Qbert", "Seaquest", "SpaceInvaders", "StarGunner"),
)


def test_human_scores_are_of_games_that_are_there() -> None:
    """57 games, under our names, and the twelve of the HTS-RL paper among them."""
    assert len(HUMAN) == 57
    assert set(HUMAN) <= set(GAMES)
    assert set(PAPERS) <= set(HUMAN)


def test_normalised_scores() -> None:
    """Random play is 0, a human 1; halfway is a half; an unmeasured game has none."""
    assert statistics.normalised("Breakout", 1.7) == 0.0
    assert statistics.normalised("Breakout", 30.5) == 1.0
    assert statistics.normalised("Freeway", 14.8) == 0.5
    assert statistics.normalised("Pong", -20.7 - 35.3) == pytest.approx(-1.0)
    assert statistics.normalised("Tetris", 5.0) is None


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 100], 4.5),  # two are cut from each side
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 1000], 4.5),  # 10 / 4 rounded down: two
        ([7.0], 7.0),
        ([[4, 1], [3, 100]], 3.5),
    ],
)
def test_interquartile_mean(scores: list[float], expected: float) -> None:
    """The middle half, over runs and games together."""
    assert statistics.interquartile_mean(np.array(scores)) == expected


def test_optimality_gap() -> None:
    """What is above 1 makes up for nothing below it."""
    assert statistics.optimality_gap(np.array([0.5, 2.0, 0.0, 1.0])) == 0.375
    assert statistics.optimality_gap(np.array([3.0, 1.0])) == 0.0


def test_over_games() -> None:
    """The median is of games' means, the other two of all runs."""
    found = statistics.over_games({"A": [0.0, 1.0], "B": [2.0, 4.0], "C": [0.25, 0.25]})
    assert found == OverGames(0.5, pytest.approx(0.875), pytest.approx(2.5 / 6))


SKEWED = {"A": [0.0, 0.0, 3.0], "B": [0.2], "C": [8.0], "D": [0.1, 0.3]}
"""Games whose runs have means 1, 0.2, 8 and 0.2, and medians 0, 0.2, 8 and 0.2."""


def test_over_skewed_games() -> None:
    """The median over games of the means over runs: 0.6; any other order of the two differs."""
    found = statistics.over_games(SKEWED)
    assert found.median == pytest.approx(0.6)
    assert found.interquartile_mean == pytest.approx((0.0 + 0.1 + 0.2 + 0.3 + 3.0) / 5)
    assert found.optimality_gap == pytest.approx(1.0 - (0.1 + 0.2 + 0.3 + 1.0 + 1.0) / 7)


def test_intervals_enclose_the_numbers_themselves() -> None:
    """One run of each game leaves nothing open: each interval is the number of the same name. Of
    twelve runs the interquartile mean leaves out the three lowest and the three highest."""
    single = {name: [float(np.mean(runs))] for name, runs in SKEWED.items()}
    for name, value in dataclasses.asdict(statistics.over_games(single)).items():
        ends = statistics.over_games_intervals(single)[name]
        assert ends == pytest.approx([value, value])
    skewed = statistics.over_games_intervals({"A": [0.0] * 5 + [1.0]})["median"]
    assert skewed == pytest.approx([0.0, 0.5]), "the mean of runs is drawn, not their median"
    low, high = statistics.over_games_intervals({str(n): [float(n**3)] for n in range(12)})[
        "interquartile_mean"
    ]
    assert low == high == (27 + 64 + 125 + 216 + 343 + 512) / 6


def test_intervals_over_games() -> None:
    """Runs are drawn anew within their game: one run of each game leaves nothing open, and of two
    games whose runs are alike one does not follow the other's draws."""
    alone = statistics.over_games_intervals({"A": [0.5], "B": [0.25]})
    assert alone["median"] == [0.375, 0.375]
    assert alone["optimality_gap"] == [0.625, 0.625]
    runs = [0.0, 0.2, 0.4, 0.6, 0.8]
    one = statistics.over_games_intervals({"A": runs})
    two = statistics.over_games_intervals({"A": runs, "B": runs})
    assert one == statistics.over_games_intervals({"A": runs})
    assert one["median"] == pytest.approx([0.16, 0.64], abs=0.021)
    width = [each["median"][1] - each["median"][0] for each in (one, two)]
    assert width[1] == pytest.approx(width[0] / np.sqrt(2), rel=0.1)
    for name, value in dataclasses.asdict(statistics.over_games({"A": runs, "B": runs})).items():
        assert two[name][0] < value < two[name][1]


def _line(update: int, *returns: float, scores: tuple[float, ...] = ()) -> dict[str, object]:
    return {"update": update, "returns": list(returns), "scores": list(scores)}


def test_the_final_metric_is_of_the_last_ten() -> None:
    """Every episode of the last ten policies, and none before; scores where there are scores."""
    lines = [_line(update, update, update + 0.5) for update in range(1, 13)]
    assert np.mean(statistics.final(lines)) == 7.75
    assert len(statistics.final(lines)) == 20
    assert statistics.final([_line(1, 5.0, scores=(1.0,))]) == [1.0]
    assert statistics.final([_line(1, 5.0, scores=(1.0,)), _line(2, 6.0)]) == [5.0, 6.0]


def _write(path: Path, *lines: dict[str, float]) -> Path:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "metrics.jsonl").write_text(text + '{"update": 9, "steps"')
    return path


def _metric(update: int, mean: float, count: int, **more: float) -> dict[str, float]:
    facts = {"update": update, "steps": update * 10, "time/seconds": update * 1.5, **more}
    return {**facts, "episode/return": mean, "episode/count": count}


def test_the_required_time(tmp_path: Path) -> None:
    """The first policy at which the mean is one of 100 evaluation episodes, and high enough, at the
    time at which it was made; training episodes do not count, and half a line is none."""
    run = _write(tmp_path, *[_metric(n, 99.0, 500) for n in range(1, 8)])
    means = {1: 9.0, 2: 0.0, 3: 3.0, 4: 6.0, 5: 9.0}  # of 50 episodes each
    for update, mean in means.items():
        line = {"update": update, "steps": update * 10, "episodes": 50, "returns": [mean] * 50}
        evaluations.add(run, line)
    assert statistics.reached(run, 4.5) == Reached(2, 20, 3.0)
    assert statistics.reached(run, 5.0) == Reached(5, 50, 7.5)
    assert statistics.reached(run, 8.0) is None
    assert statistics.before(run, 4.6) == 3
    assert statistics.before(run, 1.0) == 0
    for line in evaluations.read(run).values():
        line["scores"] = [line["update"] / 4] * 50
        evaluations.add(_folder(tmp_path / "scored"), line)
    made = [{"update": n, "time/seconds": n * 2.0} for n in range(1, 6)]
    _write(tmp_path / "scored", *made)
    assert statistics.reached(tmp_path / "scored", 0.875) == Reached(4, 40, 8.0)


def _folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def test_lines_stay_in_order_and_are_written_once(tmp_path: Path) -> None:
    """A late one takes its place, a second one is none, and half a line is mended."""
    for update in (4, 8, 2, 8):
        evaluations.add(tmp_path, {"update": update, "eval/return": update + len(str(update))})
    assert list(evaluations.read(tmp_path)) == [2, 4, 8]
    path = tmp_path / "eval.jsonl"
    with path.open("a") as file:
        file.write('{"update": 12, "eval')
    assert list(evaluations.read(tmp_path)) == [2, 4, 8]
    evaluations.add(tmp_path, {"update": 12})
    assert [json.loads(line)["update"] for line in path.read_text().splitlines()] == [2, 4, 8, 12]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["eval.jsonl"]
