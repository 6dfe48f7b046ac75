"""Batches: the probe finds out what is safe, and actors keep to it whatever arrives together."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from hts.config import Conv, Experiment, Impala, Mlp
from hts.determinism.invariance import probe
from hts.determinism.strategy import Strategy
from hts.machine import Sizes
from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.models import layers
from hts.models.network import Answer
from hts.models.policy import Policy, initial_parameters
from hts.models.spaces import stacked
from hts.roles.actor import Actor
from hts.runtime.assemble import Plan, plan
from hts_envs.contract import Array, Observation
from hts_envs.registry import parse
from tests.fakes.runs import experiment

REPLICAS = 48
FIXED = Strategy(0, "one batch of all replicas, each in its place (exact reproducibility)")
WORDS = ("action", "log_prob", "value", "bootstrap")
TEAM = "python:tests.fakes.small_worlds:Small?action=many&agents=3"
WIDE = experiment(replicas=REPLICAS, rollout=4)
AWKWARD = dataclasses.replace(WIDE, model=Mlp(hidden=(33,)))
WORLDS = {
    "an mlp": WIDE,
    "a layer of 33 units": AWKWARD,
    "continuous actions": dataclasses.replace(WIDE, env="gym:Pendulum-v1", frame_stack=3),
    "several agents and choices": dataclasses.replace(WIDE, env=TEAM),
    "a network for each agent": dataclasses.replace(WIDE, env=TEAM, policies="separate"),
    "squashed actions": dataclasses.replace(WIDE, env="gym:Pendulum-v1", squash=True),
    "an lstm": dataclasses.replace(WIDE, recurrent="lstm", recurrent_units=24),
    "a gru of 33 units": dataclasses.replace(WIDE, recurrent="gru", recurrent_units=33),
    "an lstm for each agent": dataclasses.replace(
        WIDE, env=TEAM, policies="separate", recurrent="lstm", recurrent_units=16
    ),
    "images": dataclasses.replace(
        WIDE,
        env="sleeper:?mean=0&observation=36x36x1&dtype=uint8",
        model=Conv(hidden=33),
        frame_stack=2,
    ),
}


def planned(asked: Experiment) -> Plan:
    return plan(asked, parse(asked.env), "cpu")


def trained(found: Plan) -> Version:
    """Parameters as they are after some learning: no zeros, no small heads."""
    policy = found.policy()
    first = initial_parameters(policy, 0)
    moved = torch.randn(len(first), generator=torch.Generator().manual_seed(0)) * 0.1
    return Version(0, first + moved)


def noisy_storage(found: Plan) -> Storage:
    """A storage full of frames, ages and keys such as a rollout leaves."""
    storage = Storage(Sizes.of(found.experiment, found.spaces), found.spaces)
    storage.version = 0
    random = np.random.default_rng(0)
    for name in storage.fields:
        for kind in ("frames", "finals"):
            array = storage.arrays[f"{kind}.{name}"]
            drawn = random.normal(size=array.shape)
            if array.dtype.kind != "f":
                drawn = np.abs(drawn * 1000) % (256 if array.dtype == np.uint8 else 5)
            array[:] = drawn.astype(array.dtype)
    storage.age[:] = random.integers(0, 9, storage.age.shape)
    storage.key[:] = random.integers(0, 2**63, storage.key.shape, np.uint64)
    if storage.sizes.state:
        storage.state[:] = random.normal(size=storage.state.shape)
    return storage


def answers(actor: Actor, storage: Storage, version: Version, batches: list[Array]) -> bytes:
    """Every row's actions, values of every kind and states, asked in these batches."""
    for name in WORDS:
        storage.arrays[name][:] = 0
    for replicas in batches:
        for step in range(4):
            actor.act(storage, Rows(replicas, np.full(len(replicas), step)), version)
        actor.value(storage, Rows(replicas, np.full(len(replicas), 1), final=True), version)
        actor.value(storage, Rows(replicas, np.full(len(replicas), 4)), version)
    if actor.padding and actor.policy(version).values_apart:
        ends = np.cumsum([len(batch) for batch in batches]).tolist()
        for first, end in zip([0, *ends], ends, strict=False):
            actor.values(storage, range(first, end), version)
    recurrent = ("state",) if storage.sizes.state else ()
    return b"".join(storage.arrays[name].tobytes() for name in (*WORDS, *recurrent))


def arrivals(seed: int) -> list[Array]:
    """All replicas in a random order, in batches of random sizes."""
    random = np.random.default_rng(seed)
    cuts = np.flatnonzero(random.random(REPLICAS) < random.choice([0.05, 0.2, 0.6]))
    return [part for part in np.split(random.permutation(REPLICAS), cuts) if len(part)]


@pytest.mark.parametrize("name", WORLDS)
def test_an_answer_does_not_depend_on_what_is_asked_with_it(name: str) -> None:
    """Rules 19 and 20: the strategy that the probe chose, in twelve random orders and cuts: the
    same bytes, actions included."""
    found = planned(WORLDS[name])
    strategy = found.strategy()
    actor = Actor(partial(found.policy, packs=strategy.packs), strategy.padding, REPLICAS)
    storage, version = noisy_storage(found), trained(found)
    expected = answers(actor, storage, version, [np.arange(REPLICAS)])
    learners = Actor(found.policy, strategy.learning, REPLICAS)
    assert answers(learners, storage, version, [np.arange(REPLICAS)]) == expected
    for seed in range(12):
        assert answers(actor, storage, version, arrivals(seed)) == expected, f"order {seed}"


def test_without_a_strategy_an_answer_does_depend_on_it() -> None:
    """What the strategies are for: on some machine or other, and then the test above means
    something. Where even unpadded batches are bit-equal, the probe has to say so."""
    for asked in (WIDE, AWKWARD):
        found = planned(asked)
        actor = Actor(found.policy, 1, REPLICAS)
        storage, version = noisy_storage(found), trained(found)
        said = {answers(actor, storage, version, arrivals(seed)) for seed in range(12)}
        strategy = found.strategy()
        assert (len(said) == 1) == (strategy.padding > 0 and strategy.learning == 1)


def shuffled(count: int) -> list[list[Array]]:
    """All replicas in one batch, in so many orders."""
    return [[np.random.default_rng(seed).permutation(REPLICAS)] for seed in range(count)]


def test_awkward_widths_have_fixed_places_where_positions_show() -> None:
    """Rule 20: the probe agrees with a plain experiment on this processor: does a row's answer
    depend on its position, with everything padded to 32?"""
    found = planned(AWKWARD)
    actor = Actor(found.policy, 32, REPLICAS)
    storage, version = noisy_storage(found), trained(found)
    said = {answers(actor, storage, version, order) for order in shuffled(8)}
    assert len(said) == 1 or found.strategy() == FIXED


class Telling(Policy):
    """A policy at fault on every processor: what it says tells a row's place in the batch."""

    def answer(self, observation: Observation, state: Array | None = None) -> Answer:
        said = super().answer(observation, state)
        return said._replace(head=_placed(said.head), value=_placed(said.value))

    def head(self, observation: Observation, state: Array | None = None) -> Tensor:
        return _placed(super().head(observation, state))

    def value(self, observation: Observation, state: Array | None = None) -> Tensor:
        return _placed(super().value(observation, state))


def _placed(said: Tensor) -> Tensor:
    return said * (1.0 + torch.arange(len(said)).reshape(-1, *[1] * (said.ndim - 1)))


class Misplanned(Plan):
    """The plan of a run whose actors have it."""

    def policy(self, *, packs: bool = False) -> Policy:
        return Telling(self.experiment, self.spaces, self.device)


def test_where_positions_show_only_fixed_places_are_safe() -> None:
    """Rule 20: no padding gives rows in other orders the same bytes, and the probe says so; at
    fixed places they are the same, in every order and cut."""
    found = Misplanned(WIDE, planned(WIDE).spaces, "cpu")
    storage, version = noisy_storage(found), trained(found)
    for padding in (1, 2, 4, 8, 16, 32):
        actor = Actor(found.policy, padding, REPLICAS)
        assert len({answers(actor, storage, version, order) for order in shuffled(4)}) == 4
    assert found.strategy() == FIXED
    fixed = Actor(found.policy, found.strategy().padding, REPLICAS)
    batches = [*shuffled(4), *map(arrivals, range(12))]
    assert len({answers(fixed, storage, version, order) for order in batches}) == 1


def test_fixed_places_keep_every_replica_where_it_is() -> None:
    """Padding 0 with a network that would not need it gives the same actions as with padding."""
    found = planned(WIDE)
    storage, version = noisy_storage(found), trained(found)
    fixed = Actor(found.policy, 0, REPLICAS)
    expected = answers(fixed, storage, version, [np.arange(REPLICAS)])
    for seed in range(4):
        assert answers(fixed, storage, version, arrivals(seed)) == expected
    actions = storage.action.copy()
    answers(Actor(found.policy, 16, REPLICAS), storage, version, [np.arange(REPLICAS)])
    assert np.array_equal(storage.action, actions)


def test_the_probe_does_not_look_at_a_network_of_zeros() -> None:
    """A network that answers 0 to everything would pass any probe: parameters are moved first."""
    found = planned(AWKWARD)
    policy = found.policy()
    assert not bool(policy.vector.any())
    seen = stacked(found.spaces, AWKWARD.frame_stack)
    assert probe(policy, seen).padding == found.strategy().padding


@pytest.mark.parametrize("name", ["an mlp", "continuous actions", "a network for each agent"])
@pytest.mark.parametrize("rollout", [1, 9, 300])
def test_values_of_a_whole_rollout_are_those_of_each_step(name: str, rollout: int) -> None:
    """Where actions are answered without values: those in front of every step, and behind the last
    one where the episode goes on; where it ends, what stands there stays."""
    found = planned(dataclasses.replace(WORLDS[name], rollout=rollout))
    storage, version, last = noisy_storage(found), trained(found), rollout - 1
    strategy, whole = found.strategy(), found.policy()
    if not strategy.padding:
        pytest.skip("fixed places: values are answered with actions on this processor")
    actor = Actor(partial(found.policy, packs=strategy.packs), strategy.padding, REPLICAS)
    whole.load(version.parameters)
    storage.terminated[3, last] = storage.truncated[41, last] = True
    storage.bootstrap[[3, 41], last] = 7.0
    everyone = np.arange(REPLICAS)
    actor.act(storage, Rows(everyone, np.zeros(REPLICAS, np.int64)), version)
    assert not storage.value.any()
    for block in (range(2), range(2, REPLICAS)):
        actor.values(storage, block, version)
    for step in range(rollout + 1):
        seen = storage.gather(Rows(everyone, np.full(REPLICAS, step)))
        value = whole.answer(seen).value.detach().numpy().reshape(REPLICAS, -1)
        if step < rollout:
            np.testing.assert_array_equal(storage.value[:, step], value)
    value[[3, 41]] = 7.0
    np.testing.assert_array_equal(storage.bootstrap[:, last], value)
    assert not storage.bootstrap[:, :last].any()


class Counting(Policy):
    """A recurrent policy at fault: what it remembers tells a row's place in the batch."""

    def answer(self, observation: Observation, state: Array | None = None) -> Answer:
        said = super().answer(observation, state)
        assert said.state is not None
        places = torch.arange(len(said.state))[:, None]
        return said._replace(state=said.state + places)


class Mingling(Policy):
    """Another: what it is told to remember is that of the whole batch."""

    def answer(self, observation: Observation, state: Array | None = None) -> Answer:
        assert state is not None
        return super().answer(observation, state * 0 + state.mean(0))


@pytest.mark.parametrize("fault", [Counting, Mingling])
def test_the_probe_looks_at_the_recurrent_state(fault: type[Policy]) -> None:
    """It finds rows that are not alone in what is remembered, before a step and after it."""
    found = planned(dataclasses.replace(WIDE, recurrent="gru", recurrent_units=32))
    policy = fault(found.experiment, found.spaces)
    initial_parameters(policy, 0)
    seen = stacked(found.spaces, 1)
    assert probe(policy, seen).padding == 0
    assert probe(found.policy(), seen).padding == found.strategy().padding


@pytest.mark.parametrize("model", [Conv(hidden=33), Impala(channels=(4, 8), hidden=33)])
def test_weights_laid_out_once_are_those_of_their_version(model: Conv | Impala) -> None:
    """The same bytes as without that, one version after the other, in batches of every size."""
    found = planned(dataclasses.replace(WORLDS["images"], model=model))
    strategy = found.strategy()
    assert strategy.packs
    storage, first = noisy_storage(found), trained(found)
    packed = Actor(partial(found.policy, packs=True), strategy.padding, REPLICAS)
    plain = Actor(found.policy, strategy.learning, REPLICAS)
    for number in (0, 1, 2, 3):  # two at a time are there
        storage.version = number
        version = Version(number, first.parameters * (1.0 + number))
        for batches in ([np.arange(REPLICAS)], arrivals(number)):
            expected = answers(plain, storage, version, batches)
            assert answers(packed, storage, version, batches) == expected


def test_the_strategy_says_why() -> None:
    """One sentence for the terminal and the manifest, with the padding in it."""
    strategy = planned(WIDE).strategy()
    if strategy.padding:
        assert "(exact reproducibility)" in strategy.why
        assert f"padded to {strategy.padding} rows" in strategy.why or strategy.padding == 1


def test_an_actor_answers_with_the_version_it_is_asked_for() -> None:
    """One version after the other and back: the parameters are loaded anew each time."""
    found = planned(WIDE)
    actor = Actor(found.policy, 4, REPLICAS)
    storage, version = noisy_storage(found), trained(found)
    everyone = [np.arange(REPLICAS)]
    first = answers(actor, storage, version, everyone)
    storage.version = 1
    assert answers(actor, storage, Version(1, version.parameters * 2), everyone) != first
    storage.version = 0
    assert answers(actor, storage, version, everyone) == first
    with pytest.raises(AssertionError, match="I3"):
        answers(actor, storage, dataclasses.replace(version, number=1), everyone)


def test_parameters_are_copied_into_a_policy() -> None:
    """Rule 33: what is learnt in a policy never reaches the version it was loaded from."""
    found = planned(WIDE)
    policy: Policy = found.policy()
    version = trained(found)
    before = version.parameters.clone()
    policy.load(version.parameters)
    policy.vector.add_(1.0)
    assert torch.equal(version.parameters, before)
    for parameter in policy.network.parameters():
        assert parameter.numel() == 0 or parameter.data_ptr() >= policy.vector.data_ptr()


def test_a_policy_that_only_answers_reads_a_version_where_it_lies() -> None:
    """Nothing is copied, unless the version begins where kernels might compute other bits."""
    found = planned(WIDE)
    policy: Policy = found.policy(packs=True)
    version = trained(found).parameters
    policy.load(version)
    assert policy.vector.data_ptr() == version.data_ptr()
    for part in policy.network.parameters():
        assert part.numel() == 0 or part.data_ptr() >= version.data_ptr()
    elsewhere = torch.empty(len(version) + 1)[1:].copy_(version)
    policy.load(elsewhere)
    assert policy.vector.data_ptr() % 64 == 0
    assert torch.equal(policy.vector, version)


def test_the_probe_looks_at_weights_as_actors_lay_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where layers that lay them out say something else, actors do not lay them out."""
    found = planned(WORLDS["images"])
    assert found.strategy().packs
    laid_out = layers._laid_out
    monkeypatch.setattr(layers, "_laid_out", lambda w, *given: laid_out(w * 1.001, *given))
    strategy = found.strategy()
    assert (strategy.packs, strategy.padding) == (False, strategy.learning)
