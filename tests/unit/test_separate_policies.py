"""A network for each agent: rows go to their own, and vectors stand one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hts.config import Conv
from hts.models.network import Answer
from hts.models.policy import Policy, initial_parameters
from hts_envs.contract import Array, Box, Discrete, Observation, Spaces
from tests.fakes.runs import experiment, outcome

TEAM = Spaces({"a": Box((7,)), "b": Discrete(3)}, Discrete(5), 3)
IMAGES = Spaces({"image": Box((36, 36, 2), "uint8")}, Box((2,)), 3)
KINDS = ("none", "lstm", "gru")


def made(spaces: Spaces = TEAM, policies: str = "separate", **changes: Any) -> Policy:
    """A policy as it is after some learning."""
    values = {"recurrent_units": 16, "policies": policies, **changes}
    policy = Policy(experiment(**values), spaces)
    moved = torch.randn(policy.size, generator=torch.Generator().manual_seed(0)) * 0.1
    policy.load(initial_parameters(policy, 0) + moved)
    return policy


def shown(spaces: Spaces, *leading: int) -> Observation:
    """Observations with these leading axes."""
    random, found = np.random.default_rng(0), {}
    for name, space in spaces.observation.items():
        if isinstance(space, Discrete):
            found[name] = random.integers(0, space.n, leading)
        else:
            drawn = np.abs(random.normal(size=(*leading, *space.shape)) * 50)
            found[name] = drawn.astype(space.dtype)
    return found


def asked(policy: Policy, seen: Observation, steps: int | None) -> Answer:
    """The answer to rows by themselves, or to sequences of so many steps."""
    count, agents = next(iter(seen.values())).shape[0], policy.agents
    state = np.random.default_rng(1).normal(size=(count, agents, policy.state_size))
    if steps is None:
        return policy.answer(seen, state.astype(np.float32) if policy.state_size else None)
    return policy.unroll(seen, state.astype(np.float32), begins(count, steps))


def begins(count: int, steps: int) -> Array:
    return np.random.default_rng(2).random((count, steps)) < 0.2


def columns(answer: Answer) -> list[Array]:
    parts = (answer.head, answer.value, answer.state)
    return [part.detach().numpy() for part in parts if part is not None]


CASES = [
    *((TEAM, {"recurrent": kind}, None) for kind in KINDS),
    *((TEAM, {"recurrent": kind}, 5) for kind in KINDS[1:]),
    (IMAGES, {"model": Conv(hidden=32)}, None),
]


@pytest.mark.parametrize(("spaces", "changes", "steps"), CASES)
def test_each_agent_is_answered_by_its_own_network(
    spaces: Spaces, changes: dict[str, Any], steps: int | None
) -> None:
    """The rows of agent a are what a shared policy with the a-th part of the vector says about
    them, bit for bit: in batches of a size that any padding divides."""
    policy = made(spaces, **changes)
    assert policy.parts == 3
    leading = (32, 3) if steps is None else (32, steps, 3)
    seen = shown(spaces, *leading)
    whole = columns(asked(policy, seen, steps))
    shared = made(spaces, "shared", **changes)
    assert shared.parts == 1
    for agent, part in enumerate(policy.vector.view(3, -1)):
        shared.load(part)
        alone = columns(asked(shared, seen, steps))
        for found, expected in zip(whole, alone, strict=True):
            assert of_agent(found, agent).tobytes() == of_agent(expected, agent).tobytes()


def of_agent(rows: Array, agent: int) -> Array:
    return rows.reshape(-1, 3, *rows.shape[1:])[:, agent]


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_stays_with_its_agent(kind: str) -> None:
    """What agent 1 says moves the second part of the vector alone, all three where all speak."""
    policy = made(recurrent=kind)
    answer = asked(policy, shown(TEAM, 8, 3), None)
    answer.head.view(8, 3, -1)[:, 1].square().sum().backward()
    reached = [bool(part.any()) for part in policy.gradient.view(3, -1)]
    assert reached == [False, True, False]
    asked(policy, shown(TEAM, 8, 3), None).value.sum().backward()
    assert all(bool(part.any()) for part in policy.gradient.view(3, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_networks_begin_different_and_the_first_as_a_shared_one(kind: str) -> None:
    """Each agent's initial parameters follow from its own key; agent 0's is the shared one's."""
    policy = made(recurrent=kind)
    parts = initial_parameters(policy, 3).view(3, -1)
    assert len({part.numpy().tobytes() for part in parts}) == 3
    assert torch.equal(parts[0], initial_parameters(made(TEAM, "shared", recurrent=kind), 3))
    again = initial_parameters(policy, 4).view(3, -1)
    assert not torch.equal(parts[1], again[1])


@pytest.mark.parametrize("changes", [{}, {"recurrent": "lstm"}, {"recurrent": "gru"}])
def test_one_agent_is_the_same_either_way(changes: dict[str, Any]) -> None:
    """With a single agent, separate is shared, bit for bit: parameters and answers."""
    alone = Spaces(TEAM.observation, TEAM.action, 1)
    shared, separate = (made(alone, policies, **changes) for policies in ("shared", "separate"))
    assert (shared.parts, separate.parts) == (1, 1)
    assert torch.equal(shared.vector, separate.vector)
    seen = shown(alone, 8, 1)
    for found, expected in zip(
        columns(asked(separate, seen, None)), columns(asked(shared, seen, None)), strict=True
    ):
        assert found.tobytes() == expected.tobytes()


def test_agents_with_networks_of_their_own_learn() -> None:
    """A whole run of three agents: the first ratio is exactly 1, and every part has moved."""
    team = "python:tests.fakes.small_worlds:Small?action=many&agents=3"
    updates = outcome(experiment(team, policies="separate"))
    assert [update.told["train/ratio_error_first"] for update in updates] == [0.0] * 3
    assert len({update.link.parameters for update in updates}) == 3
