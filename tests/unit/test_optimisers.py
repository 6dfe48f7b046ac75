"""Update rules on a flat vector against PyTorch's own optimisers."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch

from hts.learn.optimisers import Adam, RmsProp, clip_norm, delayed, is_finite, make_optimiser
from hts_envs.contract import Array


@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_steps_are_those_of_torch(name: str) -> None:
    """Fifty steps on a noisy slope of 100 dimensions, with a rate that falls.

    PyTorch folds the same operations in another order, so a few roundings differ in each step:
    about 1e-7 of a parameter near 1.
    """
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(100, generator=generator)
    theirs = ours.clone().requires_grad_()
    rule: torch.optim.Optimizer
    if name == "adam":
        rule = torch.optim.Adam([theirs], eps=1e-5)
    else:
        rule = torch.optim.RMSprop([theirs], eps=1e-5)
    optimiser = make_optimiser(name, 100, 1e-5)
    for step in range(50):
        rate = 1e-2 * (1 - step / 50)
        gradient = ours.detach() + torch.randn(100, generator=generator)
        rule.param_groups[0]["lr"] = rate
        theirs.grad = gradient.clone()
        rule.step()
        ours = ours + optimiser.step(gradient, rate)
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_a_tiny_gradient_is_not_divided_by_nothing() -> None:
    """limit / (norm + 1e-6), as torch's own clipping has it: half, where both are 1e-6."""
    gradient = torch.tensor([6e-7, -8e-7])
    assert clip_norm(gradient, 1e-6).item() == pytest.approx(1e-6)
    torch.testing.assert_close(gradient, torch.tensor([3e-7, -4e-7]), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_a_step_is_written_where_the_last_one_was(name: str) -> None:
    """Fresh memory would be half of its cost for a large network."""
    optimiser, gradient = make_optimiser(name, 8, 1e-5), torch.ones(8)
    first, second = (optimiser.step(gradient, 0.1) for _ in range(2))
    assert first.data_ptr() == second.data_ptr()


@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_what_never_had_a_gradient_costs_no_more(name: str) -> None:
    """A step over zeros, and over denormals, takes the time of any other: without care for them it
    is 3 and 15 times as much."""
    size, least = 300_000, []
    gradient = torch.linspace(0.1, 1.0, size)
    for square in (torch.ones(size), torch.zeros(size), torch.full((size,), 1e-42)):
        optimiser = make_optimiser(name, size, 1e-5)
        times = []
        for _ in range(20):
            optimiser.square.copy_(square)
            small = gradient * square
            began = time.process_time()
            optimiser.step(small, 1e-3)
            times.append(time.process_time() - began)
        least.append(min(times))
    assert max(least) < 2.5 * least[0]


@pytest.mark.parametrize("epsilon", [1e-5, 1e-8])
def test_care_for_small_squares_changes_no_bit(epsilon: float) -> None:
    """Beside an epsilon, the root of a number that is not normal is nothing."""
    square = torch.tensor([0.0, 1e-45, 1e-40, 1.2e-38, 1e-30, 1e-12, 1.0])
    optimiser, gradient = RmsProp(7, epsilon, decay=1.0), torch.full((7,), 1e-30)
    optimiser.square.copy_(square)
    plain = -gradient / (square.sqrt() + epsilon)
    assert torch.equal(optimiser.step(gradient, 1.0), plain)


def test_the_first_step_of_rmsprop() -> None:
    """rate * g / (sqrt(0.01 g^2) + epsilon): with g = 2 and epsilon 0.3, 2 / (0.2 + 0.3) = 4."""
    step = RmsProp(1, 0.3).step(torch.tensor([2.0]), 0.5)
    assert step.item() == pytest.approx(-2.0, rel=1e-6)


def test_the_first_step_of_adam() -> None:
    """rate * g / (|g| + epsilon): with g = 2 and epsilon 0.5, 2 / 2.5 = 0.8."""
    step = Adam(1, 0.5).step(torch.tensor([2.0]), 0.5)
    assert step.item() == pytest.approx(-0.4, rel=1e-6)


def test_a_step_leaves_the_gradient_alone() -> None:
    """The gradient is a view that the next shard adds to."""
    for name in ("adam", "rmsprop"):
        gradient = torch.arange(5.0)
        make_optimiser(name, 5, 1e-5).step(gradient, 0.1)
        assert torch.equal(gradient, torch.arange(5.0))


def test_the_state_lies_where_it_is_asked_to() -> None:
    """A gradient on a device is not mixed with a state on another."""
    made = make_optimiser("adam", 3, 1e-5, torch.device("meta"))
    assert isinstance(made, Adam)
    assert made.mean.device.type == made.square.device.type == "meta"
    other = make_optimiser("rmsprop", 3, 1e-5, "meta")
    assert isinstance(other, RmsProp)
    assert other.square.device.type == "meta"


def test_a_small_gradient_is_not_touched() -> None:
    """Below the limit not a bit changes, and the norm is told."""
    gradient = torch.tensor([0.3, 0.4])
    before = gradient.clone()
    assert clip_norm(gradient, 0.6) == pytest.approx(0.5)
    assert torch.equal(gradient, before)


def test_a_large_gradient_is_scaled_as_torch_does() -> None:
    """The direction stays, the norm becomes the limit; the norm of before is told."""
    gradient = torch.tensor([3.0, 4.0])
    theirs = torch.zeros(2, requires_grad=True)
    theirs.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_([theirs], 0.5)
    assert clip_norm(gradient, 0.5) == 5.0
    torch.testing.assert_close(gradient, theirs.grad, rtol=1e-6, atol=0)
    np.testing.assert_allclose(gradient.norm().item(), 0.5, rtol=1e-5)


def test_each_part_has_a_norm_of_its_own() -> None:
    """Networks side by side in one vector: a large gradient of one does not shrink the other's."""
    gradient = torch.tensor([3.0, 4.0, 0.3, 0.4])
    norms = clip_norm(gradient, 0.6, parts=2)
    torch.testing.assert_close(norms, torch.tensor([5.0, 0.5]))
    torch.testing.assert_close(gradient, torch.tensor([0.36, 0.48, 0.3, 0.4]))
    assert torch.equal(gradient[2:], torch.tensor([0.3, 0.4]))


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        ((), True),
        ((math.inf,), False),
        ((math.nan,), False),
        ((math.inf, -math.inf), False),
        ((3e38, 3e38, 3e38), True),
    ],
)
def test_it_is_seen_what_is_not_finite(odd: tuple[float, ...], expected: bool) -> None:
    """Also where the sum of large numbers is not, though each of them is."""
    vector = torch.ones(1000)
    vector[100 : 100 + len(odd)] = torch.tensor(odd)
    assert is_finite(vector) is expected


def test_a_delayed_update_takes_the_way_and_not_the_place() -> None:
    """theta_2 = theta_1 + (phi - theta_0), by literal numbers; what is given stays as it is."""
    start, newest, reached = (torch.tensor(pair) for pair in ([1.0, 5.0], [2.0, 3.0], [1.5, 4.0]))
    assert torch.equal(delayed(newest, start, reached), torch.tensor([2.5, 2.0]))
    assert torch.equal(start, torch.tensor([1.0, 5.0]))
    assert torch.equal(newest, torch.tensor([2.0, 3.0]))


FARTHEST, STEEPEST = 2.0, 3.0
"""The constants F and L: the square's diagonal is sqrt 8, and theta never leaves it by much."""


def regrets(updates: int, seed: int) -> Array:
    """The mean of l(x_t, theta_t) - l(x_t, theta*) after 1, 2, ... updates by the delayed rule.

    l(x, theta) = |theta - x|^2 / 2; x is drawn from the corners of a square of side 2, theta
    starts at one of them. The delay tau is 1, and the rate sigma / sqrt(t - tau).
    """
    drawn = np.random.default_rng(seed)
    xs = torch.from_numpy(drawn.choice([-1.0, 1.0], (updates, 2)))
    best = xs.mean(0)
    sigma = FARTHEST / (math.sqrt(2.0) * STEEPEST)
    older = newest = torch.ones(2, dtype=torch.float64)
    lost = []
    for step, x in enumerate(xs, 1):
        lost.append(0.5 * float((newest - x).square().sum() - (best - x).square().sum()))
        gradient = older - x
        assert float(gradient.norm()) <= STEEPEST, "the loss is L-Lipschitz where theta goes"
        reached = older - sigma / math.sqrt(step) * gradient
        older, newest = newest, delayed(newest, older, reached)
    return np.cumsum(lost) / np.arange(1, updates + 1)


@pytest.mark.parametrize("seed", range(3))
def test_the_delayed_rule_converges_as_fast_as_promised(seed: int) -> None:
    """Appendix C of the HTS-RL paper: the mean regret never exceeds 4 F L sqrt(tau / T), and falls
    like 1 / sqrt(T): sixteen times the updates leave a quarter, and chance decides on the rest."""
    mean = regrets(2**14, seed)
    bound = 4.0 * FARTHEST * STEEPEST / np.sqrt(np.arange(1, len(mean) + 1))
    assert (mean <= bound).all()
    late = [float(mean[2**power - 1]) for power in (6, 10, 14)]
    assert 0.0 < late[2] < late[1] / 3 < late[0] / 9
    assert late[2] < 0.01
