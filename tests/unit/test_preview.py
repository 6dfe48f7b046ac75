"""An environment before a run, looked at in a child process."""

from __future__ import annotations

import numpy as np
import pytest

from hts.errors import SimulatorFailed
from hts.runtime.preview import Look, Preview, look_here, look_once
from hts_envs.errors import BadName
from hts_envs.registry import parse

FAKES = "python:tests.fakes.failing:"


@pytest.mark.parametrize(
    "env", ["gym:Pendulum-v1", "gym:Blackjack-v1", "python:tests.fakes.broken_worlds:Optional"]
)
def test_what_is_declared_comes_back_whole(env: str) -> None:
    """Boxes with a bound for each number or none, choices, several fields, and what is said."""
    assert look_once(env, 0) == look_here(parse(env), 0)


def test_steps_are_measured_in_the_same_process() -> None:
    """Durations, and observations of the declared types for the network to see."""
    with Preview("gym:CartPole-v1", 0, replicas=4) as preview:
        look = preview.look()
        costs = preview.step_costs(0.05)
    assert isinstance(look, Look)
    assert costs.durations.min() > 0
    assert costs.cpu > 0
    assert costs.repeats
    assert costs.seen
    for observation in costs.seen:
        assert observation["observation"].dtype == np.float32
        assert observation["observation"].shape == (1, 4)


@pytest.mark.parametrize(
    ("factory", "words", "traceback"),
    [
        ("exiting", ", while it was built: its process ended with exit code 3", ""),
        ("crashing", "its process was ended by SIGSEGV", "in crashing"),
        ("raising", ": the factory raised LookupError: no licence for level 1", "in licence"),
    ],
)
def test_a_factory_that_fails_is_told_in_a_sentence(
    factory: str, words: str, traceback: str
) -> None:
    """It may raise, exit or crash: this process goes on, and knows what happened."""
    with pytest.raises(SimulatorFailed) as caught:
        look_once(f"{FAKES}{factory}", 0)
    assert str(caught.value).startswith(f"{FAKES}{factory}")
    assert str(caught.value).endswith(words)
    assert traceback in caught.value.traceback
    assert "preview.py" not in caught.value.traceback


def test_a_step_that_exits_is_told_in_a_sentence() -> None:
    """The measurement says so, and nothing else ends."""
    with Preview(f"{FAKES}leaving", 0) as preview:
        preview.look()
        with pytest.raises(SimulatorFailed, match="while its steps were measured: its process"):
            preview.step_costs(0.05)


def test_what_the_user_can_mend_is_raised_as_it_is() -> None:
    """A factory that returns no environment is a wrong name, and ends with exit code 2."""
    with pytest.raises(BadName, match="factories:something: the factory returned 42"):
        look_once("python:tests.fakes.factories:something", 0)
