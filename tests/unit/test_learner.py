"""The learner on rollouts of real worlds: which versions an update reads, and what it makes."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from hts.config import A2C, PPO, Experiment, Mlp
from hts.determinism.keys import episode_seed
from hts.learn.returns import Trace, advantages
from hts.memory.storage import Storage
from hts.memory.versions import Version
from hts.models.policy import Policy, initial_parameters
from hts.roles.learner import Learner
from hts.runtime.assemble import Updated, plan
from hts.runtime.serial import SerialRun
from hts_envs.contract import Array, Spaces
from hts_envs.registry import parse
from tests.fakes.runs import experiment, outcome, serial
from tests.fakes.small_worlds import Small
from tests.house.sources import ROOT

SMALL = "python:tests.fakes.small_worlds:Small"
PLAIN = A2C(learning_rate=0.01, learning_rate_schedule="constant", max_gradient_norm=1e9)

Collected = tuple[SerialRun, Storage, list[Version]]


@pytest.fixture
def collected() -> Collected:
    """A run of A2C after its second update, what it learnt from, and with which versions."""
    run = serial(experiment(algo=PLAIN, updates=4))
    updates = iter(run)
    next(updates)
    before = list(run.versions)
    next(updates)
    return run, run.storages[1], before


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        ("gym:CartPole-v1", {}),
        ("gym:CartPole-v1?max_episode_steps=9", {"frame_stack": 4, "normalise_observations": True}),
        (f"{SMALL}?agents=3", {"frame_stack": 2}),
        (f"{SMALL}?action=many&agents=2", {}),
        (f"{SMALL}?action=number", {}),
        (f"{SMALL}?action=vector&agents=2", {"normalise_observations": True}),
        (f"{SMALL}?action=table", {"normalise_rewards": True}),
    ],
)
def test_the_first_ratio_is_exactly_one(env: str, changes: dict[str, object]) -> None:
    """Rule 24: on every row of every rollout, episode boundaries included."""
    updates = outcome(experiment(env, updates=4, algo=PPO(epochs=2, minibatches=1), **changes))
    assert [update.told["train/ratio_error_first"] for update in updates] == [0.0] * 4
    assert all(update.episodes for update in updates), "a boundary in every rollout"


def test_the_first_ratio_is_exactly_one_in_padded_batches() -> None:
    """Five replicas are answered in batches with rows that are nobody's, and learnt from in shards
    that are smaller than any such batch."""
    asked = experiment(updates=4, replicas=5, shards=20)
    run = serial(asked)
    assert run.strategy.padding > 2, "or nothing is padded here"
    assert [update.told["train/ratio_error_first"] for update in run] == [0.0] * 4
    run.close()


def test_a_later_ratio_is_not_one() -> None:
    """Ratios against the newest parameters are off by a version, from the second update on."""
    updates = outcome(experiment(correction="ratio"))
    errors = [update.told["train/ratio_error_first"] for update in updates]
    assert errors[0] == 0.0
    assert min(errors[1:]) > 1e-5


def replayed(run: SerialRun, rollouts: list[dict[str, Array]]) -> list[Array]:
    """The value behind each step, where the rollout cannot say it: every episode is played again
    from its seed and its stored actions, on a world of its own, and looked at one by one."""
    asked, policy = run.experiment, run.learner.policy
    found = [np.zeros_like(arrays["bootstrap"]) for arrays in rollouts]
    for replica in range(asked.replicas):
        world, episode = Small(), 0
        world.reset(episode_seed(asked.seed, replica, 0))
        for rollout, arrays in enumerate(rollouts):
            policy.load(torch.from_numpy(arrays["theta"]))
            for step in range(asked.rollout):
                seen, _, terminated, truncated, _ = world.step(arrays["action"][replica, step])
                last = step == asked.rollout - 1
                if not terminated and (truncated or last):
                    with torch.inference_mode():
                        answer = policy.answer({name: a[None] for name, a in seen.items()})
                    found[rollout][replica, step] = answer.value.item()
                if terminated or truncated:
                    episode += 1
                    world.reset(episode_seed(asked.seed, replica, episode))
    return found


def test_the_value_behind_a_step_is_that_of_the_observation_behind_it() -> None:
    """Rules 1, 3 and 8: of the final observation, not of the reset's, with the rollout's own
    parameters, in the place of the step it stands behind; and nothing anywhere else."""
    algo = PPO(epochs=2, minibatches=2, learning_rate=0.01)
    run = serial(experiment(SMALL, algo=algo, updates=4))
    updates, rollouts = iter(run), []
    for rollout in range(4):
        theta = run.versions[0].parameters.numpy()
        next(updates)
        arrays = run.storages[rollout % 2].arrays
        kept = ("bootstrap", "action", "truncated")
        rollouts.append({name: arrays[name].copy() for name in kept} | {"theta": theta})
    assert sum(int(arrays["truncated"].sum()) for arrays in rollouts) > 10
    for arrays, expected in zip(rollouts, replayed(run, rollouts), strict=True):
        np.testing.assert_array_equal(arrays["bootstrap"] != 0, expected != 0)
        # One row at a time and batches of rows differ in the last digits.
        np.testing.assert_allclose(arrays["bootstrap"], expected, rtol=1e-4, atol=1e-6)
    run.close()


def by_hand(run: SerialRun, storage: Storage, start: Version, log_prob: Tensor | None) -> Tensor:
    """The gradient of A2C's loss at these parameters on this rollout, with plain autograd.

    The network is written out again: two hidden layers of tanh for the policy, two for the value.
    """
    policy = run.learner.policy
    policy.load(start.parameters)
    weights = [p.detach().clone().requires_grad_() for p in policy.network.parameters()]
    (_, w1, b1, w2, b2, v1, c1, v2, c2, wp, bp, wv, bv) = weights
    frames = torch.from_numpy(storage.arrays["frames.observation"][:, :-1, 0].copy())
    x = frames.reshape(-1, 4)
    logits = torch.tanh(torch.tanh(x @ w1.T + b1) @ w2.T + b2) @ wp.T + bp
    value = (torch.tanh(torch.tanh(x @ v1.T + c1) @ v2.T + c2) @ wv.T + bv)[:, 0]
    logs = torch.log_softmax(logits, -1)
    taken = torch.from_numpy(storage.action.reshape(-1))
    said = logs[torch.arange(len(taken)), taken]
    trace = Trace(
        storage.reward, storage.value, storage.bootstrap, storage.terminated, storage.truncated
    )
    found = advantages(trace, PLAIN.gamma, PLAIN.gae_lambda)
    advantage = torch.from_numpy(found.reshape(-1).astype(np.float32))
    target = torch.from_numpy((found + storage.value).reshape(-1).astype(np.float32))
    weight = torch.ones(len(said))
    if log_prob is not None:  # truncated importance sampling
        weight = torch.clamp((said.detach() - log_prob).exp(), max=1.0)
    loss = -(said * advantage * weight).mean()
    loss = loss + PLAIN.value_coefficient * (value - target).square().mean()
    loss = loss + PLAIN.entropy_coefficient * (logs.exp() * logs).sum(-1).mean()
    (*rest,) = torch.autograd.grad(loss, weights[1:])
    return torch.cat([gradient.reshape(-1) for gradient in rest])


def stepped(newest: Version, gradient: Tensor) -> Tensor:
    """theta + eta * gradient's step: PyTorch's own RMSProp, at its first step."""
    theta = newest.parameters.clone().requires_grad_()
    theta.grad = gradient
    torch.optim.RMSprop([theta], lr=PLAIN.learning_rate, eps=PLAIN.optimiser_epsilon).step()
    return theta.detach()


def test_one_step_of_a2c_is_equation_6(collected: Collected) -> None:
    """theta_{j+1} = theta_j + step of the gradient at theta_{j-1} on the data of theta_{j-1}.

    The gradient is summed in another order than the learner's, so float32's last digits may differ.
    """
    run, storage, (behaviour, newest) = collected
    assert not torch.equal(behaviour.parameters, newest.parameters)
    learner = Learner(run.experiment, run.learner.policy)
    gradient = by_hand(run, storage, behaviour, None)
    expected = stepped(newest, gradient)
    made, told = learner.update(storage, behaviour, newest, 1)
    # A step of RMSProp divides by the root of a small number, which magnifies roundings.
    torch.testing.assert_close(made.parameters, expected, rtol=1e-4, atol=2e-5)
    assert told["train/gradient_norm"] == pytest.approx(float(gradient.norm()), rel=1e-4)
    assert made.number == newest.number + 1


@pytest.mark.parametrize("correction", ["none", "truncated_is"])
def test_other_corrections_take_the_gradient_at_the_newest(
    collected: Collected, correction: str
) -> None:
    """Without correction, or weighted by min(1, newest / behaviour): from theta_j, at theta_j."""
    run, storage, (behaviour, newest) = collected
    asked = dataclasses.replace(run.experiment, correction=correction)
    old = torch.from_numpy(storage.log_prob.reshape(-1)) if correction == "truncated_is" else None
    gradient = by_hand(run, storage, newest, old)
    expected = stepped(newest, gradient)
    made, told = Learner(asked, run.learner.policy).update(storage, behaviour, newest, 1)
    torch.testing.assert_close(made.parameters, expected, rtol=1e-4, atol=2e-5)
    assert told["train/gradient_norm"] == pytest.approx(float(gradient.norm()), rel=1e-4)


def test_the_gradient_points_differ() -> None:
    """At the behaviour, at the newest, weighted or not: four different runs from the same data."""
    made = {}
    for correction in ("delayed", "none", "truncated_is", "ratio"):
        updates = outcome(experiment(correction=correction))
        made[correction] = [update.link.parameters for update in updates]
    firsts = {correction: parameters[0] for correction, parameters in made.items()}
    assert firsts["ratio"] == firsts["none"] == firsts["truncated_is"], "no lag yet, no difference"
    assert len({parameters[-1] for parameters in made.values()}) == 4


@pytest.mark.parametrize("algo", [PLAIN, PPO(epochs=2, minibatches=2)], ids=["a2c", "ppo"])
@pytest.mark.parametrize("correction", ["delayed", "none"])
def test_an_update_leaves_the_versions_it_reads_alone(algo: A2C | PPO, correction: str) -> None:
    """Rule 33: bit for bit what was published, behaviour and newest, after the update; and the
    new parameters are others."""
    run = serial(experiment(algo=algo, correction=correction, updates=4))
    updates = iter(run)
    for _ in range(4):
        versions = list(run.versions)
        before = [version.parameters.numpy().tobytes() for version in versions]
        next(updates)
        assert [version.parameters.numpy().tobytes() for version in versions] == before
        assert run.versions[-1].parameters.numpy().tobytes() not in before
    run.close()


def test_an_update_is_a_function_of_what_it_is_given() -> None:
    """Two learners with the same history make the same bits; the rollout is not written to."""
    run = serial(experiment())
    updates = iter(run)
    versions = list(run.versions)
    next(updates)
    storage = run.storages[0]
    for array in storage.arrays.values():
        array.flags.writeable = False
    policy = Policy(run.experiment, _spaces(run.experiment))
    again, _ = Learner(run.experiment, policy).update(storage, *versions, 0)
    assert torch.equal(again.parameters, run.versions[-1].parameters)
    run.close()


def _spaces(asked: Experiment) -> Spaces:
    return plan(asked, parse(asked.env), "cpu").spaces


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_shards_change_roundings_only(shards: int) -> None:
    """However many parts a minibatch has, the update is the same to float32's precision."""
    whole = experiment(algo=PLAIN, shards=8, updates=1)
    runs = [serial(dataclasses.replace(whole, shards=n)) for n in (8, shards)]
    for run in runs:
        list(run)
        run.close()
    first, second = (run.versions[-1].parameters for run in runs)
    torch.testing.assert_close(first, second, rtol=1e-4, atol=2e-5)


def test_minibatches_are_a_partition_and_named() -> None:
    """Each row once in every epoch; another version, epoch or seed shuffles otherwise."""
    asked = experiment(algo=PPO(minibatches=4, epochs=3))
    run = serial(asked)

    def rows(version: int, epoch: int, one: Experiment = asked) -> list[int]:
        parts = Learner(one, run.learner.policy)._rows(version)
        assert parts.shape == (3 * 4, 16)
        return [int(row) for part in parts[4 * epoch :][:4] for row in part]

    other = dataclasses.replace(asked, seed=1)
    shuffles = [rows(0, 0), rows(0, 1), rows(0, 2), rows(1, 0), rows(0, 0, other)]
    for shuffle in shuffles:
        assert sorted(shuffle) == list(range(64))
    assert len(set(map(tuple, shuffles))) == 5
    assert rows(0, 0) == shuffles[0]
    run.close()


def test_the_learning_rate_is_a_function_of_steps() -> None:
    """Rule 28: linear to zero over the whole run, in absolute environment steps; or constant."""
    algo = PPO(learning_rate=0.8, minibatches=2)
    falling = outcome(experiment(algo=algo, updates=4))
    assert [u.told["train/learning_rate"] for u in falling] == pytest.approx([0.8, 0.6, 0.4, 0.2])
    level = dataclasses.replace(algo, learning_rate_schedule="constant")
    assert [u.told["train/learning_rate"] for u in outcome(experiment(algo=level, updates=2))] == [
        0.8,
        0.8,
    ]
    beyond = outcome(experiment(algo=algo, steps=100))
    assert [u.told["train/learning_rate"] for u in beyond] == pytest.approx([0.8, 0.8 * 0.36])


def test_parameters_that_are_not_finite_are_refused() -> None:
    """An update that blew up says which one it was and what usually mends it."""
    steep = PPO(learning_rate=1e38, minibatches=2)
    with pytest.raises(FloatingPointError, match="update 1 made parameters that are not finite"):
        outcome(experiment(algo=steep))


def test_a_rollout_of_another_version_is_refused(collected: Collected) -> None:
    """I3: a rollout is learnt from with the version that made it, or not at all."""
    run, storage, (behaviour, newest) = collected
    with pytest.raises(AssertionError, match="I3"):
        run.learner.update(storage, newest, newest, 1)
    assert storage.version == behaviour.number


def test_the_lag_is_that_of_the_versions_which_were_used(collected: Collected) -> None:
    """From the version that the rollout was made with to the one that is learnt into, whatever
    somebody hands to the learner; a run in turn has none."""
    run, storage, (behaviour, newest) = collected
    learner = Learner(run.experiment, run.learner.policy)
    for lag in (1, 2, 5):
        ahead = dataclasses.replace(newest, number=behaviour.number + lag)
        _, told = learner.update(storage, behaviour, ahead, 1)
        assert told["train/lag"] == lag
    for schedule, lag in (("hts", 1), ("sync", 0)):
        other = serial(experiment(updates=3, schedule=schedule))
        assert [updated.told["train/lag"] for updated in other] == [lag] * 3
        other.close()


def test_clipped_rewards_are_learnt_from_and_stored_raw() -> None:
    """Rule 11: the storage keeps what the world said."""
    asked = experiment(f"{SMALL}?action=vector")
    runs = [serial(one) for one in (asked, dataclasses.replace(asked, clip_rewards=0.01))]
    links = [next(iter(run)).link for run in runs]
    assert links[0].rollout == links[1].rollout
    assert links[0].parameters != links[1].parameters
    assert max(np.abs(run.storages[0].reward).max() for run in runs) > 0.01
    for run in runs:
        run.close()


def test_reward_scaling_begins_again_after_either_end() -> None:
    """A discounted return never runs on over a termination or a truncation into the next episode,
    and runs on from one rollout to the next."""
    asked = experiment(f"{SMALL}?action=vector", normalise_rewards=True, updates=3)
    run = serial(asked)
    returns = np.zeros((asked.replicas, 1))
    seen, ends = [], {"terminated": 0, "truncated": 0}
    for rollout, _ in enumerate(run):
        storage = run.storages[rollout % 2]
        for step in range(asked.rollout):
            returns = 0.99 * returns + storage.reward[:, step]
            seen.append(returns.copy())
            for name in ends:
                ended = storage.arrays[name][:, step]
                ends[name] += int(ended.sum())
                returns[ended] = 0.0
    scale = run.learner.kept.reward_scale
    run.close()
    assert min(ends.values()) > 5, "both kinds of ends"
    np.testing.assert_allclose(scale.running, returns, rtol=1e-12)
    np.testing.assert_allclose(scale.moments.mean, np.mean(seen), rtol=1e-9)
    np.testing.assert_allclose(scale.moments.squares, np.var(seen) * np.size(seen), rtol=1e-9)


def test_advantages_are_normalised_over_the_minibatch() -> None:
    """Rewards a thousand times as large make the same policy step; the guard holds for one row."""
    asked = experiment(algo=PPO(epochs=1, minibatches=1, value_coefficient=0.0), updates=1)
    run = serial(asked)
    versions = list(run.versions)
    (first,) = list(run)
    storage = run.storages[0]
    for name in ("reward", "value", "bootstrap"):
        storage.arrays[name][:] *= 1024
    learner = Learner(asked, run.learner.policy)
    made, _ = learner.update(storage, *versions, 0)
    torch.testing.assert_close(made.parameters, run.versions[-1].parameters, rtol=1e-4, atol=1e-6)
    assert math.isfinite(first.told["train/policy_loss"])
    run.close()
    algo = PPO(epochs=1, minibatches=1)
    (alone,) = outcome(experiment(algo=algo, replicas=1, rollout=1, shards=1, updates=1))
    assert math.isfinite(alone.told["train/policy_loss"])
    assert alone.told["train/policy_loss"] != 0.0, "one advantage is not normalised to nothing"


def test_a_learner_raises_the_probability_of_what_is_rewarded() -> None:
    """The whole way, with the lag: on a world that shows the right action, the return rises."""
    algo = PPO(epochs=4, minibatches=4, learning_rate=3e-3, learning_rate_schedule="constant")
    updates = outcome(
        experiment("sleeper:?mean=0&length=20", algo=algo, replicas=8, rollout=32, updates=25)
    )

    def share(part: list[Updated]) -> float:
        facts = [episode.facts for update in part for episode in update.episodes]
        return sum(f["return"] for f in facts) / sum(f["length"] for f in facts)

    assert share(updates[:4]) < 0.65
    assert share(updates[-4:]) > 0.9


def test_initial_parameters_are_a_function_of_the_seed_and_touch_no_generator() -> None:
    """Rule 26: the same vector for every network; torch's own generator stands still."""
    spaces = _spaces(experiment())
    before = torch.random.get_rng_state()
    made = [initial_parameters(Policy(experiment(), spaces), seed) for seed in (3, 3, 4)]
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_initial_layers_are_orthogonal_with_small_policy_heads() -> None:
    """Gain sqrt 2 inside, 0.01 for the policy's head, 1 for the value's; no bias."""
    policy = Policy(experiment(model=Mlp(hidden=(8,))), _spaces(experiment()))
    initial_parameters(policy, 0)
    network = policy.network
    hidden = network.torso.policy[0].weight  # type: ignore[union-attr, index]
    assert isinstance(hidden, Tensor)
    torch.testing.assert_close(hidden.T @ hidden, 2 * torch.eye(4), atol=1e-5, rtol=0)
    head = network.policy.weight
    torch.testing.assert_close(head @ head.T, 1e-4 * torch.eye(2), atol=1e-9, rtol=0)
    assert float(network.value.weight.detach().norm()) == pytest.approx(1.0, rel=1e-5)
    assert not any(bool(layer.bias.any()) for layer in (network.policy, network.value))


def test_learning_imports_nothing_large() -> None:
    """torch imports 40 MB of symbolic algebra behind some of its functions: a learner does without,
    whatever it learns by."""
    program = (
        "import sys\n"
        "from hts.determinism import numerics\n"
        "numerics.prepare()\n"
        "from hts.config import A2C\n"
        "from tests.fakes.runs import experiment, outcome\n"
        "outcome(experiment(updates=2))\n"
        "outcome(experiment(algo=A2C(), updates=2, policies='separate', recurrent='gru'))\n"
        "sys.exit('sympy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
