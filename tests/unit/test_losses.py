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
from hts.models.distributions import Categorical
from hts.models.policy import Answer

ROWS, ACTIONS = 24, 5


def rows(seed: int = 0, count: int = ROWS, actions: int = ACTIONS) -> tuple[Answer, Columns]:
    """A policy's answer and what is learnt from, ratios well on both sides of any clip."""
    generator = torch.Generator().manual_seed(seed)
    head = torch.randn(count, actions, generator=generator)
    columns = torch.randn(5, count, generator=generator)
    action = torch.randint(actions, (count,), generator=generator)
    log_prob = Categorical(actions).log_prob(head, action) + 0.3 * columns[0]
    learnt = Columns(action, log_prob, columns[1], columns[2], columns[3])
    return Answer(head.requires_grad_(), columns[4].clone().requires_grad_()), learnt


def logs(answer: Answer, row: int) -> list[float]:
    """The log-probabilities of a row, in Python's own floats."""
    head = [float(x) for x in answer.head[row].detach()]
    whole = math.log(sum(math.exp(x) for x in head))
    return [x - whole for x in head]


def slow_a2c(config: A2C, answer: Answer, learnt: Columns) -> float:
    total = 0.0
    for row in range(len(learnt.action)):
        each = logs(answer, row)
        value, target = float(answer.value[row].detach()), float(learnt.target[row])
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
        value, target = float(answer.value[row].detach()), float(learnt.target[row])
        error = (value - target) ** 2
        if config.value_clip is not None:
            old = float(learnt.value[row])
            moved = old + min(max(value - old, -config.value_clip), config.value_clip)
            error = max(error, (moved - target) ** 2)
        total += -min(ratio * advantage, near * advantage)
        total += config.value_coefficient * 0.5 * error
        total -= config.entropy_coefficient * -sum(math.exp(x) * x for x in each)
    return total


def descended(losses: Losses) -> Tensor:
    """The formula."""
    for_value, for_entropy = losses.weights
    return losses.policy + for_value * losses.value - for_entropy * losses.entropy


def total(losses: Losses) -> float:
    return float(descended(losses).detach())


@pytest.mark.parametrize("seed", range(5))
def test_a2c_is_its_formula(seed: int) -> None:
    """float32 sums of two dozen terms near 1 against float64: a few units of 1e-7 each."""
    answer, learnt = rows(seed)
    config = A2C(value_coefficient=0.7, entropy_coefficient=0.3)
    found = total(a2c_loss(config, Categorical(ACTIONS), answer, learnt))
    assert found == pytest.approx(slow_a2c(config, answer, learnt), rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("value_clip", [None, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_ppo_is_its_formula(seed: int, value_clip: float | None) -> None:
    """The same for PPO, with values clipped and not."""
    answer, learnt = rows(seed)
    config = PPO(clip=0.15, value_clip=value_clip, value_coefficient=0.7, entropy_coefficient=0.3)
    found = total(ppo_loss(config, Categorical(ACTIONS), answer, learnt))
    assert found == pytest.approx(slow_ppo(config, answer, learnt), rel=1e-5, abs=1e-4)


def one(ratio: float, advantage: float, value: float = 0.0) -> tuple[Answer, Columns]:
    """One row of two equally likely actions, with the ratio and the value as asked."""
    head = torch.zeros(1, 2, requires_grad=True)
    old = torch.tensor([math.log(0.5 / ratio)])
    zero, target = torch.zeros(1), torch.tensor([3.0])
    action, advantages = torch.tensor([0]), torch.tensor([advantage])
    learnt = Columns(action, old, zero, advantages, target)
    return Answer(head, torch.tensor([value], requires_grad=True)), learnt


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
    found = ppo_loss(config, Categorical(2), answer, learnt)
    found.backward(1)
    assert float(found.policy.detach()) == pytest.approx(loss, rel=1e-6)
    assert answer.head.grad is not None
    assert bool((answer.head.grad != 0).any()) == pushes
    sums = dict(zip(TOLD, told([found.detached()], config.clip).tolist(), strict=True))
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
    found = ppo_loss(PPO(value_clip=clip), Categorical(2), answer, learnt)
    assert float(found.value.detach()) == pytest.approx(loss, rel=1e-6)


def quiet(count: int) -> Columns:
    """Rows with no advantage and right values: nothing but the entropy bonus is left."""
    zero = torch.zeros(count)
    action = torch.zeros(count, dtype=torch.int64)
    return Columns(action, zero, zero, zero, zero)


def entropy_only(head: Tensor, algo: str) -> Losses:
    answer = Answer(head, torch.zeros(len(head)))
    actions = Categorical(head.shape[1])
    learnt = quiet(len(head))
    if algo == "ppo":
        return ppo_loss(PPO(entropy_coefficient=1.0), actions, answer, learnt)
    return a2c_loss(A2C(entropy_coefficient=1.0), actions, answer, learnt)


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_descending_the_loss_raises_entropy(algo: str) -> None:
    """Rule 25: the bonus has the sign that makes a policy less certain."""
    head = torch.tensor([[2.0, 0.0, -1.0]], requires_grad=True)
    entropy_only(head, algo).backward(1)
    assert head.grad is not None
    before = Categorical(3).entropy(head.detach())
    after = Categorical(3).entropy(head.detach() - 0.1 * head.grad)
    assert after.item() > before.item() + 1e-3


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_the_bonus_means_the_same_for_3_and_for_19_actions(algo: str) -> None:
    """Rule 25: it is in nats, however many actions there are that are never taken."""
    three = torch.tensor([[0.3, -0.2, 0.5]])
    nineteen = torch.cat([three, torch.full((1, 16), -200.0)], -1)
    losses = [total(entropy_only(head, algo)) for head in (three, nineteen)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    for n in (3, 19):
        assert total(entropy_only(torch.zeros(1, n), algo)) == pytest.approx(-math.log(n), rel=1e-6)


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_losses_of_shards_add_up(algo: str) -> None:
    """Losses are sums over rows: two halves make the whole, in every column but the largest."""
    answer, learnt = rows()

    def loss(part: slice) -> Losses:
        said = Answer(answer.head[part], answer.value[part])
        cut = {name: column[part] for name, column in vars(learnt).items()}
        if algo == "ppo":
            return ppo_loss(PPO(), Categorical(ACTIONS), said, Columns(**cut))
        return a2c_loss(A2C(), Categorical(ACTIONS), said, Columns(**cut))

    whole, halves = loss(slice(None)), (loss(slice(0, 10)), loss(slice(10, None)))
    assert total(halves[0]) + total(halves[1]) == pytest.approx(total(whole), rel=1e-5)
    torch.testing.assert_close(
        told([each.detached() for each in halves], 0.2),
        told([whole.detached()], 0.2),
        rtol=1e-5,
        atol=1e-5,
    )
    assert float(whole.ratio_error) == max(float(half.ratio_error) for half in halves)


@pytest.mark.parametrize("entropy", [0.0, 0.013])
@pytest.mark.parametrize("algo", [a2c_loss, ppo_loss])
def test_what_is_descended_is_the_mean_of_the_total(algo: Any, entropy: float) -> None:
    """Gradients that are weighted beforehand are those of the formula, bit for bit."""
    config: Any = A2C if algo is a2c_loss else PPO
    gradients = []
    for by_formula in (True, False):
        answer, learnt = rows()
        asked = config(value_coefficient=0.37, entropy_coefficient=entropy)
        losses = algo(asked, Categorical(ACTIONS), answer, learnt)
        (descended(losses) / 23).backward() if by_formula else losses.backward(23)
        gradients.append((answer.head.grad, answer.value.grad))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)
        assert one.any()


def test_a_row_too_few_is_refused() -> None:
    """Columns of different lengths would broadcast into nonsense."""
    _, learnt = rows()
    with pytest.raises(AssertionError, match="one number for each row"):
        dataclasses.replace(learnt, target=learnt.target[:1])
