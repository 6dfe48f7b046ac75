"""Simulators that fail in a run: what is tried once more, what ends the run, and what is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hts.cli import check
from hts.config import PPO, Experiment
from hts.errors import RoleFailed
from hts.runtime.assemble import plan
from hts.runtime.serial import SerialRun
from hts.soundness.case import Case, Kind
from hts_envs.registry import parse
from tests.fakes.flaky import FAULTS, faults
from tests.fakes.runs import experiment, outcome


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of failure files, beside the files that count faults."""
    monkeypatch.setenv(FAULTS, str(tmp_path))
    return tmp_path / "failures"


def flaky(kind: str, how: str, steps: str) -> Experiment:
    """Four replicas, of which replica 2 fails in these steps."""
    name = f"python:tests.fakes.flaky:{kind}?how={how}&steps={steps}"
    return experiment(name, rollout=8, updates=6, algo=PPO(epochs=1, minibatches=1))


def serial(asked: Experiment, cases: Path) -> SerialRun:
    """A run in this process that writes failure files."""
    spec = parse(asked.env)
    return SerialRun(dataclasses.replace(plan(asked, spec, "cpu"), cases=cases), spec)


LOST = "RuntimeError: the engine has lost the ball"
NAN = "replica 2, step 11 of episode 1: the reward of agent 0 is NaN"


def rebuilt(step: int, episode: int, replica: int) -> str:
    """How a place in a rebuild is named."""
    place = f"step {step} of episode {episode} of replica {replica}"
    return f"(while it was rebuilt, in {place}, which it had passed before)"


@pytest.mark.parametrize(
    ("kind", "how", "steps", "sentences"),
    [
        ("make", "raises", "17", [f"{LOST} 16"]),
        (
            "make",
            "raises",
            "17.9.4",
            [f"{LOST} 16", f"{LOST} 8 {rebuilt(9, 2, 2)}", f"{LOST} 3 {rebuilt(4, 2, 2)}"],
        ),
        ("make", "shows NaN", "11", [NAN]),
        ("batch", "raises", "17", [f"{LOST} 16"]),
        # Rows of a batched world are rebuilt together: the step is that of the longest episode.
        ("batch", "raises", "17.9", [f"{LOST} 16", f"{LOST} 8 {rebuilt(15, 1, 3)}"]),
        ("batch", "shows NaN", "11", [NAN]),
    ],
)
def test_a_fault_that_does_not_come_again_costs_nothing(
    kind: str,
    how: str,
    steps: str,
    sentences: list[str],
    cases: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a step, and in steps of the rebuild that follows: the updates of a run without faults."""
    run = serial(flaky(kind, how, steps), cases)
    try:
        updates = list(run)
    finally:
        run.close()
    assert faults(cases.parent) == len(sentences), "every fault has happened"
    expected = outcome(flaky(kind, how, ""))
    assert [u.link.rollout for u in updates] == [u.link.rollout for u in expected]
    assert [u.episodes for u in updates] == [u.episodes for u in expected]
    for line, sentence in zip(run.replaced, sentences, strict=True):
        assert line.endswith(f": {sentence}")
    assert run.marks == []
    said = capsys.readouterr().err
    assert "not deterministic" not in said
    assert [f"{line}; its simulators are rebuilt" in said for line in run.replaced] == [
        True for _ in sentences
    ]
    assert {Case.read(path).failure.kind for path in cases.iterdir()} == {Kind.RAISES}


def test_a_rebuild_that_raises_twice_in_one_step_ends_the_run(cases: Path) -> None:
    """It would raise there for ever; the step, and how to let it raise again, are named."""
    run = serial(flaky("make", "raises", "17.9.9.9.9"), cases)
    with pytest.raises(RoleFailed, match="which it had passed before") as caught:
        list(run)
    run.close()
    assert faults(cases.parent) == 3
    said = str(caught.value)
    assert f"{LOST} 8 {rebuilt(9, 2, 2)}" in said
    (path,) = cases.iterdir()
    assert f"hts-check --replay {path}" in said
    assert run.marks == []


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ("11.11", NAN),
        (
            "0.0",
            "replica 2, the reset of episode 0: field `clock` of the "
            "observation of agent 0 is infinite",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["make", "batch"])
def test_what_is_not_finite_twice_ends_the_run_where_it_appears(
    kind: str,
    steps: str,
    sentence: str,
    cases: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a step or a reset: no parameter has become NaN by then, and the failure file shows it."""
    run = serial(flaky(kind, "shows NaN", steps), cases)
    with pytest.raises(RoleFailed) as caught:
        list(run)
    run.close()
    assert f"{sentence}\n\nhts-check --replay " in caught.value.what
    (path,) = cases.iterdir()
    assert check.main(["--replay", str(path)]) == 1
    said = capsys.readouterr().out
    assert sentence in " ".join(said.split())
    assert "IT COMES AGAIN" in said
    assert "something else" not in said
