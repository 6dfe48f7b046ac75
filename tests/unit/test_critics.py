"""What critics are taught, against slow transcriptions and literal numbers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hts.learn.critics import (
    Atoms,
    chances_loss,
    follow,
    project,
    target_chances,
    target_values,
    value_loss,
    worth,
)

ATOMS = Atoms(-1.0, 1.0, 5)


def values(*numbers: tuple[float, float]) -> Tensor:
    """What both critics say of each row."""
    return torch.tensor(numbers).T[:, :, None]


def test_a_target_takes_the_smaller_value() -> None:
    """reward + discount * min, row by row, and nothing behind a termination."""
    said = values((3.0, 2.0), (-1.0, 4.0), (7.0, 9.0))
    found = target_values(said, torch.tensor([1.0, 1.0, 1.0]), torch.tensor([0.5, 0.5, 0.0]))
    assert found.tolist() == [2.0, 0.5, 1.0]


def test_squared_errors_are_those_of_both_critics() -> None:
    """(3-1)^2 + (2-1)^2 + (0-1)^2 + (1-1)^2."""
    assert value_loss(values((3.0, 2.0), (0.0, 1.0)), torch.tensor([1.0, 1.0])).item() == 6.0


def test_the_worth_of_chances_is_their_mean() -> None:
    """Half at -1, half at 1, and all at the middle."""
    far = -1e9
    said = torch.tensor([[[0.0, far, far, far, 0.0]], [[far, far, 0.0, far, far]]])
    assert worth(said, ATOMS).tolist() == [[0.0], [0.0]]


def test_a_chance_between_two_atoms_is_shared_by_nearness() -> None:
    """All at 0.5, moved to 0.1 + 0.5 * 0.5 = 0.35: 0.3 of it at 0, 0.7 at 0.5."""
    chances = torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0]])
    found = project(chances, torch.tensor([0.1]), torch.tensor([0.5]), ATOMS)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0, 0.3, 0.7, 0.0]]))


def test_what_leaves_the_atoms_stays_at_their_ends() -> None:
    """Rewards beyond them."""
    chances = torch.full((2, 5), 0.2)
    found = project(chances, torch.tensor([9.0, -9.0]), torch.tensor([1.0, 1.0]), ATOMS)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0, 0, 0, 1], [1.0, 0, 0, 0, 0]]))


def slowly(chances: list[float], reward: float, discount: float, atoms: Atoms) -> list[float]:
    """Atom by atom, as the paper on distributional learning writes it."""
    found = [0.0] * atoms.count
    for j, chance in enumerate(chances):
        value = atoms.low + j * atoms.apart
        at = (min(max(reward + discount * value, atoms.low), atoms.high) - atoms.low) / atoms.apart
        lower, upper = math.floor(at), math.ceil(at)
        if lower == upper:
            found[lower] += chance
        else:
            found[lower] += chance * (upper - at)
            found[upper] += chance * (at - lower)
    return found


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 51))
def test_projections_are_those_of_a_slow_walk(seed: int, count: int) -> None:
    """Any chances, rewards and discounts; chances add up to one. float32, hence the tolerance."""
    draw = torch.Generator().manual_seed(seed)
    atoms = Atoms(-10.0, 10.0, count)
    chances = torch.softmax(torch.randn(4, count, generator=draw) * 3, -1)
    reward, discount = torch.randn(4, generator=draw) * 5, torch.rand(4, generator=draw)
    found = project(chances, reward, discount, atoms)
    expected = [
        slowly(c, r, d, atoms)
        for c, r, d in zip(chances.tolist(), reward.tolist(), discount.tolist(), strict=True)
    ]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(found.sum(-1), torch.ones(4))


def test_the_target_is_of_the_critic_that_expects_less() -> None:
    """Row by row: the first critic's belief in the first row, the second's in the second."""
    low, high = [9.0, 0, 0, 0, 0], [0.0, 0, 0, 0, 9.0]
    said = torch.tensor([[low, high], [high, low]])
    found = target_chances(said, torch.zeros(2), torch.ones(2), ATOMS)
    expected = torch.softmax(torch.tensor([low, low]), -1)
    torch.testing.assert_close(found, expected)


def test_of_critics_that_expect_the_same_the_first_is_the_target() -> None:
    """Half at both ends, or all in the middle: the mean is 0 for both."""
    far = -1e9
    ends, middle = [0.0, far, far, far, 0.0], [far, far, 0.0, far, far]
    said = torch.tensor([[ends, middle], [middle, ends]])
    found = target_chances(said, torch.zeros(2), torch.ones(2), ATOMS)
    torch.testing.assert_close(found, torch.softmax(torch.tensor([ends, middle]), -1))


def test_the_loss_of_chances_is_a_cross_entropy() -> None:
    """Both critics, summed over rows: log 5 for each that believes in nothing."""
    target = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]])
    assert chances_loss(torch.zeros(2, 1, 5), target).item() == pytest.approx(2 * math.log(5))


def test_targets_follow_a_part_of_the_way() -> None:
    """0.95 of what they were and 0.05 of what critics are."""
    target, newest = torch.tensor([1.0, -2.0]), torch.tensor([3.0, 2.0])
    follow(target, newest, 0.05)
    torch.testing.assert_close(target, torch.tensor([1.1, -1.8]))
    assert newest.tolist() == [3.0, 2.0]
