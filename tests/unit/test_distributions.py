"""Distributions over actions: what is drawn, how likely it was, and that rows are alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from hts.determinism.keys import Purpose, keys
from hts.models.bounds import as_drawn, squashed, taken_in
from hts.models.distributions import (
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
    Squashed,
    distribution,
)
from hts.models.policy import uniforms
from hts_envs.contract import Array, Box, Discrete, MultiDiscrete, Spaces

BOUNDED = Box((3,), "float32", (-2.0, 0.0, -1.0), (2.0, 0.5, 7.0))
EACH: list[Distribution] = [
    Categorical(5),
    MultiCategorical((2, 3, 4)),
    Gaussian(3),
    Squashed(BOUNDED),
]
DRAWS = 100_000


def noise(rows: int, count: int, seed: int = 0) -> Array:
    """Uniform numbers as an actor draws them."""
    return uniforms(keys(seed, Purpose.ACTION, np.arange(rows)), 1, count)


def drawn_by(made: Distribution, head: Tensor, chances: Array) -> Tensor:
    """The actions, as a learner sees them."""
    action, _ = made.draw(head, chances)
    return torch.from_numpy(action)


def heads(made: Distribution, rows: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, made.size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("space", "kind", "size", "drawn"),
    [
        (Discrete(19), Categorical, 19, 1),
        (MultiDiscrete((2, 3, 4)), MultiCategorical, 9, 3),
        (Box((2,)), Gaussian, 4, 4),
        (Box((2, 3)), Gaussian, 12, 12),
        (Box(()), Gaussian, 2, 2),
    ],
)
def test_every_space_of_actions_has_one(
    space: Discrete | MultiDiscrete | Box, kind: type[Distribution], size: int, drawn: int
) -> None:
    """Its kind, how many numbers of the head it takes and how many uniforms."""
    found = distribution(space)
    assert (type(found), found.size, found.noise) == (kind, size, drawn)


def test_categorical_frequencies() -> None:
    """Among 100,000 draws, each action comes as often as it should, within 5 deviations."""
    head = torch.tensor([[0.0, 2.0, -1.0, 0.5, -9.0]])
    chance = torch.softmax(head, -1)[0].numpy()
    drawn = drawn_by(Categorical(5), head.expand(DRAWS, -1), noise(DRAWS, 1))
    seen = np.bincount(drawn.numpy(), minlength=5) / DRAWS
    assert np.all(np.abs(seen - chance) <= 5 * np.sqrt(chance * (1 - chance) / DRAWS))


def test_multi_categorical_frequencies_and_independence() -> None:
    """All 24 combinations come as often as the product of their parts says."""
    made = MultiCategorical((2, 3, 4))
    head = heads(made, 1)
    parts = [torch.softmax(part, -1)[0].numpy() for part in torch.split(head, [2, 3, 4], -1)]
    chance = np.einsum("i,j,k->ijk", *parts)
    drawn = drawn_by(made, head.expand(DRAWS, -1), noise(DRAWS, 3)).numpy()
    seen = np.zeros((2, 3, 4))
    np.add.at(seen, tuple(drawn.T), 1 / DRAWS)
    assert np.all(np.abs(seen - chance) <= 5 * np.sqrt(chance * (1 - chance) / DRAWS))


def test_gaussian_moments() -> None:
    """Mean, deviation and share within one deviation, each within 5 of its own deviations."""
    made = Gaussian(2)
    head = torch.tensor([[1.0, -2.0, np.log(0.5), np.log(3.0)]]).expand(DRAWS, -1)
    scaled = drawn_by(made, head, noise(DRAWS, made.noise)).numpy()
    scaled = (scaled - [1.0, -2.0]) / [0.5, 3.0]
    assert np.all(np.abs(scaled.mean(0)) < 5 / np.sqrt(DRAWS))
    assert np.all(np.abs(scaled.var(0) - 1) < 5 * np.sqrt(2 / DRAWS))
    assert abs(np.corrcoef(scaled.T)[0, 1]) < 5 / np.sqrt(DRAWS)
    within = (np.abs(scaled) < 1).mean(0)
    assert np.all(np.abs(within - 0.6827) < 5 * np.sqrt(0.6827 * 0.3173 / DRAWS))


def test_categorical_is_torchs() -> None:
    """Log-probability and entropy of torch.distributions, to float32's precision."""
    made = Categorical(5)
    head = heads(made, 50)
    action = drawn_by(made, head, noise(50, 1))
    theirs = torch.distributions.Categorical(logits=head)
    torch.testing.assert_close(made.log_prob(head, action), theirs.log_prob(action))
    torch.testing.assert_close(made.entropy(head), theirs.entropy())


def test_multi_categorical_is_the_sum_of_its_parts() -> None:
    """Log-probability and entropy of independent choices add up."""
    made = MultiCategorical((2, 3, 4))
    head = heads(made, 50)
    action = drawn_by(made, head, noise(50, 3))
    parts = torch.split(head, [2, 3, 4], -1)
    theirs = [torch.distributions.Categorical(logits=part) for part in parts]
    log_prob = sum(one.log_prob(action[:, i]) for i, one in enumerate(theirs))
    assert isinstance(log_prob, Tensor)
    torch.testing.assert_close(made.log_prob(head, action), log_prob)
    torch.testing.assert_close(
        made.entropy(head), torch.stack([t.entropy() for t in theirs]).sum(0)
    )


def test_gaussian_is_torchs() -> None:
    """Log-probability and entropy of a diagonal normal distribution."""
    made = Gaussian(3)
    head = heads(made, 50)
    action = drawn_by(made, head, noise(50, made.noise))
    normal = torch.distributions.Normal(head[:, :3], head[:, 3:].exp())
    theirs = torch.distributions.Independent(normal, 1)
    torch.testing.assert_close(made.log_prob(head, action), theirs.log_prob(action))
    torch.testing.assert_close(made.entropy(head), theirs.entropy())


def slow_log_prob(head: Array, drawn: Array, low: Array, high: Array) -> float:
    """The density of one action within its bounds, in float64 and by the book."""
    total = 0.0
    mean, log_deviation = np.split(head.astype(np.float64), 2)
    for i, u in enumerate(drawn.astype(np.float64)):
        deviation = math.exp(log_deviation[i])
        density = math.exp(-0.5 * ((u - mean[i]) / deviation) ** 2)
        density /= deviation * math.sqrt(2 * math.pi)
        slope = (1 - math.tanh(u) ** 2) * (high[i] - low[i]) / 2  # da/du
        total += math.log(density / slope)
    return total


def test_squashed_log_prob_is_that_of_the_action_within_its_bounds() -> None:
    """Against the change of variables written out; and where 1 - tanh^2 is 0 in float32, the
    limit: log da/du = log 4 - 2 |u| + log of half the width."""
    made = Squashed(BOUNDED)
    head = heads(made, 50) * 0.5
    action = drawn_by(made, head, noise(50, made.noise))
    low, high = np.asarray(BOUNDED.low), np.asarray(BOUNDED.high)
    expected = [
        slow_log_prob(h, u, low, high) for h, u in zip(head.numpy(), action.numpy(), strict=True)
    ]
    np.testing.assert_allclose(made.log_prob(head, action).numpy(), expected, rtol=1e-5, atol=1e-5)
    one = Squashed(Box((), "float32", -3.0, 3.0))
    for far in (-40.0, 40.0):
        found = one.log_prob(torch.tensor([[far, 0.0]]), torch.tensor([[far]]))
        expected_far = -0.5 * math.log(2 * math.pi) - (math.log(4.0) - 80.0 + math.log(3.0))
        assert float(found) == pytest.approx(expected_far, rel=1e-6)


def test_squashed_probabilities_integrate_to_one() -> None:
    """Over the bounds, in the action's own units: the density is one of actions."""
    made = Squashed(Box((1,), "float32", -1.0, 3.0))
    u = torch.linspace(-8.0, 8.0, 20_001)[:, None]
    head = torch.tensor([[0.3, math.log(0.7)]]).expand(len(u), -1)
    density = made.log_prob(head, u).double().exp().numpy()
    action = -1.0 + 4.0 * (np.tanh(u[:, 0].double().numpy()) + 1.0) / 2.0
    assert np.trapezoid(density, action) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    ("deviation", "tolerance"), [(0.05, 2e-6), (1.0, 2e-6), (2.0, 2e-4), (4.0, 0.02)]
)
@pytest.mark.parametrize("mean", [0.0, -0.4, 2.5, 20.0])
def test_squashed_entropy(mean: float, deviation: float, tolerance: float) -> None:
    """Against a fine integral of -p log p over the normal number; tolerances are quadrature's."""
    u = np.linspace(mean - 12 * deviation, mean + 12 * deviation, 200_001)
    log_normal = -0.5 * ((u - mean) / deviation) ** 2 - math.log(deviation * math.sqrt(2 * math.pi))
    log_slope = 2.0 * (math.log(2.0) - np.abs(u) - np.log1p(np.exp(-2.0 * np.abs(u))))
    exact = -np.trapezoid(np.exp(log_normal) * (log_normal - log_slope - math.log(0.5)), u)
    head = torch.tensor([[mean, math.log(deviation)]])
    found = Squashed(Box((1,), "float32", 0.0, 1.0)).entropy(head)
    assert float(found) == pytest.approx(exact, abs=tolerance * max(1.0, abs(exact)))


def test_squashed_entropy_is_the_mean_of_its_surprise() -> None:
    """Among 100,000 draws, minus the mean log-probability is the entropy, within 5 deviations."""
    made = Squashed(BOUNDED)
    head = (heads(made, 1) * 0.5).expand(DRAWS, -1)
    said = made.log_prob(head, drawn_by(made, head, noise(DRAWS, made.noise))).double()
    error = abs(float(said.mean() + made.entropy(head[:1])))
    assert error < 5 * float(said.std()) / math.sqrt(DRAWS)


def test_squashed_entropy_can_be_climbed() -> None:
    """Its gradient is that of differences: means towards the middle, deviations up to a point."""
    made = Squashed(Box((2,), "float32", -1.0, 1.0))
    head = torch.tensor([[1.5, -0.2, -0.5, 1.0]], requires_grad=True)
    made.entropy(head).sum().backward()
    assert head.grad is not None
    for i in range(4):
        step = torch.zeros_like(head)
        step[0, i] = 0.01
        with torch.no_grad():
            rise = float(made.entropy(head + step) - made.entropy(head - step)) / 0.02
        assert float(head.grad[0, i]) == pytest.approx(rise, abs=1e-3)
    assert head.grad[0, 0] < 0 < head.grad[0, 1]


def test_squashed_actions_lie_within_their_bounds() -> None:
    """In the middle for 0, at the very bounds for what is far, never outside, also where the
    width is no float32; the map that executors use, with and without squashing."""
    low, high = np.float32([-2.0, -0.1, 0.1]), np.float32([2.0, 0.3, 0.7])
    drawn = np.float32([[0.0] * 3, [30.0] * 3, [-30.0] * 3, [0.5] * 3, [1e30] * 3, [-1e30] * 3])
    found = squashed(drawn, low, high)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[0], (low + high) / 2, rtol=1e-6)
    for row, bound in ((1, high), (2, low), (4, high), (5, low)):
        np.testing.assert_allclose(found[row], bound, rtol=1e-6)
    assert np.all((found >= low) & (found <= high))
    expected = low + (np.tanh(0.5) + 1) / 2 * (high - low)
    np.testing.assert_allclose(found[3], expected, rtol=1e-6)
    box = Box((3,), "float32", tuple(low.tolist()), tuple(high.tolist()))
    spaces = Spaces({}, box)
    assert taken_in(spaces, "squashed")(drawn).tobytes() == found.tobytes()
    assert np.array_equal(taken_in(spaces)(drawn), np.clip(drawn, low, high))
    assert taken_in(Spaces({}, Discrete(3))) is as_drawn


def test_squashing_sees_each_number_alone() -> None:
    """Bit-equal whatever the array around it: every offset, length and stride, and no alignment."""
    random = np.random.default_rng(0)
    drawn = (random.normal(size=2048) * 3).astype(np.float32)
    low, high = np.float32(-0.3), np.float32(1.7)
    alone = np.concatenate([squashed(drawn[i : i + 1], low, high) for i in range(len(drawn))])
    for offset in range(36):
        for length in (1, 2, 3, 5, 8, 13, 16, 17, 31, 64, 65, 1000):
            for stride in (1, 2, 3, -1):
                part = slice(offset, offset + length)
                found = squashed(drawn[::stride][part], low, high)
                assert found.tobytes() == alone[::stride][part].tobytes()
    shifted = np.zeros(4 * 2048 + 1, np.uint8)[1:].view(np.float32)
    shifted[:] = drawn
    assert squashed(shifted, low, high).tobytes() == alone.tobytes()
    columns = squashed(np.asfortranarray(drawn.reshape(64, 32)), low, high)
    assert np.array_equal(columns.reshape(-1), alone)


def test_squashing_is_asked_for() -> None:
    """A space of numbers has either distribution; choices have theirs."""
    assert type(distribution(BOUNDED)) is Gaussian
    assert type(distribution(BOUNDED, squash=True)) is Squashed
    assert type(distribution(Discrete(2), squash=True)) is Categorical


@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (1, 2, 3)])
def test_a_continuous_action_may_have_any_shape(shape: tuple[int, ...]) -> None:
    """One log-probability for each row, the same as that of the flat action."""
    made = distribution(Box(shape))
    head = heads(made, 8)
    flat = drawn_by(made, head, noise(8, made.noise))
    found = made.log_prob(head, flat.reshape(8, *shape))
    assert found.shape == (8,)
    assert torch.equal(found, made.log_prob(head, flat))


@pytest.mark.parametrize("made", EACH, ids=lambda made: type(made).__name__)
def test_what_is_drawn_comes_with_its_log_probability(made: Distribution) -> None:
    """The bits that a learner finds for the same action, whose ratio is then exactly 1."""
    head = heads(made, 64)
    action, log_prob = made.draw(head, noise(64, made.noise))
    assert log_prob.tobytes() == made.log_prob(head, torch.from_numpy(action)).numpy().tobytes()


@pytest.mark.parametrize("made", EACH, ids=lambda made: type(made).__name__)
def test_a_row_is_alone(made: Distribution) -> None:
    """Rule 19: the same head and noise give the same action, whatever is drawn in other rows."""
    head, drawn = heads(made, 64), noise(64, made.noise)
    whole = drawn_by(made, head, drawn)
    assert torch.equal(drawn_by(made, head, drawn), whole)
    other = drawn_by(made, heads(made, 64, seed=2), noise(64, made.noise, seed=2))
    mixed_head, mixed_noise = heads(made, 64, seed=2), noise(64, made.noise, seed=2)
    mixed_head[::4], mixed_noise[::4] = head[::4], drawn[::4]
    mixed = drawn_by(made, mixed_head, mixed_noise)
    assert torch.equal(mixed[::4], whole[::4])
    assert torch.equal(mixed[1::4], other[1::4])
    assert not torch.equal(other, whole)


def test_an_impossible_action_is_not_drawn() -> None:
    """An action whose probability is 0 in float32: first or in the middle, where noise is 0 or
    stands exactly on its edge; last, where all others together are a little less than 1."""
    head = torch.tensor([[-200.0, 0.0, 0.0], [0.0, -200.0, 0.0], [0.0, -200.0, 0.0]])
    drawn = drawn_by(Categorical(3), head, np.array([[0.0], [0.0], [0.5]], np.float32))
    assert drawn.tolist() == [1, 0, 2]
    others = heads(Categorical(7), 4000)
    others[:, -1] = -200.0
    largest = np.full((4000, 1), 1.0 - 2.0**-24, np.float32)
    assert int(drawn_by(Categorical(7), others, largest).max()) == 5


@pytest.mark.parametrize("made", EACH, ids=lambda made: type(made).__name__)
def test_the_extremes_of_noise_are_actions(made: Distribution) -> None:
    """0 and the largest float32 below 1 draw a finite action of the space."""
    for extreme in (0.0, 1.0 - 2.0**-24):
        drawn = drawn_by(made, heads(made, 16), np.full((16, made.noise), extreme, np.float32))
        assert bool(torch.isfinite(drawn).all())
        if isinstance(made, Categorical):
            assert drawn.unique().tolist() == [0 if extreme == 0.0 else 4]


def test_uniforms_stay_below_one_and_differ_between_agents() -> None:
    """A float64 just below 1 is not rounded to 1; agents of one key do not draw alike."""
    named = keys(0, Purpose.ACTION, np.arange(5000))
    drawn = uniforms(named, 3, 2)
    assert drawn.shape == (15000, 2)
    assert drawn.dtype == np.float32
    assert drawn.max() < 1.0
    assert len(np.unique(drawn.reshape(-1)[:600])) == 600
    assert uniforms(named[7:9], 3, 2).tobytes() == drawn[21:27].tobytes()
