"""n-step returns against a slow walk along each row, and against literal numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hts.replay.nstep import Steps, returns
from hts_envs.contract import Array


def steps(rows: list[list[float]], **flags: list[list[int]]) -> Steps:
    """Rewards row by row; flags by the steps at which they are set, and how many are written."""
    reward = np.array(rows, np.float32)

    def at(name: str) -> Array:
        marked = flags.get(name, [[]] * len(rows))
        return np.array([np.isin(np.arange(reward.shape[1]), row) for row in marked])

    written = np.array(flags.get("written", [[reward.shape[1]]] * len(rows)))
    return Steps(reward, at("terminated"), at("truncated"), np.arange(reward.shape[1]) < written)


def test_three_steps_that_go_on() -> None:
    """1 + 2/2 + 4/4 and a value that counts an eighth, behind the third step."""
    found = returns(steps([[1, 2, 4]]), 0.5)
    assert found.reward.tolist() == [3.0]
    assert found.discount.tolist() == [0.125]
    assert found.last.tolist() == [2]


def test_a_termination_ends_the_sum_and_leaves_no_value() -> None:
    """Rule 29: what came after it belongs to another episode."""
    found = returns(steps([[1, 2, 4]], terminated=[[1]]), 0.5)
    assert (found.reward.item(), found.discount.item(), found.last.item()) == (2.0, 0.0, 1)


def test_a_truncation_ends_the_sum_and_keeps_the_value_behind_it() -> None:
    """Rules 1 and 29: gamma to the power of the steps that were really taken."""
    found = returns(steps([[1, 2, 4]], truncated=[[0]]), 0.5)
    assert (found.reward.item(), found.discount.item(), found.last.item()) == (1.0, 0.5, 0)


def test_both_flags_are_a_termination() -> None:
    """Rule 2."""
    found = returns(steps([[1, 2, 4]], terminated=[[1]], truncated=[[1]]), 0.5)
    assert (found.reward.item(), found.discount.item()) == (2.0, 0.0)


def test_nothing_is_read_that_was_not_written() -> None:
    """Rule 29: at the write pointer a return has fewer steps, whatever stands behind it."""
    found = returns(steps([[1, 2, 1e9]], written=[[2]]), 0.5)
    assert (found.reward.item(), found.discount.item(), found.last.item()) == (2.0, 0.25, 1)


def test_a_row_that_was_not_written_is_refused() -> None:
    """Its own step has to be there."""
    with pytest.raises(AssertionError, match="own step"):
        returns(steps([[1, 2]], written=[[0]]), 0.5)


def slowly(given: Steps, row: int, gamma: float) -> tuple[float, float, int]:
    """Walk along it."""
    total, power, last = 0.0, 1.0, -1
    for step in range(given.reward.shape[1]):
        if not given.written[row, step]:
            break
        total += power * float(given.reward[row, step])
        power *= gamma
        last = step
        if given.terminated[row, step]:
            return total, 0.0, last
        if given.truncated[row, step]:
            break
    return total, power, last


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.floats(0.0, 1.0))
def test_any_rows_are_those_of_a_slow_walk(seed: int, n: int, gamma: float) -> None:
    """Every combination of flags and write pointers; exact but for float32."""
    random = np.random.default_rng(seed)
    reward = random.normal(size=(16, n)).astype(np.float32)
    terminated, truncated = random.random((2, 16, n)) < 0.2
    written = np.arange(n) < random.integers(1, n + 1, (16, 1))
    given_steps = Steps(reward, terminated, truncated, written)
    found = returns(given_steps, gamma)
    for row in range(16):
        total, discount, last = slowly(given_steps, row, gamma)
        assert found.last[row] == last
        assert found.discount[row] == pytest.approx(discount, rel=1e-6)
        assert found.reward[row] == pytest.approx(total, rel=1e-5, abs=1e-6)
