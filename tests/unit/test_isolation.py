"""Replicas with global random generators of their own."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from hts_envs.contract import Place, World
from hts_envs.errors import BadOption, BrokenSimulator
from hts_envs.registry import make, parse

FAKES = "python:tests.fakes.shared_state:"


def isolated(name: str, seed: int) -> World:
    world = make(f"{FAKES}{name}?isolate=generators", Place(seed=seed))
    assert isinstance(world, World)
    return world


def episode(world: World, seed: int, disturb: World | None = None) -> list[bytes]:
    """What an episode shows, while another world goes on between its calls."""
    seen = [world.reset(seed)["observation"]]
    for number in range(12):
        if disturb is not None:
            disturb.reset(number) if number % 4 == 0 else disturb.step(np.array([1]))
        seen.append(world.step(np.array([number % 4])).observation["observation"])
    return [each.tobytes() for each in seen]


@pytest.mark.parametrize(
    "name", ["SeedsGlobals", "DrawsGlobally", "DrawsFromTorch", "ChangesGenerator"]
)
def test_an_isolated_replica_is_the_same_beside_others(name: str) -> None:
    """Python's, NumPy's and torch's generators: an episode depends on its seed alone."""
    alone = episode(isolated(name, 1), 7)
    world, other = isolated(name, 1), isolated(name, 2)
    assert episode(world, 7, other) == alone
    assert episode(world, 8, other) != alone
    random.seed(99)
    np.random.seed(99)
    torch.manual_seed(99)
    assert episode(world, 7) == alone


@pytest.mark.parametrize("name", ["SeedsGlobals", "DrawsFromTorch"])
def test_without_isolation_replicas_disturb_each_other(name: str) -> None:
    """The fakes of this file do share generators, or nothing would be shown by them."""
    world, other = make(f"{FAKES}{name}"), make(f"{FAKES}{name}")
    assert isinstance(world, World)
    assert isinstance(other, World)
    alone = episode(world, 7)
    assert episode(world, 7, other) != alone


def test_construction_is_seeded_too() -> None:
    """What a simulator draws while it is built depends on the seed that its replica is given."""
    assert episode(isolated("DrawsGlobally", 1), 7) != episode(isolated("DrawsGlobally", 2), 7)


def test_numpy_s_own_generator_is_put_back() -> None:
    """Code outside the simulator neither sees nor advances a replica's NumPy generator."""
    outside = np.random.get_bit_generator()
    world = isolated("ChangesGenerator", 1)
    world.reset(1)
    assert np.random.get_bit_generator() is outside


def test_snapshots_are_not_offered() -> None:
    """A snapshot of the simulator would lack its generators."""
    assert make(f"{FAKES}SeedsGlobals").traits.snapshots
    assert not isolated("SeedsGlobals", 1).traits.snapshots


def test_identity_is_that_of_runs_before_the_option() -> None:
    """The default is not spelled out; what was asked for is part of the experiment."""
    plain = "gym:CartPole-v1?max_episode_steps=500&sutton_barto_reward=false"
    assert parse("gym:CartPole-v1").canonical() == plain
    assert parse("gym:CartPole-v1?isolate=none").canonical() == plain
    wanted = "gym:CartPole-v1?isolate=generators&max_episode_steps=500&sutton_barto_reward=false"
    assert parse("gym:CartPole-v1?isolate=generators").canonical() == wanted


def test_only_single_environments_are_isolated() -> None:
    """Replicas behind one call share their generators whatever is done; a name can be taken."""
    with pytest.raises(BadOption, match="has no option 'isolate'"):
        parse("python:tests.fakes.factories:cartpoles?isolate=generators")
    with pytest.raises(BrokenSimulator, match="isolate is 4"):
        make(f"{FAKES}isolated_by_itself?isolate=4")
