"""Where two rollouts part: earliest step, field, both values, and how far they are apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hts.determinism.divergence import Seen, first_divergence
from hts.machine import Sizes, storage_arrays
from hts_envs.contract import Array, Box, Discrete, Spaces

SIZES = Sizes(replicas=3, steps=4, agents=1, history=1)
DECLARED = storage_arrays(SIZES, Spaces({"observation": Box((2,))}, Discrete(2)))


def seen(change: Callable[[dict[str, Array]], None] = lambda _: None) -> Seen:
    """A rollout of ones, and what was changed in it."""
    arrays = {array.name: np.ones(array.shape, array.dtype) for array in DECLARED}
    change(arrays)
    return Seen(DECLARED, arrays, SIZES.history, SIZES.steps)


def set_at(name: str, place: tuple[int, ...], value: float) -> Callable[[dict[str, Array]], None]:
    """A change of one element."""

    def change(arrays: dict[str, Array]) -> None:
        arrays[name][place] = value

    return change


def test_equal_rollouts_do_not_part() -> None:
    """NaN equals itself here: bits are compared, not numbers."""
    nan = set_at("reward", (1, 2, 0), np.nan)
    assert first_divergence(seen(), seen()) is None
    assert first_divergence(seen(nan), seen(nan)) is None


def test_the_earliest_step_wins_over_the_first_field() -> None:
    """A reward at step 1 comes before an observation at step 3."""

    def change(arrays: dict[str, Array]) -> None:
        arrays["frames.observation"][0, 1 + 3, 0, 1] = 2.0
        arrays["reward"][2, 1, 0] = np.nextafter(np.float32(1), np.float32(2))

    found = first_divergence(seen(), seen(change))
    assert found is not None
    assert (found.replica, found.step, found.field) == (2, 1, "reward[0]")
    assert found.apart == " (1 units in the last place apart)"
    assert "1.0 and 1.0000001" in found.sentence()


@pytest.mark.parametrize(
    ("name", "place", "value", "field", "apart"),
    [
        ("frames.observation", (1, 1, 0, 1), 3.0, "observation[0, 1]", True),
        ("action", (1, 0, 0), 0, "action[0]", False),
        ("terminated", (1, 0), 0, "terminated", False),
        ("key", (1, 0), 7, "key", False),
        ("value", (1, 0, 0), -0.0, "value[0]", True),
    ],
)
def test_every_kind_of_field_is_named(
    name: str, place: tuple[int, ...], value: float, field: str, apart: bool
) -> None:
    """Floats say how far they are apart; whole numbers and flags show both values."""
    found = first_divergence(seen(), seen(set_at(name, place, value)))
    assert found is not None
    assert (found.replica, found.step, found.field) == (1, 0, field)
    assert bool(found.apart) == apart


def test_frames_outside_the_rollout_are_not_compared() -> None:
    """The history before the first step and the frame behind the last belong to neighbours."""
    before = set_at("frames.observation", (0, 0, 0, 0), 5.0)
    behind = set_at("frames.observation", (0, 5, 0, 0), 5.0)
    assert first_divergence(seen(before), seen(behind)) is None
