"""Distributions over actions: what is drawn, how likely it was, and that rows are alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from hts.determinism.keys import Purpose, keys
from hts.models.distributions import (
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
    distribution,
)
from hts.models.policy import uniforms
from hts_envs.contract import Box, Discrete, MultiDiscrete

EACH: list[Distribution] = [Categorical(5), MultiCategorical((2, 3, 4)), Gaussian(3)]
DRAWS = 100_000


def noise(rows: int, count: int, seed: int = 0) -> Tensor:
    """Uniform numbers as an actor draws them."""
    named = keys(seed, Purpose.ACTION, np.arange(rows))
    return torch.from_numpy(uniforms(named, 1, count))


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
    drawn = Categorical(5).sample(head.expand(DRAWS, -1), noise(DRAWS, 1))
    seen = np.bincount(drawn.numpy(), minlength=5) / DRAWS
    assert np.all(np.abs(seen - chance) <= 5 * np.sqrt(chance * (1 - chance) / DRAWS))


def test_multi_categorical_frequencies_and_independence() -> None:
    """All 24 combinations come as often as the product of their parts says."""
    made = MultiCategorical((2, 3, 4))
    head = heads(made, 1)
    parts = [torch.softmax(part, -1)[0].numpy() for part in torch.split(head, [2, 3, 4], -1)]
    chance = np.einsum("i,j,k->ijk", *parts)
    drawn = made.sample(head.expand(DRAWS, -1), noise(DRAWS, 3)).numpy()
    seen = np.zeros((2, 3, 4))
    np.add.at(seen, tuple(drawn.T), 1 / DRAWS)
    assert np.all(np.abs(seen - chance) <= 5 * np.sqrt(chance * (1 - chance) / DRAWS))


def test_gaussian_moments() -> None:
    """Mean, deviation and share within one deviation, each within 5 of its own deviations."""
    made = Gaussian(2)
    head = torch.tensor([[1.0, -2.0, np.log(0.5), np.log(3.0)]]).expand(DRAWS, -1)
    scaled = made.sample(head, noise(DRAWS, made.noise)).numpy()
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
    action = made.sample(head, noise(50, 1))
    theirs = torch.distributions.Categorical(logits=head)
    torch.testing.assert_close(made.log_prob(head, action), theirs.log_prob(action))
    torch.testing.assert_close(made.entropy(head), theirs.entropy())


def test_multi_categorical_is_the_sum_of_its_parts() -> None:
    """Log-probability and entropy of independent choices add up."""
    made = MultiCategorical((2, 3, 4))
    head = heads(made, 50)
    action = made.sample(head, noise(50, 3))
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
    action = made.sample(head, noise(50, made.noise))
    normal = torch.distributions.Normal(head[:, :3], head[:, 3:].exp())
    theirs = torch.distributions.Independent(normal, 1)
    torch.testing.assert_close(made.log_prob(head, action), theirs.log_prob(action))
    torch.testing.assert_close(made.entropy(head), theirs.entropy())


@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (1, 2, 3)])
def test_a_continuous_action_may_have_any_shape(shape: tuple[int, ...]) -> None:
    """One log-probability for each row, the same as that of the flat action."""
    made = distribution(Box(shape))
    head = heads(made, 8)
    flat = made.sample(head, noise(8, made.noise))
    found = made.log_prob(head, flat.reshape(8, *shape))
    assert found.shape == (8,)
    assert torch.equal(found, made.log_prob(head, flat))


@pytest.mark.parametrize("made", EACH, ids=lambda made: type(made).__name__)
def test_a_row_is_alone(made: Distribution) -> None:
    """The same head and noise give the same action, whatever is drawn in the other rows."""
    head, drawn = heads(made, 64), noise(64, made.noise)
    whole = made.sample(head, drawn)
    assert torch.equal(made.sample(head, drawn), whole)
    other = made.sample(heads(made, 64, seed=2), noise(64, made.noise, seed=2))
    mixed_head, mixed_noise = heads(made, 64, seed=2), noise(64, made.noise, seed=2)
    mixed_head[::4], mixed_noise[::4] = head[::4], drawn[::4]
    mixed = made.sample(mixed_head, mixed_noise)
    assert torch.equal(mixed[::4], whole[::4])
    assert torch.equal(mixed[1::4], other[1::4])
    assert not torch.equal(other, whole)


def test_an_impossible_action_is_not_drawn() -> None:
    """An action whose probability is 0 in float32, first or in the middle, where noise is 0 or
    stands exactly on its edge."""
    head = torch.tensor([[-200.0, 0.0, 0.0], [0.0, -200.0, 0.0], [0.0, -200.0, 0.0]])
    drawn = Categorical(3).sample(head, torch.tensor([[0.0], [0.0], [0.5]]))
    assert drawn.tolist() == [1, 0, 2]


@pytest.mark.parametrize("made", EACH, ids=lambda made: type(made).__name__)
def test_the_extremes_of_noise_are_actions(made: Distribution) -> None:
    """0 and the largest float32 below 1 draw a finite action of the space."""
    for extreme in (0.0, 1.0 - 2.0**-24):
        drawn = made.sample(heads(made, 16), torch.full((16, made.noise), extreme))
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
