"""`hts-simulate`: both claims of the paper, and predictions from a measured profile."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hts.bench.claims import (
    Synchronised,
    lag_by_formula,
    lag_by_simulation,
    seconds_by_formula,
    seconds_by_simulation,
)
from hts.bench.foretell import claims_in_words
from hts.bench.predict import Prediction, ProfiledTimes, Simulator, advise, predict
from hts.bench.profiled import read
from hts.cli.check import main as check
from hts.cli.simulate import main

EXPONENTIAL = ProfiledTimes(0.005, 0.005)


@pytest.mark.parametrize(
    ("replicas", "alpha", "rate", "seconds"),
    [
        (16, 1, 2.0, 167.5),
        (16, 4, 2.0, 411.3),
        (16, 16, 2.0, 1174.9),
        (16, 64, 2.0, 3887.5),
        (16, 4, 0.5, 1645.3),
        (64, 4, 2.0, 509.5),
    ],
)
def test_claim_1(replicas: int, alpha: int, rate: float, seconds: float) -> None:
    """The formula gives the figures worked out from the paper, the simulation the same to 2 %; an
    answer adds its time to each step of a replica, exactly."""
    setting = Synchronised(replicas=replicas, alpha=alpha, rate=rate)
    states = 100 * replicas * alpha
    assert seconds_by_formula(setting, states) == pytest.approx(seconds, abs=0.06)
    assert seconds_by_simulation(setting, states) == pytest.approx(seconds, rel=0.02)
    answering = Synchronised(replicas=replicas, alpha=alpha, rate=rate, answer=0.25)
    for of in (seconds_by_formula, seconds_by_simulation):
        assert of(answering, states) - of(setting, states) == pytest.approx(25.0 * alpha, rel=1e-6)


@pytest.mark.parametrize(("actors", "lag"), [(1, 0.026), (8, 0.25), (16, 0.667), (32, 4.0)])
def test_claim_2(actors: int, lag: float) -> None:
    """How old asynchronous data is: the formula, and a queue that is really stood in, to 3 %."""
    assert lag_by_formula(actors, 100.0, 4000.0) == pytest.approx(lag, abs=0.001)
    assert lag_by_simulation(actors, 100.0, 4000.0) == pytest.approx(lag, rel=0.03)
    assert math.isinf(lag_by_formula(40, 100.0, 4000.0))
    assert math.isinf(lag_by_simulation(40, 100.0, 4000.0))


def test_the_claims_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON without anything infinite in it, and as two tables."""
    assert main(["--claims", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["claim_2"][-1] == {"actors": 40, "formula": None, "simulation": None}
    assert len(found["claim_1"]) == 6
    assert "unbounded" in claims_in_words(found)


def by_place(found: list[Prediction]) -> dict[tuple[str, int, int], float]:
    return {(each.how, each.replicas, each.alpha): each.steps_per_second for each in found}


def test_a_profile_stands_for_its_simulator() -> None:
    """16 replicas with exponential steps of 5 ms lose what the design says they lose, to 1.5 %."""
    found = by_place(predict(Simulator(times=EXPONENTIAL), [16], [4, 16, 64], 1))
    for alpha, with_swap, without in ((4, 2.06, 1.34), (16, 1.49, 1.10), (64, 1.23, 1.03)):
        assert 3200 / found["hts_barrier", 16, alpha] == pytest.approx(with_swap, rel=0.015)
        assert 3200 / found["hts", 16, alpha] == pytest.approx(without, rel=0.015)
        assert found["asynchronous", 16, alpha] == pytest.approx(3200)


def test_thousands_of_replicas_settle() -> None:
    """4,096 replicas, drawn for fewer rollouts, come within 2 % of more draws."""
    from hts.bench.model import Dataflow, simulate

    found = by_place(predict(Simulator(times=EXPONENTIAL), [4096], [4], 1))
    for schedule in ("hts", "hts_barrier", "sync"):
        machine = Dataflow(replicas=4096, alpha=4, schedule=schedule)  # type: ignore[arg-type]
        long = simulate(EXPONENTIAL, machine, 1000).steps_per_second
        assert found[schedule, 4096, 4] == pytest.approx(long, rel=0.02)


def test_nothing_is_faster_than_its_limits() -> None:
    """Schedules keep their order; cores, the learner and the sum of all replicas limit each."""
    simulator = Simulator(times=EXPONENTIAL, cpu=0.001, learning=0.0001, answer=0.0002)
    found = predict(simulator, [1, 8, 64, 512], [4, 64], 8)
    rates = by_place(found)
    for replicas in (1, 8, 64, 512):
        for alpha in (4, 64):
            row = [rates[how, replicas, alpha] for how in ("sync", "hts_barrier", "hts")]
            assert row == sorted(row)
            assert row[-1] <= rates["asynchronous", replicas, alpha]
            assert row[-1] <= min(replicas / 0.0052, 8 / 0.0013, 1 / 0.0001) * (1 + 1e-9)
    computing = {each.replicas for each in found if each.computing}
    assert computing == {64, 512}


def test_resets_are_waited_for() -> None:
    """Steps with resets between them have the mean and the spread that they should have."""
    times = ProfiledTimes(0.002, 0.001, reset=0.05, length=20.0)
    parts = times.parts(2000, 4, 40)
    assert parts.mean() == pytest.approx(40 * (0.002 + 0.05 / 20), rel=0.01)
    variance = 40 * (0.001**2 + 0.05**2 * (1 / 20) * (1 - 1 / 20))
    assert parts.var() == pytest.approx(variance, rel=0.05)


def test_steps_without_spread_make_nobody_wait() -> None:
    """A constant step time costs nothing under any schedule, and a single step ends an episode."""
    found = by_place(predict(Simulator(times=ProfiledTimes(0.01)), [64], [4], 1))
    assert all(rate == pytest.approx(6400, rel=0.005) for rate in found.values())
    always = ProfiledTimes(0.01, 0.0, reset=0.01, length=1.0)
    assert np.allclose(always.parts(3, 2, 5), 0.1, rtol=0.01)


def test_a_batched_world_waits_as_one() -> None:
    """1,024 replicas in blocks of 256 behind one call are four that may wait for each other."""
    one = predict(Simulator(times=EXPONENTIAL), [4], [16], 1)
    many = predict(Simulator(times=EXPONENTIAL, rows=256), [1024], [16], 1)
    for each, block in zip(one, many, strict=True):
        assert block.steps_per_second == pytest.approx(256 * each.steps_per_second)


def test_the_advice_is_the_least_that_is_near_the_best() -> None:
    """Where cores end it, more replicas are not advised; and no shorter rollout comes near."""
    simulator = Simulator(times=EXPONENTIAL, cpu=0.001)
    found = predict(simulator, [1, 4, 16, 64, 256], [1, 4, 16, 64], 4)
    chosen, rates = advise(found), by_place(found)
    assert chosen.ends
    assert chosen.replicas == 64
    assert chosen.best == pytest.approx(4000)
    assert chosen.steps_per_second >= 0.95 * chosen.best
    assert all(rates["hts", 16, alpha] < 0.95 * chosen.best for alpha in (1, 4, 16, 64))
    shorter = [alpha for alpha in (1, 4, 16, 64) if alpha < chosen.rollout]
    assert all(rates["hts", 64, alpha] < 0.95 * chosen.best for alpha in shorter)
    assert not advise(predict(Simulator(times=EXPONENTIAL), [1, 16], [4], 1)).ends


def test_a_real_profile_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hts-check measures of a sleeper of 2 ms is what is predicted from: a file, or a pipe,
    with a picture."""
    assert check(["sleeper:?mean=2&shape=4", "--json", "--seconds", "2"]) == 0
    report = capsys.readouterr().out
    simulator = read(report, "-")
    step = json.loads(report)["profile"]["step"]
    assert (simulator.times.seconds, simulator.times.deviation) == (step["mean"], step["deviation"])
    assert simulator.times.seconds > 0.001  # a busy machine makes it longer, none shorter
    assert simulator.cpu < simulator.times.mean
    path, out = tmp_path / "profile.json", tmp_path / "speed.png"
    path.write_text(report)
    few = ["--replicas", "1,8", "--rollouts", "4", "--cores", "64"]
    assert main([str(path), *few, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "choose: 8 replicas, rollout 4, schedule hts" in said
    assert out.read_bytes().startswith(b"\x89PNG")
    answers = []
    for _ in range(2):
        monkeypatch.setattr("sys.stdin", io.StringIO(report))
        assert main(["-", *few, "--json"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]
    assert len(json.loads(answers[0])["predictions"]) == 8


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(each) for each in arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    return said.err


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ("[]", "not what hts-check"),
        ("{", "not what hts-check"),
        ({"format": 2, "profile": {}}, "of format 2"),
        ({"format": 1, "profile": {}}, "no step was timed"),
        ({"format": 1, "profile": {"step": {"mean": "x"}}}, "profile.step.mean is missing"),
        ({"format": 1, "profile": {"step": {"mean": -1}}}, "profile.step.mean is -1"),
    ],
)
def test_a_wrong_profile_is_not_believed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], report: Any, why: str
) -> None:
    """Each is told in a sentence with its place."""
    path = tmp_path / "profile.json"
    path.write_text(report if isinstance(report, str) else json.dumps(report))
    said = refused(capsys, path)
    assert why in said
    assert str(path) in said


def test_wrong_calls_are_answered_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing named, or two things; no number; too many."""
    assert "--mean" in refused(capsys)
    assert "cannot be read" in refused(capsys, tmp_path / "none.json")
    assert "must be a number" in refused(capsys, "--mean", "fast")
    assert "must be a number above 0, not 0" in refused(capsys, "--mean", "0")
    assert "whole numbers from 1 to 100000, not '0,4'" in refused(
        capsys, "--mean", "5", "--replicas", "0,4"
    )
    assert "whole numbers from 1 to 10000, not 1000000" in refused(
        capsys, "--mean", "5", "--rollouts", "1000000"
    )
    assert "--deviation needs --mean" in refused(capsys, tmp_path / "x", "--deviation", "1")
    assert "--claims cannot be combined with FILE" in refused(capsys, "--claims", "profile.json")
    for name, value in (("mean", "5"), ("replicas", "4"), ("cores", "2"), ("out", "x.png")):
        said = refused(capsys, "--claims", f"--{name}", value)
        assert f"--{name} cannot be combined with --claims" in said
