"""Policies that critics teach: what they do, and how it is explored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from hts.config import PQL, Mlp
from hts.machine import Sizes
from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.models.exploring import WARM_UP, Deterministic, Stochastic, Taught
from hts.models.policy import Policy
from hts.roles.actor import Actor
from hts.roles.explorer import Explorer, actor_for, deviations
from hts_envs.contract import Array, Box, Spaces
from hts_envs.randomness import fold_rows, uniform
from tests.fakes.runs import experiment

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


def test_smoothed_targets_stay_within_bounds() -> None:
    """Noise that would leave [-1, 1] is cut off there, on both sides."""
    actions = Deterministic(NUMBERS)
    for side in (-1.0, 1.0):
        near = actions.smoothed(heads(actions) + side * 9.0, chances(0.7), 0.2, 0.5)
        assert near.abs().max() == 1.0
        assert (near - side).abs().max() <= 0.5 + 1e-6


def test_a_soft_policy_explores_as_it_acts() -> None:
    """Its own deviation is its exploration; its likeliest action is tanh of the mean."""
    actions = Stochastic(NUMBERS)
    head = torch.randn(ROWS, actions.size, generator=torch.Generator().manual_seed(0))
    drawn, _ = actions.drawn(head, chances(0.7))
    assert torch.equal(explored(actions, head, 0.7), drawn)
    assert torch.equal(actions.likeliest(head), torch.tanh(head[:, :NUMBERS]))


def test_actions_at_their_bounds_have_a_probability() -> None:
    """tanh rounds to 1 from 9 on, whose inverse is infinite: taken for the float32 below it."""
    actions = Stochastic(1)
    found = actions.log_prob(torch.zeros(2, 2), torch.tensor([[-1.0], [1.0]]))
    assert torch.isfinite(found).all()


def test_three_numbers_have_three_means_deviations_and_draws() -> None:
    """Uniforms in pairs: the first of a number's pair stands before all second ones."""
    actions, draw = Stochastic(3), np.random.default_rng(0)
    head, uniforms = draw.normal(size=(5, 6)), draw.random((5, 7))
    normal = np.sqrt(-2.0 * np.log(1.0 - uniforms[:, :3])) * np.cos(2.0 * np.pi * uniforms[:, 3:6])
    deviation = np.exp(-5.0 + 3.5 * (np.tanh(head[:, 3:]) + 1.0))
    found, _ = actions.drawn(torch.tensor(head).float(), torch.tensor(uniforms).float())
    np.testing.assert_allclose(found, np.tanh(head[:, :3] + deviation * normal), rtol=1e-4)


def test_exploration_is_mixed_over_replicas() -> None:
    """Evenly from the smallest to the largest; one size for all where both are the same."""
    mixed = deviations(PQL(noise_low=0.05, noise_high=0.8), 4)
    np.testing.assert_allclose(mixed, [0.05, 0.3, 0.55, 0.8], rtol=1e-6)
    assert deviations(PQL(noise_low=0.4, noise_high=0.4), 3).tolist() == [np.float32(0.4)] * 3


def acted(rollout: int, rows: Rows) -> tuple[Storage, Array]:
    """The rollout after an explorer has answered these rows, and what its policy alone would do.

    Three replicas of four steps; the first five steps of each replica are random."""
    algo = PQL(warm_up=5, noise_low=0.1, noise_high=0.9)
    one = experiment(algo=algo, replicas=3, rollout=4, model=Mlp(hidden=()))
    spaces = Spaces({"observation": Box((2,))}, Box((NUMBERS,), low=-1.0, high=1.0))
    storage = Storage(Sizes.of(one, spaces), spaces)
    draw = np.random.default_rng(0)
    storage.arrays["frames.observation"][:] = draw.uniform(-1, 1, (3, 5, 1, 2))
    storage.key[:] = draw.integers(0, 2**63, (3, 4))
    storage.version = rollout
    policy = Policy(one, spaces)
    weight = draw.normal(0.0, 0.3, policy.size).astype(np.float32)
    version = Version(rollout, torch.from_numpy(weight))
    Explorer(algo, lambda: policy, 1, 3).act(storage, rows, version)
    frames = storage.arrays["frames.observation"][:, :4, 0].astype(np.float64)
    return storage, np.tanh(frames @ weight[:4].reshape(NUMBERS, 2).T + weight[4:])


def test_every_replica_explores_with_its_own_noise() -> None:
    """Mixed exploration: a = clip(tanh(head) + N(0, sigma_i)), with sigma 0.1, 0.5 and 0.9."""
    rows = Rows(np.array([2, 0, 1, 1]), np.array([3, 1, 2, 1]))
    storage, middle = acted(1, rows)
    drawn = uniform(storage.key[rows.replicas, rows.steps], 2 * NUMBERS + 1)
    normal = np.sqrt(-2.0 * np.log(1.0 - drawn[:, :2])) * np.cos(2.0 * np.pi * drawn[:, 2:4])
    sigma = np.array([0.9, 0.1, 0.5, 0.5])[:, None]
    expected = np.clip(middle[rows.replicas, rows.steps] + sigma * normal, -1.0, 1.0)
    found = storage.action[rows.replicas, rows.steps, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_explorer_is_asked_for_actions_alone() -> None:
    """Critics value what is behind a step when it is learnt from; others are asked for values."""
    storage, _ = acted(0, Rows(np.array([0]), np.array([0])))
    storage.truncated[:] = True
    off, on = experiment(algo=PQL()), experiment()

    def unused() -> Policy:
        raise AssertionError("no network is asked")

    explorer, actor = (actor_for(each, unused, 1, 3) for each in (off, on))
    assert (type(explorer), type(actor)) == (Explorer, Actor)
    due = explorer._due(storage, [(range(3), 2)], apart=False)
    assert due.act is not None
    assert (due.act.replicas.tolist(), due.act.steps.tolist()) == ([0, 1, 2], [2, 2, 2])
    assert (due.final, due.behind, len(due.whole)) == (None, None, 0)
    assert actor._due(storage, [(range(3), 2)], apart=False).final is not None


def test_the_first_steps_of_a_run_are_random() -> None:
    """Counted over rollouts: of four steps each, the fifth step is the second rollout's first."""
    rows = Rows(np.array([1, 1, 2]), np.array([0, 1, 0]))
    storage, _ = acted(1, rows)
    drawn = 2.0 * uniform(storage.key[rows.replicas, rows.steps], 2 * NUMBERS + 1) - 1.0
    found = storage.action[rows.replicas, rows.steps, 0]
    np.testing.assert_allclose(found[[0, 2]], drawn[[0, 2], :2], rtol=1e-4, atol=1e-5)
    assert np.abs(found[1] - drawn[1, :2]).max() > 0.01, "after that the policy acts"
    first, _ = acted(0, Rows(np.array([0]), np.array([3])))
    drawn = 2.0 * uniform(first.key[:1, 3], 2 * NUMBERS + 1) - 1.0
    np.testing.assert_allclose(first.action[0, 3, 0], drawn[0, :2], rtol=1e-4, atol=1e-5)
