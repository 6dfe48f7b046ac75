"""Losses row by row against the formulas written slowly, and against literal numbers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from hts.config import A2C, PPO
from hts.learn.losses import TOLD, Columns, Losses, a2c_loss, ppo_loss, told
from hts.models.distributions import (
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
    Squashed,
)
from hts.models.network import Answer
from hts_envs.contract import Box

ROWS, ACTIONS = 24, 5
LOSSES: dict[str, Any] = {"a2c": a2c_loss, "ppo": ppo_loss}


def rows(seed: int = 0, count: int = ROWS, actions: int = ACTIONS) -> tuple[Answer, Columns]:
    """A policy's answer and what is learnt from, ratios well on both sides of any clip."""
    generator = torch.Generator().manual_seed(seed)
    head = torch.randn(count, actions, generator=generator)
    columns = torch.randn(5, count, generator=generator)
    action = torch.randint(actions, (count,), generator=generator)
    log_prob = Categorical(actions).log_prob(head, action) + 0.3 * columns[0]
    learnt = Columns(action, log_prob, columns[1], columns[2], columns[3])
    return Answer(head, columns[4].clone()), learnt


def logs(answer: Answer, row: int) -> list[float]:
    """The log-probabilities of a row, in Python's own floats."""
    head = [float(x) for x in answer.head[row]]
    whole = math.log(sum(math.exp(x) for x in head))
    return [x - whole for x in head]


def slow_a2c(config: A2C, answer: Answer, learnt: Columns) -> float:
    total = 0.0
    for row in range(len(learnt.action)):
        each = logs(answer, row)
        value, target = float(answer.value[row]), float(learnt.target[row])
        advantage = float(learnt.advantage[row])
        entropy = -sum(math.exp(x) * x for x in each)
        total += -each[int(learnt.action[row])] * advantage
        total += config.value_coefficient * (value - target) ** 2
        total -= config.entropy_coefficient * entropy
    return total


def slow_ppo(config: PPO, answer: Answer, learnt: Columns) -> float:
    total = 0.0
    for row in range(len(learnt.action)):
        each = logs(answer, row)
        ratio = math.exp(each[int(learnt.action[row])] - float(learnt.log_prob[row]))
        advantage = float(learnt.advantage[row])
        near = min(max(ratio, 1 - config.clip), 1 + config.clip)
        value, target = float(answer.value[row]), float(learnt.target[row])
        error = (value - target) ** 2
        if config.value_clip is not None:
            old = float(learnt.value[row])
            moved = old + min(max(value - old, -config.value_clip), config.value_clip)
            error = max(error, (moved - target) ** 2)
        total += -min(ratio * advantage, near * advantage)
        total += config.value_coefficient * 0.5 * error
        total -= config.entropy_coefficient * -sum(math.exp(x) * x for x in each)
    return total


def total(config: A2C | PPO, losses: Losses) -> float:
    """The formula."""
    value, entropy = config.value_coefficient, config.entropy_coefficient
    return float(losses.policy + value * losses.value - entropy * losses.entropy)


@pytest.mark.parametrize("seed", range(5))
def test_a2c_is_its_formula(seed: int) -> None:
    """float32 sums of two dozen terms near 1 against float64: a few units of 1e-7 each."""
    answer, learnt = rows(seed)
    config = A2C(value_coefficient=0.7, entropy_coefficient=0.3)
    losses, _ = a2c_loss(config, Categorical(ACTIONS), answer, learnt, 1)
    assert total(config, losses) == pytest.approx(
        slow_a2c(config, answer, learnt), rel=1e-5, abs=1e-4
    )


@pytest.mark.parametrize("value_clip", [None, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_ppo_is_its_formula(seed: int, value_clip: float | None) -> None:
    """The same for PPO, with values clipped and not."""
    answer, learnt = rows(seed)
    config = PPO(clip=0.15, value_clip=value_clip, value_coefficient=0.7, entropy_coefficient=0.3)
    losses, _ = ppo_loss(config, Categorical(ACTIONS), answer, learnt, 1)
    assert total(config, losses) == pytest.approx(
        slow_ppo(config, answer, learnt), rel=1e-5, abs=1e-4
    )


def one(ratio: float, advantage: float, value: float = 0.0) -> tuple[Answer, Columns]:
    """One row of two equally likely actions, with the ratio and the value as asked."""
    head = torch.zeros(1, 2)
    old = torch.tensor([math.log(0.5 / ratio)])
    zero, target = torch.zeros(1), torch.tensor([3.0])
    action, advantages = torch.tensor([0]), torch.tensor([advantage])
    learnt = Columns(action, old, zero, advantages, target)
    return Answer(head, torch.tensor([value])), learnt


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "pushes"),
    [
        (1.0, 2.0, -2.0, True),
        (1.1, 2.0, -2.2, True),
        (1.5, 2.0, -2.4, False),  # good, and more likely already: left alone beyond 1.2
        (0.5, 2.0, -1.0, True),  # good, and less likely: pushed back
        (1.5, -2.0, 3.0, True),  # bad, and more likely: pushed back
        (0.5, -2.0, 1.6, False),  # bad, and less likely already: left alone beyond 0.8
    ],
)
def test_the_clipped_surrogate(ratio: float, advantage: float, loss: float, pushes: bool) -> None:
    """Its value and whether it pushes, by literal numbers, on each side of each bound."""
    answer, learnt = one(ratio, advantage)
    config = PPO(clip=0.2, value_coefficient=0.0, entropy_coefficient=0.0)
    found, slopes = ppo_loss(config, Categorical(2), answer, learnt, 1)
    assert float(found.policy) == pytest.approx(loss, rel=1e-6)
    assert bool((slopes.head != 0).any()) == pushes
    sums = dict(zip(TOLD, told([found], config.clip).tolist(), strict=True))
    assert sums["clip_fraction"] == (abs(ratio - 1) > 0.2)
    assert sums["policy_loss"] == pytest.approx(loss, rel=1e-6)
    assert sums["kl"] == pytest.approx(ratio - 1 - math.log(ratio), abs=1e-6)
    assert float(found.ratio_error) == pytest.approx(abs(ratio - 1), abs=1e-6)


@pytest.mark.parametrize(
    ("clip", "value", "loss"),
    [
        (None, 1.0, 0.5 * 4),  # half of (1 - 3) squared
        (0.5, 0.25, 0.5 * 2.75**2),  # within 0.5 of the old value 0
        (0.5, 1.0, 0.5 * 2.5**2),  # has moved beyond 0.5: the larger error counts
        (0.5, -1.0, 0.5 * 4.0**2),  # moved away from the target: clipping would flatter it
    ],
)
def test_value_clipping(clip: float | None, value: float, loss: float) -> None:
    """Old value 0, target 3: literal numbers on each side of the bound."""
    answer, learnt = one(1.0, 0.0, value)
    found, _ = ppo_loss(PPO(value_clip=clip), Categorical(2), answer, learnt, 1)
    assert float(found.value) == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize(
    ("value", "target", "slope"),
    [
        (0.25, 3.0, -2.75),  # within 0.5
        (1.0, 3.0, 0.0),  # beyond, and held at 0.5 it has the larger error: nothing to move
        (1.0, -3.0, 4.0),  # beyond, and the value itself has the larger error
        (1.0, 0.6, 0.4),
        (1.0, 0.8, 0.0),
        (1.0, 0.75, 0.125),  # both errors are equal: half of each slope, 0.25 and 0
        (0.5, 3.0, -2.5),  # at the bound it may still move
        (-0.5, -3.0, 2.5),
    ],
)
def test_slopes_of_clipped_values(value: float, target: float, slope: float) -> None:
    """Old value 0, clip 0.5, weight 1: literal numbers, which are those of torch's autograd."""
    answer, learnt = one(1.0, 0.0, value)
    learnt = dataclasses.replace(learnt, target=torch.tensor([target]))
    config = PPO(value_clip=0.5, value_coefficient=1.0)
    _, slopes = ppo_loss(config, Categorical(2), answer, learnt, 1)
    assert float(slopes.value) == pytest.approx(slope, abs=1e-6)
    leaf = torch.tensor(value, requires_grad=True)
    errors = (leaf - target).square(), (leaf.clamp(-0.5, 0.5) - target).square()
    (0.5 * torch.maximum(*errors)).backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    assert float(leaf.grad) == pytest.approx(slope, abs=1e-6)


def test_what_is_told_is_a_sum_over_all_rows_of_all_shards() -> None:
    """Ratios 2, 1/2, 1 and 0: their kl is the sum of ratio - 1 - log(ratio), and only a ratio that
    leaves the clip has left it."""
    zero = torch.zeros(())

    def losses(*log_ratios: float) -> Losses:
        return Losses(zero + 1.0, zero + 2.0, zero + 3.0, torch.tensor(log_ratios))

    shards = [losses(math.log(2.0), math.log(0.5)), losses(0.0, math.log(1.1))]
    sums = dict(zip(TOLD, told(shards, 0.2).tolist(), strict=True))
    kl = (1.0 - math.log(2.0)) + (-0.5 + math.log(2.0)) + (0.1 - math.log(1.1))
    assert sums == pytest.approx(
        {"policy_loss": 2.0, "value_loss": 4.0, "entropy": 6.0, "kl": kl, "clip_fraction": 2.0}
    )
    assert told(shards, None)[-1] == 0.0
    assert told([losses(-math.inf)], 1.0)[-1] == 0.0, "|0 - 1| is the clip, and not beyond it"


def test_a2c_tells_how_far_it_is_from_what_acted() -> None:
    """The ratio of what the policy says now to what it said when it acted."""
    for ratio in (0.5, 1.0, 1.5):
        answer, learnt = one(ratio, 1.0)
        losses, _ = a2c_loss(A2C(), Categorical(2), answer, learnt, 1)
        assert float(losses.log_ratio.exp()) == pytest.approx(ratio, rel=1e-6)


def quiet(count: int) -> Columns:
    """Rows with no advantage and right values: nothing but the entropy bonus is left."""
    zero = torch.zeros(count)
    action = torch.zeros(count, dtype=torch.int64)
    return Columns(action, zero, zero, zero, zero)


def entropy_only(head: Tensor, algo: str) -> tuple[float, Tensor]:
    """What is descended, and the slope of the head."""
    answer, learnt = Answer(head, torch.zeros(len(head))), quiet(len(head))
    actions, config = (
        Categorical(head.shape[1]),
        {"a2c": A2C, "ppo": PPO}[algo](entropy_coefficient=1.0),
    )
    losses, slopes = LOSSES[algo](config, actions, answer, learnt, 1)
    return total(config, losses), slopes.head


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_descending_the_loss_raises_entropy(algo: str) -> None:
    """Rule 25: the bonus has the sign that makes a policy less certain."""
    head = torch.tensor([[2.0, 0.0, -1.0]])
    _, slope = entropy_only(head, algo)
    before, after = (Categorical(3).entropy(each) for each in (head, head - 0.1 * slope))
    assert after.item() > before.item() + 1e-3


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_the_bonus_means_the_same_for_3_and_for_19_actions(algo: str) -> None:
    """Rule 25: it is in nats, however many actions there are that are never taken."""
    three = torch.tensor([[0.3, -0.2, 0.5]])
    nineteen = torch.cat([three, torch.full((1, 16), -200.0)], -1)
    losses = [entropy_only(head, algo)[0] for head in (three, nineteen)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    for n in (3, 19):
        found, _ = entropy_only(torch.zeros(1, n), algo)
        assert found == pytest.approx(-math.log(n), rel=1e-6)


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_losses_of_shards_add_up(algo: str) -> None:
    """Losses are sums over rows: two halves make the whole, in every column but the largest."""
    answer, learnt = rows()

    config: Any = {"a2c": A2C, "ppo": PPO}[algo]()

    def loss(part: slice) -> Losses:
        said = Answer(answer.head[part], answer.value[part])
        cut = {name: column[part] for name, column in vars(learnt).items()}
        return LOSSES[algo](config, Categorical(ACTIONS), said, Columns(**cut), 1)[0]

    whole, halves = loss(slice(None)), (loss(slice(0, 10)), loss(slice(10, None)))
    both = total(config, halves[0]) + total(config, halves[1])
    assert both == pytest.approx(total(config, whole), rel=1e-5)
    torch.testing.assert_close(told(halves, 0.2), told([whole], 0.2), rtol=1e-5, atol=1e-5)
    assert float(whole.ratio_error) == max(float(half.ratio_error) for half in halves)


def by_autograd(
    config: A2C | PPO, actions: Distribution, answer: Answer, learnt: Columns, rows: int
) -> list[Tensor]:
    """The slopes that torch finds of the formula, of the head and of the value."""
    head, value = answer.head.clone().requires_grad_(), answer.value.clone().requires_grad_()
    log_prob = actions.log_prob(head, learnt.action)
    error = (value - learnt.target).square()
    if isinstance(config, A2C):
        policy, value_loss = -(log_prob * learnt.advantage).sum(), error.sum()
    else:
        ratio = (log_prob - learnt.log_prob).exp()
        near = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
        policy = -torch.minimum(ratio * learnt.advantage, near * learnt.advantage).sum()
        if (limit := config.value_clip) is not None:
            moved = learnt.value + (value - learnt.value).clamp(-limit, limit)
            error = torch.maximum(error, (moved - learnt.target).square())
        value_loss = 0.5 * error.sum()
    loss = policy + config.value_coefficient * value_loss
    if config.entropy_coefficient:
        loss = loss - config.entropy_coefficient * actions.entropy(head).sum()
    (loss / rows).backward()
    assert head.grad is not None
    assert value.grad is not None
    return [head.grad, value.grad]


DISTRIBUTIONS: dict[str, Distribution] = {
    "categorical": Categorical(ACTIONS),
    "several": MultiCategorical((2, 3, 7)),
    "gaussian": Gaussian(3),
    "squashed": Squashed(Box((3,), "float32", -1.0, 2.0)),
}


@pytest.mark.parametrize("entropy", [0.0, 0.013])
@pytest.mark.parametrize("config", [A2C(), PPO(), PPO(value_clip=0.2)], ids=["a2c", "ppo", "clip"])
@pytest.mark.parametrize("kind", [*DISTRIBUTIONS])
def test_slopes_are_those_of_the_formula(kind: str, config: A2C | PPO, entropy: float) -> None:
    """Bit for bit, on both sides of every bound and on ratios that are exactly 1."""
    actions = DISTRIBUTIONS[kind]
    config = dataclasses.replace(config, value_coefficient=0.37, entropy_coefficient=entropy)
    generator = torch.Generator().manual_seed(7)
    head = torch.randn(512, actions.size, generator=generator)
    uniforms = torch.rand(512, actions.noise, generator=generator).numpy()
    action, _ = actions.draw(head, uniforms)
    drawn = torch.randn(5, 512, generator=generator)
    drawn[0, :64] = 0.0
    log_prob = actions.log_prob(head, torch.from_numpy(action)) + 0.3 * drawn[0]
    value = torch.where(drawn[0] > 0.5, drawn[1], drawn[1] + 0.1 * drawn[4])
    learnt = Columns(torch.from_numpy(action), log_prob, drawn[1], drawn[2], drawn[3])
    answer = Answer(head, value)
    loss = LOSSES["a2c" if isinstance(config, A2C) else "ppo"]
    _, slopes = loss(config, actions, answer, learnt, 500)
    for found, expected in zip(
        slopes, by_autograd(config, actions, answer, learnt, 500), strict=True
    ):
        assert torch.equal(found, expected)
        assert expected.count_nonzero() > 256


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_what_is_no_number_stays_none(algo: str) -> None:
    """An advantage that is no number pushes, too, so that the update is refused."""
    answer, learnt = rows()
    learnt.advantage[3] = float("nan")
    config: Any = {"a2c": A2C, "ppo": PPO}[algo]()
    _, slopes = LOSSES[algo](config, Categorical(ACTIONS), answer, learnt, 1)
    assert slopes.head[3].isnan().all()
    assert slopes.head.isnan().sum() == ACTIONS


def test_a_row_too_few_is_refused() -> None:
    """Columns of different lengths would broadcast into nonsense."""
    _, learnt = rows()
    with pytest.raises(AssertionError, match="one number for each row"):
        dataclasses.replace(learnt, target=learnt.target[:1])
