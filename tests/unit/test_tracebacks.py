"""Tracebacks that begin where a simulator's own code begins."""

from __future__ import annotations

import numpy as np
import pytest

from hts.errors import WorldFailed
from hts.tracebacks import crash_stack, simulator_failure, simulator_sentence, simulator_traceback
from hts_envs.adapter import GymWorld
from hts_envs.errors import BrokenSimulator
from hts_envs.registry import make
from tests.fakes.failing import Failing


def raised_by_factory() -> BrokenSimulator:
    with pytest.raises(BrokenSimulator) as caught:
        make("python:tests.fakes.failing:raising?level=7")
    return caught.value


def raised_by_step() -> WorldFailed:
    world = GymWorld(Failing(0), "mine")
    world.reset(0)
    try:
        world.step(np.array([0]))
    except BrokenSimulator as error:
        failure = WorldFailed(3)
        failure.__cause__ = error
        return failure
    raise AssertionError("it raises")


def from_our_side(error: BaseException) -> BaseException:
    """The same error without the frame of this file that called us."""
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


def test_the_factory_s_own_frames_are_left() -> None:
    """Nothing of ours stands before them, and no second traceback around them."""
    told = simulator_traceback(raised_by_factory())
    lines = told.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.rpartition(" in ")[2] for line in lines if "File" in line] == [
        "raising",
        "licence",
    ]
    assert lines[-1] == "LookupError: no licence for level 7"


def test_the_sentence_names_environment_error_and_words() -> None:
    """One line, also of a failure that a block has wrapped."""
    assert simulator_sentence(raised_by_factory()) == (
        "python:tests.fakes.failing:raising: the factory raised LookupError: no licence for level 7"
    )
    assert simulator_sentence(raised_by_step()) == (
        "mine raised RuntimeError in step: the simulator's own words"
    )


def test_a_failure_ends_with_its_sentence() -> None:
    """The simulator's traceback, then what happened; only once where both are the same."""
    told = simulator_failure(raised_by_step())
    assert told.count("Traceback") == 1
    assert told.endswith(
        "RuntimeError: the simulator's own words\n\n"
        "mine raised RuntimeError in step: the simulator's own words"
    )
    failure = WorldFailed(0)
    failure.__cause__ = RuntimeError("a world's own error")
    assert simulator_failure(failure) == "RuntimeError: a world's own error"


def test_an_error_of_ours_about_a_simulator_has_no_traceback() -> None:
    """No line of the simulator's code is to blame for a shape that it declares otherwise."""
    world = GymWorld(Failing(9), "mine")
    world._observations._only._shape = (3,)  # type: ignore[union-attr]
    with pytest.raises(BrokenSimulator) as caught:
        world.reset(0)
    error = from_our_side(caught.value)
    assert simulator_traceback(error) == ""
    assert simulator_failure(error) == str(caught.value)


def test_a_fault_of_ours_is_whole() -> None:
    """An error without any frame of a simulator is shown with all of its frames."""
    with pytest.raises(AttributeError) as caught:
        GymWorld(None, "mine")
    told = simulator_traceback(from_our_side(caught.value))
    assert "in __init__" in told
    assert "adapter.py" in told


def test_the_stack_of_a_crash_ends_before_our_frames() -> None:
    """Faulthandler writes the latest call first."""
    place = GymWorld.step.__code__.co_filename
    text = f'Fatal Python error\n  File "mine.py", line 2\n  File "{place}", line 9\nmore'
    assert crash_stack(text) == 'Fatal Python error\n  File "mine.py", line 2'
