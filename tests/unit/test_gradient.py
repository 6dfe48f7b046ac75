"""Shards and workers, sequences, and networks of each agent's own: on rollouts made of noise."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from hts.config import A2C, PPO, Conv, Experiment, Mlp
from hts.errors import RatioNotOne
from hts.learn.kept import Kept
from hts.machine import Sizes
from hts.memory.storage import Storage
from hts.memory.versions import Version
from hts.models.network import by_autograd
from hts.models.policy import Policy, initial_parameters
from hts.roles.gradient import Gradients, Seen
from hts.roles.learner import Learner
from hts_envs.contract import Array, Box, Discrete, Spaces
from tests.fakes.runs import experiment, outcome

ALGOS = (A2C(learning_rate=0.01), PPO(epochs=2, minibatches=2, value_clip=0.2))
VECTOR, IMAGE = Box((5,)), Box((36, 36, 2), "uint8", 0, 255)


def asked(**changes: Any) -> Experiment:
    """Eight replicas, sixteen steps, shards of at least four rows or sequences."""
    values: dict[str, Any] = {"algo": ALGOS[1], "replicas": 8, "rollout": 16, "shards": 4}
    return Experiment(env="counting:", steps=10_000, **{**values, **changes})


def spaces_of(one: Experiment, agents: int = 1) -> Spaces:
    seen = IMAGE if isinstance(one.model, Conv) else VECTOR
    return Spaces({"observation": seen}, Discrete(3), agents)


def noise(one: Experiment, spaces: Spaces, seed: int = 0) -> Storage:
    """A rollout of random numbers, with ends of both kinds."""
    storage, drawn = Storage(Sizes.of(one, spaces), spaces), np.random.default_rng(seed)
    for array in storage.arrays.values():
        if array.dtype == np.float32:
            array[:] = drawn.normal(size=array.shape)
        elif array.dtype == np.uint8:
            array[:] = drawn.integers(0, 256, array.shape)
    storage.log_prob[:] = -np.abs(storage.log_prob)
    storage.action[:] = drawn.integers(0, 3, storage.action.shape)
    storage.age[:] = drawn.integers(0, 5, storage.age.shape)
    storage.terminated[:] = drawn.random(storage.terminated.shape) < 0.1
    storage.truncated[:] = drawn.random(storage.truncated.shape) < 0.1
    storage.version = 0
    return storage


def first_versions(one: Experiment, spaces: Spaces) -> tuple[Version, Version]:
    theta = initial_parameters(Policy(one, spaces), one.seed)
    return Version(0, theta), Version(1, theta)


def updated(one: Experiment, spaces: Spaces, workers: int = 1, updates: int = 2) -> Tensor:
    """The parameters after some updates, all from the same rollout."""
    learner = Learner(one, Policy(one, spaces), workers)
    behaviour, newest = first_versions(one, spaces)
    storage = noise(one, spaces)
    for update in range(updates):
        newest, _ = learner.update(storage, behaviour, newest, update)
    learner.close()
    return newest.parameters


@pytest.mark.parametrize("algo", ALGOS, ids=["a2c", "ppo"])
@pytest.mark.parametrize(
    ("changes", "agents"),
    [
        ({}, 1),
        ({"model": Conv(hidden=33)}, 1),
        ({"model": Mlp(hidden=(33,), shared=True), "policies": "separate"}, 2),
        ({"recurrent": "lstm", "recurrent_units": 8, "sequence": 4, "shards": 4}, 1),
    ],
    ids=["mlp", "conv", "separate", "lstm"],
)
def test_workers_change_no_bit(algo: A2C | PPO, changes: dict[str, Any], agents: int) -> None:
    """1, 2, 3 and 4 threads share four shards: the same parameters, bit for bit; another number
    of shards makes others."""
    one = asked(algo=algo, **changes)
    spaces = spaces_of(one, agents)
    alone = updated(one, spaces)
    assert torch.isfinite(alone).all()
    for workers in (2, 3, 4):
        assert torch.equal(updated(one, spaces, workers), alone)
    assert not torch.equal(updated(dataclasses.replace(one, shards=2), spaces), alone)


@pytest.mark.parametrize("workers", [1, 2])
def test_shards_are_added_in_their_order(workers: int) -> None:
    """((g0 + g1) + g2) + g3, each computed by itself; the other way round is not the same bits."""
    one = asked(algo=ALGOS[0])
    spaces = spaces_of(one)
    policy = Policy(one, spaces)
    policy.load(initial_parameters(policy, 0))
    learner = Learner(one, policy)
    learning = learner._learning(noise(one, spaces), first_versions(one, spaces)[0].scale)
    (minibatch,) = learner._minibatches(learning, 0)
    single = Gradients(dataclasses.replace(one, shards=1), policy, 1)
    each = []
    for shard in minibatch.shards(4):
        single.compute(shard)
        each.append(policy.gradient.clone() / 4)  # exact: its own mean is over a quarter of rows
    gradients = Gradients(one, policy, workers)
    gradients.compute(minibatch)
    gradients.close()
    assert torch.equal(policy.gradient, ((each[0] + each[1]) + each[2]) + each[3])
    assert not torch.equal(policy.gradient, ((each[3] + each[2]) + each[1]) + each[0])


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
@pytest.mark.parametrize("hidden", [(), (33,), (64, 64), (5, 1, 7)], ids=str)
@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@pytest.mark.parametrize("action", [Discrete(3), Box((2,))], ids=["choice", "numbers"])
@pytest.mark.parametrize("rows", [1, 16, 51])
def test_the_way_back_through_dense_layers_is_autograd_s(
    activation: Any, hidden: tuple[int, ...], shared: bool, action: Any, rows: int
) -> None:
    """Bit for bit, on top of a gradient that is there already.

    A product of one row with one unit is a dot product: some processors (an Intel Xeon with
    AVX-512) add its terms in another order when one factor is transposed.
    """
    one = asked(model=Mlp(hidden=hidden, activation=activation, shared=shared))
    policy = Policy(one, Spaces({"observation": VECTOR}, action))
    policy.load(initial_parameters(policy, 3))
    drawn = np.random.default_rng(rows)
    seen = {"observation": drawn.normal(size=(rows, 1, 5)).astype(np.float32)}
    gradients = []
    for by_hand in (True, False):
        if by_hand:
            answer, back = policy.with_back(seen)
        else:
            answer = policy.answer(seen)
            back = by_autograd(answer)
        slopes = (torch.cos(9.0 * numbers.detach()) for numbers in (answer.head, answer.value))
        policy.gradient.fill_(0.125)
        back(*slopes)
        gradients.append((answer.head.detach(), answer.value.detach(), policy.gradient.clone()))
    tolerance = 1e-6 if rows == 1 and 1 in hidden else 0.0
    for by_hand, by_torch in zip(*gradients, strict=True):
        torch.testing.assert_close(by_hand, by_torch, rtol=tolerance, atol=tolerance)


def test_an_error_in_a_worker_is_raised_by_the_update() -> None:
    """And the learner can go on: nothing of the failed update is left in the next gradient."""
    one = asked(algo=ALGOS[0])
    spaces = spaces_of(one)
    good, bad = noise(one, spaces), noise(one, spaces)
    bad.action[-1] = 99  # the last replica's rows are in the last shard
    learner = Learner(one, Policy(one, spaces), 2)
    behaviour, newest = first_versions(one, spaces)
    with pytest.raises(RuntimeError, match="out of bounds"):
        learner.update(bad, behaviour, newest, 0)
    made, _ = learner.update(good, behaviour, newest, 0)
    learner.close()
    assert torch.equal(made.parameters, updated(one, spaces, updates=1))


def test_threads_end_with_the_learner() -> None:
    """They are there from the first shared shard to the learner's end, and no longer."""

    def threads() -> int:
        return sum(thread.name.startswith("learner") for thread in threading.enumerate())

    one = asked()
    spaces = spaces_of(one)
    learner = Learner(one, Policy(one, spaces), 4)
    versions = first_versions(one, spaces)
    assert threads() == 0
    for update in range(2):
        learner.update(noise(one, spaces), *versions, update)
        assert threads() == 3
    learner.close()
    assert threads() == 0


@pytest.mark.parametrize("optimiser", ["rmsprop", "adam"])
def test_a_learner_goes_on_from_what_was_kept(optimiser: Literal["rmsprop", "adam"]) -> None:
    """The arrays that are kept between updates are all there is, and are copied: another learner
    that takes them makes the same bits, whatever the first one does next."""
    one = asked(algo=PPO(optimiser=optimiser, epochs=2, minibatches=2), normalise_rewards=True)
    spaces = spaces_of(one)
    versions, storage = first_versions(one, spaces), noise(one, spaces)
    first, second = (Learner(one, Policy(one, spaces)) for _ in range(2))
    first.update(storage, *versions, 0)
    fresh, _ = second.update(noise(one, spaces, seed=1), *versions, 0)
    second.kept.take(first.kept.arrays())
    expected, _ = first.update(storage, *versions, 1)
    made, _ = second.update(storage, *versions, 1)
    assert torch.equal(made.parameters, expected.parameters)
    assert not torch.equal(made.parameters, fresh.parameters)


def test_what_is_kept_is_copied() -> None:
    """Its place in memory is written to again, two updates later; and it begins as zeros."""
    kept = Kept.fresh(asked(), 3, 2)
    before = {name: array.copy() for name, array in kept.arrays().items()}
    assert not any(array.any() for array in before.values())
    assert before["reward.running"].shape == (8, 2)
    arrays = {name: np.full_like(array, 7) for name, array in before.items()}
    kept.take(arrays)
    for array in arrays.values():
        array[:] = 8
    assert set(kept.arrays()) == set(before)
    assert all((array == 7).all() for array in kept.arrays().values())


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("changes", [{}, {"sequence": 4}, {"algo": A2C()}, {"frame_stack": 2}])
@pytest.mark.parametrize("correction", ["delayed", "none"])
def test_the_first_ratio_of_a_recurrent_policy_is_exactly_one(
    kind: str, changes: dict[str, Any], correction: str
) -> None:
    """Rules 24 and 27: each sequence from the state that it was acted with, reset where its
    episodes begin; when the newest parameters are asked as well."""
    shape: dict[str, Any] = {"recurrent": kind, "recurrent_units": 16, "replicas": 8}
    env = "gym:CartPole-v1?max_episode_steps=9"
    updates = outcome(experiment(env, updates=4, correction=correction, **shape, **changes))
    assert [update.told["train/ratio_error_first"] for update in updates] == [0.0] * 4
    assert all(update.episodes for update in updates), "a boundary in every rollout"


def test_a_sequence_starts_from_its_stored_state() -> None:
    """Another state before a sequence changes the answers to it, up to its first episode's begin,
    and to no other sequence."""
    one = asked(recurrent="gru", recurrent_units=8, sequence=4)
    spaces = spaces_of(one)
    policy, storage = Policy(one, spaces), noise(one, spaces)
    policy.load(initial_parameters(policy, 0))
    storage.age[:] = np.arange(17) + 3
    storage.age[2, 6:] = np.arange(11)
    places = [(2, 4), (5, 8), (2, 8), (0, 0)]
    rows = np.concatenate([np.arange(r * 16 + s, r * 16 + s + 4) for r, s in places])
    seen = Seen(storage, first_versions(one, spaces)[0].scale, 4)

    def values() -> Array:
        with torch.inference_mode():
            return seen.answer(policy, rows).value.numpy().reshape(4, 4)

    before = values()
    storage.state[2, 4] += 1.0
    np.testing.assert_array_equal(
        values() != before, [[True, True, False, False]] + [[False] * 4] * 3
    )


@pytest.mark.parametrize("sequence", [None, 4])
def test_minibatches_are_of_whole_sequences(sequence: int | None) -> None:
    """Each sequence once in an epoch, its steps in order; A2C takes all in the replicas' order."""
    one = asked(recurrent="gru", recurrent_units=8, sequence=sequence, shards=1)
    length = sequence or 16
    policy = Policy(one, spaces_of(one))
    parts = Learner(one, policy)._rows(0)
    assert parts.shape == (2 * 2, 64), "epochs, minibatches of each"
    sequences = np.concatenate(parts[:2]).reshape(-1, length)
    begins = sequences[:, 0]
    np.testing.assert_array_equal(sequences, begins[:, None] + np.arange(length))
    assert sorted(begins) == list(range(0, 128, length))
    assert list(begins) != sorted(begins)
    (rows,) = Learner(asked(algo=A2C(), recurrent="gru", sequence=sequence), policy)._rows(0)
    np.testing.assert_array_equal(rows, np.arange(128))


def of_agent(storage: Storage, one: Experiment, agent: int) -> Storage:
    """What one agent saw and did, as a rollout with nobody else."""
    alone = spaces_of(one)
    found = Storage(Sizes.of(one, alone), alone)
    for name, array in storage.arrays.items():
        axis = {"frames.observation": 2, "finals.observation": 2}.get(name, 2)
        shared = name in ("age", "episode", "key", "terminated", "truncated")
        found.arrays[name][:] = array if shared else array.take([agent], axis)
    found.version = storage.version
    return found


@pytest.mark.parametrize("algo", ALGOS, ids=["a2c", "ppo"])
@pytest.mark.parametrize("limit", [0.01, 1e9], ids=["clipped", "free"])
def test_separate_policies_learn_as_if_alone(algo: A2C | PPO, limit: float) -> None:
    """Each agent's own mean, normalised advantages, clipped norm and optimiser: what it becomes is
    what it would become with its own data alone, also beside an agent with far larger rewards.

    Sums of a gradient's norm may be grouped otherwise, so the last digits may differ.
    """
    algo = dataclasses.replace(algo, max_gradient_norm=limit)
    one = asked(algo=algo, policies="separate")
    both = spaces_of(one, 2)
    storage, versions = noise(one, both), first_versions(one, both)
    storage.reward[:, :, 1] *= 1000
    made, told = Learner(one, Policy(one, both)).update(storage, *versions, 0)
    norms = []
    for agent, theta in enumerate(versions[0].parameters.chunk(2)):
        learner = Learner(one, Policy(one, spaces_of(one)))
        own = Version(0, theta.clone()), Version(1, theta.clone())
        expected, said = learner.update(of_agent(storage, one, agent), *own, 0)
        torch.testing.assert_close(
            made.parameters.chunk(2)[agent], expected.parameters, rtol=1e-5, atol=1e-6
        )
        assert not torch.equal(expected.parameters, theta)
        norms.append(said["train/gradient_norm"])
    assert told["train/gradient_norm"] == pytest.approx(np.mean(norms), rel=1e-4)
    assert norms[1] > 10 * norms[0]


@pytest.mark.parametrize("model", [Mlp(), Conv(hidden=32)], ids=["mlp", "conv"])
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_acted_on_in_padded_batches_are_learnt_from_with_ratio_one(
    model: Mlp | Conv, workers: int
) -> None:
    """Rule 24: batches of 32 and 64 rows when acting, shards of 16, padded as those are, when
    learning. The probe knows no larger padding than 32."""
    one = asked(model=model, frame_stack=2)
    spaces = spaces_of(one)
    policy, versions, storage = Policy(one, spaces), first_versions(one, spaces), noise(one, spaces)
    policy.load(versions[0].parameters)
    seen = Seen(storage, versions[0].scale, 1)
    rows, log_prob = np.arange(128), storage.log_prob.reshape(-1)
    for batch in np.split(rows, [32, 96]):
        with torch.inference_mode():
            action = torch.from_numpy(storage.action.reshape(-1)[batch])
            answer = seen.answer(policy, batch)
            log_prob[batch] = policy.distribution.log_prob(answer.head, action).numpy()
    learner = Learner(one, policy, workers, padding=32)
    _, told = learner.update(storage, *versions, 0)
    learner.close()
    assert told["train/ratio_error_first"] == 0.0
    log_prob += 1e-6
    _, told = Learner(one, policy, padding=32).update(storage, *versions, 0)
    assert told["train/ratio_error_first"] > 0.0
    Learner(one, policy, padding=32, ratio_error_limit=1e-3).update(storage, *versions, 0)
    with pytest.raises(RatioNotOne, match=r"update 1: .* where 0 is allowed: "):
        Learner(one, policy, padding=32, ratio_error_limit=0.0).update(storage, *versions, 0)
    log_prob += 1e-2
    with pytest.raises(RatioNotOne, match=r"where 0\.001 is allowed: "):
        Learner(one, policy, padding=32, ratio_error_limit=1e-3).update(storage, *versions, 0)
