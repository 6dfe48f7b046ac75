"""Where two rollouts part: earliest step, field, both values, and how far they are apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hts.determinism.digest import replica_digest
from hts.determinism.divergence import (
    Keep,
    Seen,
    first_divergence,
    first_parameter,
    load,
    load_parameters,
    save,
    seen,
)
from hts.machine import Sizes
from hts.memory.storage import Storage
from hts_envs.contract import Box, Discrete, Spaces

SIZES = Sizes(replicas=3, steps=4, agents=1, history=1)
SPACES = Spaces({"observation": Box((2,)), "symbol": Discrete(9)}, Discrete(2))


def rollout(change: Callable[[Storage], None] = lambda _: None) -> Storage:
    """A storage full of ones, and what was changed in it."""
    storage = Storage(SIZES, SPACES)
    for array in storage.arrays.values():
        array[:] = 1
    change(storage)
    return storage


def set_at(name: str, place: tuple[int, ...], value: float) -> Callable[[Storage], None]:
    """A change of one element."""

    def change(storage: Storage) -> None:
        storage.arrays[name][place] = value

    return change


def test_equal_rollouts_do_not_part() -> None:
    """NaN equals itself here: bits are compared, not numbers."""
    nan = set_at("reward", (1, 2, 0), np.nan)
    assert first_divergence(seen(rollout()), seen(rollout())) is None
    assert first_divergence(seen(rollout(nan)), seen(rollout(nan))) is None


def test_the_earliest_step_wins_over_the_first_field_and_the_first_replica() -> None:
    """A reward of replica 2 at step 1 comes before an observation of replica 0 at step 3."""

    def change(storage: Storage) -> None:
        storage.arrays["frames.observation"][0, 1 + 3, 0, 1] = 2.0
        storage.arrays["reward"][2, 1, 0] = np.nextafter(np.float32(1), np.float32(2))

    found = first_divergence(seen(rollout()), seen(rollout(change)))
    assert found is not None
    assert str(found) == (
        "replica 2, step 1, reward[0]: 1.0 and 1.0000001 (1 unit in the last place apart)"
    )


def test_the_earliest_step_of_one_field_is_found() -> None:
    """Replica 2 differs at step 1, replica 0 in the same field at step 3."""

    def change(storage: Storage) -> None:
        storage.arrays["reward"][0, 3, 0] = 2.0
        storage.arrays["reward"][2, 1, 0] = 2.0

    found = first_divergence(seen(rollout()), seen(rollout(change)))
    assert found is not None
    assert (found.replica, found.step) == (2, 1)


@pytest.mark.parametrize(
    ("name", "place", "value", "told"),
    [
        ("frames.observation", (1, 1, 0, 1), 3.0, "observation[0, 1]: 1.0 and 3.0 (12,582,912 un"),
        ("frames.symbol", (1, 1, 0), 3, "symbol[0]: 1 and 3"),
        ("action", (1, 0, 0), 0, "action[0]: 1 and 0"),
        ("terminated", (1, 0), 0, "terminated: True and False"),
        ("key", (1, 0), 2**63, "key: 1 and 9223372036854775808"),
        ("value", (1, 0, 0), -1.0, "value[0]: 1.0 and -1.0 (2,130,706,432 units in the last pla"),
        ("value", (1, 0, 0), np.inf, "value[0]: 1.0 and inf"),
    ],
)
def test_every_kind_of_field_is_named(
    name: str, place: tuple[int, ...], value: float, told: str
) -> None:
    """Floats say how far they are apart; whole numbers and flags show both values."""
    found = first_divergence(seen(rollout()), seen(rollout(set_at(name, place, value))))
    assert found is not None
    assert str(found).startswith(f"replica 1, step 0, {told}")
    assert ("apart" in str(found)) == ("apart" in told or " un" in told)


def test_minus_zero_is_not_zero() -> None:
    """Their bits differ, so their hashes do, and no unit in the last place lies between them."""
    plus, minus = (seen(rollout(set_at("value", (0, 0, 0), zero))) for zero in (0.0, -0.0))
    found = first_divergence(plus, minus)
    assert found is not None
    assert str(found.values) == "0.0 and -0.0 (0 units in the last place apart)"


@pytest.mark.parametrize("place", [(0, 0, 0, 0), (0, 5, 0, 0)])
def test_frames_outside_the_rollout_are_not_compared(place: tuple[int, ...]) -> None:
    """The frames before the first step and behind the last are their neighbours', as in hashes."""
    other = rollout(set_at("frames.observation", place, 5.0))
    assert first_divergence(seen(rollout()), seen(other)) is None
    assert replica_digest(rollout(), 0) == replica_digest(other, 0)


def test_two_hashes_are_a_difference_that_is_found() -> None:
    """Any one element within the rollout changes the hash of its replica, and is named."""
    for array in rollout().declared:
        if not array.hashed:
            continue
        first = SIZES.history if array.name.startswith("frames.") else 0
        place = (1, first + 3, *(0 for _ in array.shape[2:]))
        other = rollout(set_at(array.name, place, 0))
        found = first_divergence(seen(rollout()), seen(other))
        assert found is not None
        assert (found.replica, found.step) == (1, 3)
        assert replica_digest(rollout(), 1) != replica_digest(other, 1)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    """Every array with its type, in the digest's order; a later change of the storage is not in."""
    storage = rollout(set_at("reward", (1, 2, 0), np.nan))
    found = seen(storage)
    storage.arrays["reward"][:] = 7
    save(found, str(tmp_path / "kept"))
    again = load(str(tmp_path / "kept"))
    assert list(again.arrays) == list(found.arrays)
    assert again.form == found.form
    assert first_divergence(found, again) is None
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_only_the_rollout_that_was_asked_for_is_kept(tmp_path: Path) -> None:
    """Rollout 1 of 0, 1, 2 with the parameters made of it."""
    keep = Keep(1, str(tmp_path / "kept"))
    for number in range(3):
        keep.complete(number, rollout(set_at("reward", (0, 0, 0), number)))
        keep.learnt(number, np.full(4, number, np.float32))
    assert load(keep.path).arrays["reward"][0, 0, 0] == 1.0
    assert load_parameters(keep.path).tolist() == [1.0] * 4


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    """An array of objects would have to be unpickled: it is neither saved nor loaded."""
    objects = np.array([[None, 1]], dtype=object)
    with pytest.raises(ValueError, match="pickle"):
        save(Seen({"reward": objects}), str(tmp_path / "kept"))
    np.savez(tmp_path / "other.npz", reward=objects)
    with pytest.raises(ValueError, match="pickle"):
        load(str(tmp_path / "other.npz"))


def test_the_first_parameter_that_differs_is_found() -> None:
    """Its index, how many differ, and both values."""
    ours = np.linspace(0, 1, 9, dtype=np.float32)
    theirs = ours.copy()
    theirs[[4, 7]] = np.nextafter(ours[[4, 7]], np.float32(2))
    found = first_parameter(ours, theirs)
    assert found is not None
    assert (found.index, found.count) == (4, 2)
    assert str(found.values) == "0.5 and 0.50000006 (1 unit in the last place apart)"
    assert first_parameter(ours, ours.copy()) is None
