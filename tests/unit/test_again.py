"""Runs that are run again to see where they part: exactly, or not at all any more."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import pytest

from hts.config import PPO, Machine
from hts.determinism.divergence import Keep, first_divergence, load
from hts.runtime.again import Setting, again, updates
from tests.fakes import runs

SERIAL = Machine(serial=True)
STRAYING = "python:tests.fakes.straying:make"


def test_a_planted_difference_is_named_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 37 of replica 2, in rollouts of 16 steps: update 3, step 5, one unit, and no sooner."""
    setting = Setting(runs.experiment(STRAYING, updates=4), SERIAL)
    kept = [Keep(2, str(tmp_path / name)) for name in ("steady", "straying")]
    steady = updates(setting, 3, kept[0])
    monkeypatch.setenv("HTS_TEST_STRAYS", "always")
    straying = updates(setting, 3, kept[1])
    found = first_divergence(*(load(keep.path) for keep in kept))
    assert str(found) == (
        "replica 2, step 5, observation[0, 1]: 1.0 and 1.0000001 (1 unit in the last place apart)"
    )
    assert [x.link == y.link for x, y in zip(steady, straying, strict=True)] == [True, True, False]


def test_an_equal_run_does_not_part() -> None:
    """Nothing is named, and the links are those of the update that was asked for."""
    setting = Setting(runs.experiment(updates=3), SERIAL)
    found = again(setting, setting, 2)
    assert found.where is None
    assert found.ours == found.theirs == runs.outcome(setting.experiment)[1].link


@pytest.mark.parametrize("update", [1, 3])
def test_parameters_are_named_by_their_layer(update: int) -> None:
    """Other epochs: equal rollouts, another first weight; found where it is, also when earlier."""
    asked = runs.experiment(updates=3)
    other = dataclasses.replace(asked, algo=PPO(epochs=3, minibatches=2))
    found = again(Setting(asked, SERIAL), Setting(other, SERIAL), update)
    assert found.where is not None
    assert found.where.startswith("update 1, parameter 0, torso.policy.0.weight[0, 0]: ")
    assert "the rollouts are equal" in found.where


def test_rollouts_of_two_shapes_are_not_compared() -> None:
    """Other replicas: said in a sentence."""
    small, large = (runs.experiment(replicas=count) for count in (4, 8))
    found = again(Setting(small, SERIAL), Setting(large, SERIAL), 1)
    assert found.where == "update 1, whose rollouts hold different arrays: other spaces or sizes"


def test_a_run_is_not_played_to_its_end() -> None:
    """Two updates of a run of a million steps, with that run's own learning rates."""
    whole = runs.experiment(steps=1_000_000)
    short = updates(Setting(whole, SERIAL), 2)
    assert len(short) == 2
    run = runs.serial(whole)
    try:
        following = iter(run)
        assert [next(following).link, next(following).link] == [made.link for made in short]
    finally:
        run.close()


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rollouts that were written down to be compared are gone afterwards."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    setting = Setting(runs.experiment(updates=1), SERIAL)
    again(setting, setting, 1)
    assert list(tmp_path.iterdir()) == []
