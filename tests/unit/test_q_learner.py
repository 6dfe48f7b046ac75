"""V-learner and P-learner: what each reads, and their updates written out by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hts.config import PQL, Experiment, Impala, Mlp
from hts.determinism.keys import Purpose, key, keys
from hts.memory.versions import Version
from hts.replay.ring import Ring
from hts.roles.q_learner import Beside, QLearner
from hts.roles.replayed import columns
from hts.runtime.learners import ring_of
from hts.runtime.serial import SerialRun
from hts_envs.contract import Array
from hts_envs.randomness import uniform
from tests.fakes.runs import experiment, serial

SMALL = "python:tests.fakes.small_worlds:Small?action=many"
ALGO = PQL(
    batch=32,
    replay=512,
    warm_up=8,
    beta_av=1,
    n_step=3,
    critic_hidden=(16,),
    critic_activation="tanh",
    max_gradient_norm=1e9,
)


def asked(**changes: Any) -> Experiment:
    """Four replicas of a pendulum, windows of four steps."""
    algo = dataclasses.replace(ALGO, **changes.pop("algo", {}))
    values = {"env": "gym:Pendulum-v1", "rollout": 4, "updates": 6, "model": Mlp(hidden=(16,))}
    return experiment(algo=algo, **{**values, **changes})


@contextmanager
def running(one: Experiment) -> Iterator[SerialRun]:
    run = serial(one)
    try:
        yield run
    finally:
        run.close()


def learner_of(run: SerialRun) -> QLearner:
    assert isinstance(run.learner, QLearner)
    return run.learner


def test_nothing_is_learnt_from_before_random_actions_are_done() -> None:
    """Eight steps are two windows: critics learn in the second turn, and the policy, which waits
    for them, in the third."""
    first, *others = _parameters(asked())
    assert [torch.equal(each, first) for each in others] == [True, False, False, False, False]


def test_actions_are_random_first_and_the_policys_then() -> None:
    """By the steps that a replica has taken in the run, wherever its episode stands."""
    with running(asked(algo={"warm_up": 6, "noise_low": 0.0, "noise_high": 0.0})) as run:
        updates = iter(run)
        next(updates)
        everything = run.storages[0].action[:, :, 0].copy()
        next(updates)
        second = run.storages[1].action[:, :, 0]
        assert np.abs(everything).max() > 0.5
        assert np.abs(second[:, :2]).max() > 0.5
        assert np.abs(second[:, 2:]).max() < 0.1, "small heads, hence small actions"
        assert not run.storages[1].value.any()
        assert not run.storages[1].bootstrap.any()


def _parameters(one: Experiment) -> list[Tensor]:
    """What the learner has published after each update."""
    with running(one) as run:
        return [run.versions[-1].parameters.clone() for _ in run]


def test_behind_a_step_stands_what_came_of_it() -> None:
    """Rules 3 and 29: the next observation, and behind a truncation the final one with its own
    stack, several times in one window; never the reset's."""
    one = asked(env="python:tests.fakes.cut:make", rollout=12, frame_stack=2, algo={"replay": 96})
    with running(one) as run:
        for _ in zip(run, range(2), strict=False):
            pass
        storage = run.storages[1]
        found = columns(storage, ("observation",), None)
        seen, behind = (found[f"{kind}.observation"] for kind in ("seen", "behind"))
        assert storage.truncated.sum(1).min() >= 2, "episodes of five steps"
        # Frames count the steps of an episode: (older, newer), the first one twice.
        assert (behind[..., 1] == seen[..., 1] + 1).all()
        assert (behind[..., 0] == seen[..., 1]).all()
        begins = seen[..., 1] == 0
        assert begins.any()
        assert (seen[..., 0][begins] == 0).all()


def batch_of(one: Experiment, ring: Ring, whose: int, turn: int, update: int) -> dict[str, Array]:
    """The rows of an update, drawn as the keys say, each walked along by hand."""
    algo = one.algo
    assert isinstance(algo, PQL)
    named = key(one.seed, Purpose.REPLAY, whose, turn, update)
    rows = keys(named, Purpose.REPLAY, np.arange(algo.batch))
    end = (turn + 1 - whose) * one.rollout  # the policy's learner is a window behind
    at = np.floor(uniform(rows, 1)[:, 0] * end * one.replicas).astype(int)
    found: dict[str, list[Any]] = {
        name: [] for name in ("seen", "action", "reward", "power", "behind")
    }
    for step, replica in zip(at // one.replicas, at % one.replicas, strict=True):
        total, power, last = 0.0, 1.0, step
        for ahead in range(step, min(step + algo.n_step, end)):
            total += power * ring.arrays["reward"][ahead, replica]
            power, last = power * algo.gamma, ahead
            if ring.arrays["truncated"][ahead, replica]:
                break
        found["seen"].append(ring.arrays["seen.observation"][step, replica])
        found["action"].append(ring.arrays["action"][step, replica])
        found["reward"].append(total)
        found["power"].append(power)
        found["behind"].append(ring.arrays["behind.observation"][last, replica])
    return {name: np.array(rows, np.float32) for name, rows in found.items()}


def plain(vector: Tensor, inputs: int, outputs: int, activation: nn.Module) -> nn.Sequential:
    """One hidden layer of 16, with parameters from a flat vector."""
    net = nn.Sequential(nn.Linear(inputs, 16), activation, nn.Linear(16, outputs))
    nn.utils.vector_to_parameters(vector.clone(), net.parameters())
    for parameter in net.parameters():  # copies: that function makes views
        parameter.data = parameter.data.clone()
    return net


def test_turns_are_those_of_the_paper_written_out() -> None:
    """Algorithms 2 and 3 with torch's modules and its Adam: four updates of both critics, then two
    of the policy with the critics of before, all from where they stood after three turns.

    Equal but for the order of sums in float32, over several steps of Adam.
    """
    one = asked()
    algo = one.algo
    assert isinstance(algo, PQL)
    with running(one) as run:
        updates = iter(run)
        for _ in range(3):
            next(updates)
        learner = learner_of(run)
        before = {name: array.copy() for name, array in learner.kept.arrays().items()}
        beside = {name: array.copy() for name, array in run._shared.beside.kept().items()}
        newest: Version = run.versions[-1].copy()
        next(updates)
        after, made = learner.kept.arrays(), run.versions[-1].parameters
        ring = ring_of(one, run._shared)
        critics, target = by_hand_critics(one, ring, before, newest.parameters)
        theta = by_hand_policy(one, ring, before["critics"], newest.parameters, beside)
        found = [torch.from_numpy(after["critics"]), torch.from_numpy(after["target"]), made]
        torch.testing.assert_close(found, [critics, target, theta], rtol=1e-3, atol=2e-5)
        assert not torch.equal(made, newest.parameters)


def adam(parameters: list[nn.Parameter], rate: float, kept: dict[str, Array]) -> torch.optim.Adam:
    """Torch's, as far as ours has come."""
    made = torch.optim.Adam(parameters, rate, eps=ALGO.optimiser_epsilon)
    place = 0
    for parameter in parameters:
        mean, square = (
            torch.from_numpy(kept[f"optimiser.{name}"][place : place + parameter.numel()].copy())
            for name in ("mean", "square")
        )
        made.state[parameter] = {
            "step": torch.tensor(float(kept["optimiser.steps"][0])),
            "exp_avg": mean.view(parameter.shape),
            "exp_avg_sq": square.view(parameter.shape),
        }
        place += parameter.numel()
    return made


def pair(vector: Array | Tensor) -> list[nn.Sequential]:
    halves = torch.as_tensor(np.array(vector)).chunk(2)
    return [plain(half, 4, 1, nn.Tanh()) for half in halves]


def flat(nets: list[nn.Sequential]) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for net in nets for p in net.parameters()])


def by_hand_critics(
    one: Experiment, ring: Ring, kept: dict[str, Array], theta: Tensor
) -> tuple[Tensor, Tensor]:
    algo = one.algo
    assert isinstance(algo, PQL)
    critics, target, policy = pair(kept["critics"]), pair(kept["target"]), policy_of(theta)
    optimiser = adam([p for net in critics for p in net.parameters()], algo.learning_rate, kept)
    for update in range(4):
        rows = {n: torch.from_numpy(a) for n, a in batch_of(one, ring, 0, 3, update).items()}
        with torch.no_grad():
            action = torch.tanh(policy(rows["behind"]))
            both = [net(torch.cat([rows["behind"], action], 1)).squeeze(1) for net in target]
            y = rows["reward"] + rows["power"] * torch.minimum(*both)
        shown = torch.cat([rows["seen"], rows["action"]], 1)
        loss = sum(functional.mse_loss(net(shown).squeeze(1), y) for net in critics)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for lags, leads in zip(target, critics, strict=True):
                for lag, lead in zip(lags.parameters(), leads.parameters(), strict=True):
                    lag.copy_(0.95 * lag + 0.05 * lead)
    return flat(critics), flat(target)


def by_hand_policy(
    one: Experiment, ring: Ring, critics: Array, theta: Tensor, kept: dict[str, Array]
) -> Tensor:
    algo, judges, policy = one.algo, pair(critics), policy_of(theta)
    assert isinstance(algo, PQL)
    optimiser = adam(list(policy.parameters()), algo.policy_learning_rate, kept)
    for update in range(2):
        seen = torch.from_numpy(batch_of(one, ring, 1, 3, update)["seen"])
        shown = torch.cat([seen, torch.tanh(policy(seen))], 1)
        loss = -torch.minimum(*(net(shown) for net in judges)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return flat([policy])


def policy_of(theta: Tensor) -> nn.Sequential:
    return plain(theta, 3, 1, nn.Tanh())


class Telling:
    """Makes the policy as another one does, and writes down the critics that it is made with."""

    def __init__(self, real: Beside, told: list[Array]) -> None:
        self._real = real
        self._told = told

    def take(self, turn: int, newest: Version, critics: Array) -> None:
        self._told.append(critics.copy())
        self._real.take(turn, newest, critics)

    def made(self, turn: int) -> Mapping[str, Array]:
        return self._real.made(turn)


def test_the_policy_is_taught_with_the_critics_of_before_or_of_now() -> None:
    """hts: both work at once, so the policy has the critics of the turn before; sync: in turn."""
    seen: dict[str, list[Array]] = {}
    for schedule in ("hts", "sync"):
        with running(asked(schedule=schedule)) as run:
            learner, seen[schedule] = learner_of(run), []
            learner._beside = Telling(learner._beside, seen[schedule])
            after = [learner.kept.arrays()["critics"].copy() for _ in run]
            expected = after if schedule == "sync" else [seen["hts"][0], *after[:-1]]
            assert all(map(np.array_equal, seen[schedule], expected))
    assert not np.array_equal(seen["hts"][-1], seen["sync"][-1])


@pytest.mark.parametrize("policy", ["deterministic", "sac"])
def test_only_a_soft_policy_reports_entropy(policy: str) -> None:
    """A deterministic one has neither entropy nor temperature."""
    with running(asked(algo={"policy": policy})) as run:
        *_, last = run
    soft = {"train/entropy", "train/temperature"}
    assert soft & set(last.told) == (soft if policy == "sac" else set())
    assert {"train/critic_loss", "train/value", "train/policy_loss"} <= set(last.told)


def test_a_reward_scale_scales_what_is_learnt_and_nothing_that_is_told() -> None:
    """Returns stay raw; critics see rewards a tenth as large."""
    with running(asked(algo={"reward_scale": 0.1})) as run:
        for _ in run:
            pass
        ring = ring_of(run.experiment, run._shared)
        kept = learner_of(run).kept
        drawn, scale = kept._replayed, run.versions[0].scale
        batch = next(drawn.transitions(5, 1, ring.span(6), scale, kept._asked))
        raw = batch_of(run.experiment, ring, 0, 5, 0)
        np.testing.assert_allclose(batch.reward, raw["reward"] * 0.1, rtol=1e-5)


@pytest.mark.parametrize("critic", ["twin", "categorical"])
@pytest.mark.parametrize("policy", ["deterministic", "sac"])
def test_every_kind_learns_what_an_action_is_worth(critic: str, policy: str) -> None:
    """A world whose reward is 1 for an action of 1 and -1 for one of -1: the policy finds it."""
    algo = {
        "critic": critic,
        "policy": policy,
        "beta_av": 8,
        "n_step": 1,
        "gamma": 0.0,
        "learning_rate": 3e-3,
        "policy_learning_rate": 3e-3,
        "value_low": -2.0,
        "value_high": 2.0,
        "target_entropy": -3.0,
    }
    with running(asked(env="python:tests.fakes.cut:make", algo=algo, updates=40)) as run:
        told = [updated.told for updated in run]
        rewards = run.storages[1].reward
    assert told[-1]["train/value"] > 0.5
    assert rewards[0].mean() > 0.7, "of the replica that explores least"


def test_critics_may_see_what_the_policy_does_not() -> None:
    """Asymmetric: pictures for the policy, the state for the critics; the replay holds both."""
    sees = {"policy_sees": ("pixels",), "critic_sees": ("observation",), "replay": 128}
    one = asked(
        env="batched:ball_balance?observation=both",
        model=Impala(channels=(4,), hidden=8),
        algo={**sees, "warm_up": 4},
        updates=3,
    )
    with running(one) as run:
        told = [updated.told for updated in run]
        learner = learner_of(run)
        assert ring_of(one, run._shared).names == ("pixels", "observation")
        assert tuple(learner.kept.critics.seen) == ("observation",)
        assert tuple(run.actor._policies[0].network.spaces) == ("pixels",)
    assert told[-1]["train/policy_gradient_norm"] > 0.0
