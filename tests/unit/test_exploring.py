"""Policies that critics teach: what they do, and how it is explored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from hts.config import PQL
from hts.models.exploring import WARM_UP, Deterministic, Stochastic, Taught
from hts.roles.explorer import deviations
from hts_envs.randomness import fold_rows, uniform

ROWS, NUMBERS = 4000, 2


def chances(deviation: float) -> Tensor:
    """Uniforms of many rows, and the size of their noise."""
    drawn = uniform(fold_rows(3, np.arange(ROWS)), 2 * NUMBERS + 1).astype(np.float32)
    drawn[:, -1] = deviation
    return torch.from_numpy(drawn)


def explored(actions: Taught, head: Tensor, deviation: float) -> Tensor:
    action, _ = actions.draw(head, chances(deviation).numpy())
    return torch.from_numpy(action)


def heads(taught: Taught) -> Tensor:
    return torch.full((ROWS, taught.size), 0.3)


@pytest.mark.parametrize("kind", [Deterministic, Stochastic])
def test_random_actions_fill_their_bounds(kind: type[Taught]) -> None:
    """Before anything is learnt every action is as likely as any other, whatever the head says."""
    actions = kind(NUMBERS)
    found = explored(actions, heads(actions), WARM_UP)
    assert torch.equal(found, explored(actions, heads(actions) * -7, WARM_UP))
    assert found.min() < -0.99
    assert found.max() > 0.99
    assert found.mean().abs() < 0.03
    assert found.std() == pytest.approx(2 / 12**0.5, abs=0.02)


def test_noise_has_the_size_of_its_replica() -> None:
    """Around tanh of the head, cut off at the bounds; none at all where the size is 0."""
    actions = Deterministic(NUMBERS)
    middle = np.tanh(np.float32(0.3))
    found = explored(actions, heads(actions), 0.1)
    assert found.mean() == pytest.approx(middle, abs=0.01)
    assert found.std() == pytest.approx(0.1, abs=0.005)
    assert explored(actions, heads(actions), 5.0).abs().max() == 1.0
    still = explored(actions, heads(actions), 0.0)
    assert torch.equal(still, actions.likeliest(heads(actions)))


def test_noise_on_targets_is_cut_off() -> None:
    """TD3's: of this size, and never further than the limit."""
    actions = Deterministic(NUMBERS)
    near = actions.smoothed(heads(actions), chances(0.7), 0.2, 0.5)
    apart = near - torch.tanh(heads(actions))
    assert apart.abs().max() == pytest.approx(0.5, abs=1e-6)
    assert apart.std() == pytest.approx(0.2, abs=0.02)
    assert torch.equal(near, actions.smoothed(heads(actions), chances(0.1), 0.2, 0.5))


def test_a_soft_policy_says_how_likely_its_actions_are() -> None:
    """As torch's own transformed normal distribution does, and gradients reach both parts."""
    actions = Stochastic(NUMBERS)
    head = torch.randn(ROWS, actions.size, generator=torch.Generator().manual_seed(0))
    head.requires_grad_()
    action, log_prob = actions.drawn(head, chances(0.0))
    mean, said = head.detach().chunk(2, -1)
    deviation = torch.exp(-5.0 + (torch.tanh(said) + 1.0) * 3.5)
    inside = action.detach().abs().amax(1) < 0.999  # where the inverse of tanh is exact enough
    assert inside.sum() > ROWS / 2
    normal = torch.distributions.Normal(mean[inside], deviation[inside])
    tanh = torch.distributions.TransformedDistribution(
        normal, [torch.distributions.TanhTransform()]
    )
    expected = tanh.log_prob(action.detach()[inside]).sum(-1)
    torch.testing.assert_close(log_prob.detach()[inside], expected, rtol=2e-3, atol=2e-3)
    said_again = actions.log_prob(head.detach(), action.detach())[inside]
    torch.testing.assert_close(said_again, expected, rtol=2e-3, atol=2e-3)
    (action.sum() + log_prob.sum()).backward()
    assert head.grad is not None
    assert (head.grad.abs().sum(0) > 0).all()


def test_exploration_is_mixed_over_replicas() -> None:
    """Evenly from the smallest to the largest; one size for all where both are the same."""
    mixed = deviations(PQL(noise_low=0.05, noise_high=0.8), 4)
    np.testing.assert_allclose(mixed, [0.05, 0.3, 0.55, 0.8], rtol=1e-6)
    assert deviations(PQL(noise_low=0.4, noise_high=0.4), 3).tolist() == [np.float32(0.4)] * 3
