"""Random numbers that are functions of the integers that name them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hts_envs.randomness import fold, fold_rows, normal, uniform

WORDS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5)


@given(WORDS)
def test_integers_and_arrays_give_the_same_key(parts: list[int]) -> None:
    """A key computed one by one equals the key computed for many rows at once."""
    rows = fold_rows(*(np.array([part, part], np.uint64) for part in parts))
    assert [int(row) for row in rows] == [fold(*parts)] * 2
    alone = fold_rows(*(np.array([part], np.uint64) for part in parts))
    assert alone.tobytes() == rows[:1].tobytes()


KINDS = st.sampled_from(["int", "one", "rows"])
PARTS = st.lists(st.tuples(KINDS, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=5)


@given(PARTS)
def test_integers_before_between_and_behind_arrays_are_every_row_s(
    parts: list[tuple[str, int]],
) -> None:
    """Negative ones, too: as they are in 64 bits."""
    made = {"int": int, "one": lambda x: np.array([x]), "rows": lambda x: np.array([x, x, x])}
    rows = fold_rows(*(made[kind](part) for kind, part in parts))
    expected = fold(*(part for _, part in parts))
    assert [int(row) for row in rows] == [expected] * len(rows)
    assert len(rows) == (3 if "rows" in dict(parts) else 1)


def test_keys_are_these_numbers() -> None:
    """A change of the mixing would change every digest: these literals stand in its way."""
    assert fold(0) == 16294208416658607535
    assert fold(1, 2, 3) == 311187881747258822


def test_order_and_length_matter() -> None:
    """No two of these names share a key, zeros included."""
    names = [(0,), (0, 0), (0, 0, 0), (1,), (1, 0), (0, 1), (1, 1), (2, 1), (1, 2)]
    assert len({fold(*name) for name in names}) == len(names)


def test_one_changed_bit_changes_half_of_the_key() -> None:
    """Neighbouring names have unrelated keys: 32 of 64 bits differ, give or take."""
    flips = [
        (fold(7, step) ^ fold(7, step ^ (1 << bit))).bit_count()
        for step in range(64)
        for bit in range(64)
    ]
    assert abs(float(np.mean(flips)) - 32) < 0.2
    assert min(flips) > 8


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """Numbers for many keys at once are the numbers for each key alone, bit for bit."""
    keys = fold_rows(5, np.arange(37))
    for draw in (uniform, normal):
        together = draw(keys, 5)
        alone = np.concatenate([draw(keys[row : row + 1], 5) for row in range(37)])
        assert together.tobytes() == alone.tobytes()


def test_uniform_and_normal_have_their_moments() -> None:
    """Means, deviations and range over 200,000 numbers from keys in a row."""
    keys = fold_rows(9, np.arange(50_000))
    flat, bell = uniform(keys, 4), normal(keys, 4)
    assert flat.min() >= 0
    assert flat.max() < 1
    assert abs(flat.mean() - 0.5) < 0.003
    assert abs(flat.var() - 1 / 12) < 0.001
    assert abs(bell.mean()) < 0.01
    assert abs(bell.std() - 1) < 0.01
    assert abs(np.corrcoef(flat[:, 0], flat[:, 1])[0, 1]) < 0.02
