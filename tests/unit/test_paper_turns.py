"""Whole turns of both off-policy learners, against the formulas of their papers.

Everything that could hide a mistake is set so that it cannot: gamma is above 0, target critics and
critics are different networks, gradients are clipped, optimisers have a past, observations are
scaled, the replay has been written around once, and episodes end in both ways in it.
"""

from __future__ import annotations

import math
import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from hts.config import PQL, Experiment, Mlp
from hts.determinism.keys import Purpose, key
from hts.learn.normalise import Moments, ObservationScale
from hts.machine import Sizes, replay_arrays
from hts.memory.versions import Version
from hts.models.critics import Critics, initial_critics
from hts.models.policy import Policy
from hts.replay.ring import Ring
from hts.roles.p_learner import PLearner
from hts.roles.v_learner import VLearner
from hts_envs.contract import Array, Box, Spaces
from tests.fakes.runs import experiment
from tests.unit import slow_q_learning as slow

SPACES = Spaces({"observation": Box((slow.SEEN,))}, Box((slow.ACTIONS,), low=-1.0, high=1.0))
TURN, REPLICAS, ROLLOUT = 5, 2, 3
LIMIT = 0.004
"""Of a gradient's norm: far below what gradients here have."""

KINDS: dict[str, dict[str, Any]] = {
    "ddpg": {},
    "td3": {"smoothing": 0.6, "smoothing_clip": 0.3},
    "sac": {"policy": "sac"},
    "sac, to which smoothing means nothing": {"policy": "sac", "smoothing": 0.6},
    "sac with a target entropy": {"policy": "sac", "target_entropy": 1.5},
    "distributional": {"critic": "categorical", "atoms": 5, "value_low": -1.0, "value_high": 2.0},
    "distributional sac": {"critic": "categorical", "atoms": 5, "policy": "sac"},
}


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest) -> Experiment:
    """An experiment whose turns have few updates of few rows, in two shards."""
    algo = PQL(
        gamma=0.9,
        tau=0.3,
        batch=8,
        replay=4 * REPLICAS * ROLLOUT,
        beta_av=2,
        reward_scale=0.5,
        learning_rate=0.01,
        policy_learning_rate=0.02,
        max_gradient_norm=LIMIT,
        critic_hidden=(slow.CRITIC_HIDDEN,),
        critic_activation="tanh",
        **KINDS[request.param],
    )
    model = Mlp(hidden=(slow.POLICY_HIDDEN,))
    sizes = {"replicas": REPLICAS, "rollout": ROLLOUT, "shards": 2}
    return experiment(algo=algo, model=model, **sizes)


def filled_ring(one: Experiment, draw: np.random.Generator) -> Ring:
    """A replay of random transitions, some of which end an episode."""
    declared = replay_arrays(Sizes.of(one, SPACES), one.windows, SPACES.observation, SPACES.action)
    arrays = {each.name: np.zeros(each.shape, each.dtype) for each in declared}
    for name, array in arrays.items():
        if array.dtype == bool:
            array[:] = draw.random(array.shape) < 0.2
        else:
            array[:] = draw.uniform(-1.0, 1.0, array.shape)
        assert array.any(), name
    return Ring(arrays, ROLLOUT)


def a_version(policy: Policy, draw: np.random.Generator) -> Version:
    """Random parameters, with statistics of observations."""
    parameters = torch.from_numpy(draw.normal(0.0, 0.7, policy.size).astype(np.float32))
    moments = Moments(10.0, np.array([0.3, -0.2]), np.array([4.0, 30.0]))
    return Version(TURN, parameters, ObservationScale({"observation": moments}))


def scaled(ring: Ring, version: Version) -> Ring:
    """The replay with its observations as the networks see them."""
    (moments,) = version.scale.moments.values()
    deviation = np.sqrt(moments.squares / moments.count)
    arrays = dict(ring.arrays)
    for name in ("seen.observation", "behind.observation"):
        arrays[name] = (arrays[name] - moments.mean) / deviation
    return Ring(arrays, ROLLOUT)


def past(size: int, draw: np.random.Generator) -> dict[str, Array]:
    """The state of an Adam that has seen gradients."""
    return {
        "optimiser.mean": draw.normal(0.0, 0.001, size).astype(np.float32),
        "optimiser.square": draw.uniform(1e-7, 1e-5, size).astype(np.float32),
        "optimiser.steps": np.array([7]),
    }


def slow_adam(algo: PQL, state: dict[str, Array]) -> slow.Adam:
    mean, square = (state[f"optimiser.{name}"].astype(np.float64) for name in ("mean", "square"))
    return slow.Adam(7, mean, square, algo.optimiser_epsilon)


def close(found: Any, expected: Any) -> None:
    """Equal but for roundings of float32 over several steps."""
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_critics_learn_as_the_papers_say(case: Experiment) -> None:
    """Algorithm 3: targets by the lagged policy and the target critics, both critics' errors, a
    clipped step of Adam, and target critics that follow; several times, and all that is told."""
    algo, draw = slow.off_policy(case), np.random.default_rng(1)
    ring = filled_ring(case, draw)
    learner = VLearner(case, lambda: Policy(case, SPACES), ring)
    newest = a_version(Policy(case, SPACES), draw)
    theta = newest.parameters.numpy().astype(np.float64)
    critics, target = (draw.normal(0.0, 0.7, learner.critics.size).astype("f4") for _ in range(2))
    state = past(len(critics), draw)
    span = ring.span(TURN + 1)
    learner.take({"critics": critics, "target": target, **state})
    told = learner.learn(TURN, span, newest)

    adam, count = slow_adam(algo, state), algo.beta_av * ROLLOUT
    critics, target = critics.astype(np.float64), target.astype(np.float64)
    for rows in slow.updates(case, scaled(ring, newest), slow.CRITICS, TURN, span, count):
        y = slow.targets(algo, theta, target, rows)
        loss = slow.critic_loss(algo, critics, rows, y)
        outputs = slow.critics(critics, rows.seen, rows.action)
        value = np.min([slow.values(algo, each) for each in outputs], 0).mean()
        gradient = slow.slope(lambda at: slow.critic_loss(algo, at, rows, y), critics)  # noqa: B023
        step, norm = slow.clipped(gradient, LIMIT)
        assert norm > 1.5 * LIMIT, "clipping is active"
        critics = critics + adam.step(step, algo.learning_rate)
        target = (1.0 - algo.tau) * target + algo.tau * critics

    made = learner.arrays()
    close(made["critics"], critics)
    close(made["target"], target)
    close(made["optimiser.mean"], adam.mean)
    close(
        [told[f"train/{name}"] for name in ("critic_loss", "value", "critic_gradient_norm")],
        [loss, value, norm],
    )
    assert told["train/critic_updates"] == count


def test_the_policy_learns_as_the_papers_say(case: Experiment) -> None:
    """Algorithm 2: actions that the smaller critic values more, SAC's entropy with the sign that
    raises it, its temperature, a clipped step of Adam; several times, and all that is told."""
    algo, draw = slow.off_policy(case), np.random.default_rng(2)
    ring = filled_ring(case, draw)
    learner = PLearner(case, lambda: Policy(case, SPACES), ring)
    newest = a_version(Policy(case, SPACES), draw)
    critics = draw.normal(0.0, 0.7, Critics(case, SPACES).size).astype("f4")
    state = past(len(newest.parameters), draw)
    span = ring.span(TURN, spared=1)
    learner.take({"told": np.zeros(5), **state})
    learner.learn(TURN, span, newest, critics)

    adam, count = slow_adam(algo, state), algo.beta_av * ROLLOUT // algo.beta_pv
    theta, judges = newest.parameters.numpy().astype(np.float64), critics.astype(np.float64)
    for rows in slow.updates(case, scaled(ring, newest), slow.POLICY, TURN, span, count):
        now = theta

        def loss_at(vector: Array) -> float:
            return slow.policy_loss(algo, vector, now, judges, rows)[0]  # noqa: B023

        loss, entropy = slow.policy_loss(algo, now, now, judges, rows)
        step, norm = slow.clipped(slow.slope(loss_at, now), LIMIT)
        assert norm > 1.5 * LIMIT, "clipping is active"
        theta = now + adam.step(step, algo.policy_learning_rate)

    made = learner.arrays()
    close(made["parameters"], theta)
    close(made["optimiser.mean"], adam.mean)
    temperature = np.exp(now[0]) if algo.policy == "sac" else 0.0
    close(made["told"], [loss, entropy, temperature, norm, count])
    assert not learner._critics.gradient.any(), "critics are judges here"


def test_initial_critics_are_a_copy(case: Experiment) -> None:
    """What was drawn stays as it was while the critics learn."""
    critics = Critics(case, SPACES)
    drawn = initial_critics(critics, 0)
    before = drawn.clone()
    critics.vector += 1.0
    assert torch.equal(drawn, before)


def test_what_a_policys_learner_tells_is_kept(case: Experiment) -> None:
    """A successor tells the same until it has learnt something itself; the array is copied."""
    draw = np.random.default_rng(5)
    ring = filled_ring(case, draw)
    learner = PLearner(case, lambda: Policy(case, SPACES), ring)
    newest, told = a_version(Policy(case, SPACES), draw), np.arange(5.0)
    assert learner.arrays()["told"].tolist() == [0.0] * 5
    learner.take({"told": told, **past(len(newest.parameters), draw)})
    told[:] = 7.0
    learner.learn(TURN, ring.span(0), newest, np.zeros(Critics(case, SPACES).size, np.float32))
    assert learner.arrays()["told"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    np.testing.assert_array_equal(learner.arrays()["parameters"], newest.parameters.numpy())


def initial_critic(one: Experiment, number: int) -> torch.Tensor:
    """Orthogonal weights of gain sqrt(2), or 1 in the last layer, from the critic's own key."""
    named = key(one.seed, Purpose.INITIALISATION, number, 1)
    generator = torch.Generator().manual_seed(named >> 1)
    outputs = 1 if slow.off_policy(one).critic == "twin" else slow.off_policy(one).atoms
    widths, found = (slow.SEEN + slow.ACTIONS, slow.CRITIC_HIDDEN, outputs), []
    for (inputs, width), gain in zip(pairwise(widths), (math.sqrt(2.0), 1.0), strict=True):
        weight = torch.nn.init.orthogonal_(torch.empty(width, inputs), gain, generator)
        found += [weight.reshape(-1), torch.zeros(width)]
    return torch.cat(found)


def test_target_critics_begin_as_the_critics(case: Experiment) -> None:
    """Two critics that differ from each other, and targets equal to them."""
    ring = filled_ring(case, np.random.default_rng(3))
    expected = torch.cat([initial_critic(case, number) for number in range(2)])
    made = VLearner(case, lambda: Policy(case, SPACES), ring).arrays()
    first, second = np.split(made["critics"], 2)
    assert (first != second).any()
    np.testing.assert_array_equal(made["critics"], expected.numpy())
    np.testing.assert_array_equal(made["target"], expected.numpy())
    assert not np.shares_memory(made["target"], made["critics"])


def test_threads_of_the_critics_change_no_bit_and_end(case: Experiment) -> None:
    """Two shards by one thread, or by two of them."""
    made = []
    for workers in (1, 2):
        draw = np.random.default_rng(4)
        ring = filled_ring(case, draw)
        learner = VLearner(case, lambda: Policy(case, SPACES), ring, workers)
        learner.learn(TURN, ring.span(TURN + 1), a_version(Policy(case, SPACES), draw))
        assert learner_threads() == workers - 1
        learner.close()
        assert learner_threads() == 0
        made.append(learner.arrays()["critics"].tobytes())
    assert made[0] == made[1]


def learner_threads() -> int:
    return sum(thread.name.startswith("learner") for thread in threading.enumerate())
