"""Recurrent models: a sequence has the bits of its steps, and the values of torch's own cells."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hts.config import Conv, Experiment, Mlp
from hts.models.network import Answer
from hts.models.policy import Policy, initial_parameters
from hts.models.recurrent import Cell, make_cell
from hts_envs.contract import Array, Box, Discrete, Observation, Spaces
from tests.fakes.runs import experiment

KINDS = ("lstm", "gru")
VECTORS = Spaces({"a": Box((7,)), "b": Discrete(3)}, Discrete(5), 2)
IMAGES = Spaces({"image": Box((36, 36, 2), "uint8"), "a": Box((3,))}, Discrete(5))
NETS: dict[str, tuple[Spaces, dict[str, Any]]] = {
    "an mlp": (VECTORS, {"model": Mlp()}),
    "one stack for both heads": (VECTORS, {"model": Mlp(shared=True, hidden=(32,))}),
    "no layer": (VECTORS, {"model": Mlp(hidden=())}),
    "a network for each agent": (VECTORS, {"model": Mlp(), "policies": "separate"}),
    "images": (IMAGES, {"model": Conv(hidden=64)}),
    "continuous": (dataclasses.replace(VECTORS, action=Box((3,))), {"model": Mlp()}),
}


def made(spaces: Spaces, kind: str, units: int = 64, **changes: Any) -> Policy:
    """A recurrent policy as it is after some learning: no zeros, no small heads."""
    asked: Experiment = experiment(recurrent=kind, recurrent_units=units, **changes)
    policy = Policy(asked, spaces)
    first = initial_parameters(policy, 0)
    moved = torch.randn(len(first), generator=torch.Generator().manual_seed(0)) * 0.1
    policy.load(first + moved)
    return policy


def shown(spaces: Spaces, *leading: int) -> Observation:
    """Observations with these leading axes."""
    random, found = np.random.default_rng(0), {}
    for name, space in spaces.observation.items():
        drawn = random.normal(size=(*leading, *space.shape))
        if isinstance(space, Discrete):
            found[name] = random.integers(0, space.n, leading)
        elif space.dtype == "uint8":
            found[name] = (np.abs(drawn) * 80).astype(np.uint8)
        else:
            found[name] = drawn.astype(np.float32)
    return found


def remembered(policy: Policy, sequences: int) -> Array:
    shape = (sequences, policy.agents, policy.state_size)
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def step_by_step(policy: Policy, seen: Observation, state: Array, begins: Array) -> list[Answer]:
    """The same sequences as they are acted out: one batch of rows after the other."""
    said = []
    for step, begun in enumerate(begins.T):
        state = np.where(begun[:, None, None], np.float32(0.0), state)
        with torch.inference_mode():
            answer = policy.answer({name: array[:, step] for name, array in seen.items()}, state)
        assert answer.state is not None
        state = answer.state.numpy().reshape(state.shape)
        said.append(answer)
    return said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize(("sequences", "steps"), [(32, 12), (64, 5), (32, 1)])
def test_a_sequence_has_the_bits_of_its_steps(
    net: str, kind: str, sequences: int, steps: int
) -> None:
    """Rule 24: heads, values and states of whole sequences, episodes beginning first, in the
    middle and last in them, are those that were acted with, bit for bit. Any padding that the probe
    knows divides 32 sequences."""
    spaces, changes = NETS[net]
    policy = made(spaces, kind, **changes)
    seen, state = shown(spaces, sequences, steps, policy.agents), remembered(policy, sequences)
    begins = np.random.default_rng(2).random((sequences, steps)) < 0.2
    begins[0, 0] = begins[1, -1] = begins[2, steps // 2] = True
    begins[3] = False
    whole = policy.unroll(seen, state, begins)
    alone = step_by_step(policy, seen, state, begins)
    for name in ("head", "value", "state"):
        rows = getattr(whole, name).detach()
        by_step = rows.reshape(sequences, steps, policy.agents, *rows.shape[1:]).transpose(0, 1)
        expected = torch.stack([getattr(answer, name) for answer in alone])
        assert by_step.reshape(expected.shape).numpy().tobytes() == expected.numpy().tobytes()


NAMES = {
    "given.weight": "weight_ih_l0",
    "state_weight": "weight_hh_l0",
    "given.bias": "bias_ih_l0",
    "state_bias": "bias_hh_l0",
}


def reordered(rows: Tensor, units: int) -> Tensor:
    """Gates in torch's order: its LSTM has the candidate before the output gate."""
    gates = rows.detach().split(units)
    return torch.cat([gates[i] for i in ((0, 1, 3, 2) if len(gates) == 4 else (0, 1, 2))])


def theirs(cell: Cell, kind: str, inputs: int) -> nn.LSTM | nn.GRU:
    """Torch's cell with the same parameters."""
    found = (nn.LSTM if kind == "lstm" else nn.GRU)(inputs, cell.units, batch_first=True)
    found.bias_hh_l0.data.zero_()
    for name, parameter in cell.named_parameters():
        found.get_parameter(NAMES[name]).data = reordered(parameter, cell.units)
    return found


def drawn_cell(kind: str, inputs: int, units: int) -> Cell:
    cell = make_cell(kind, inputs, units)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(3)
    for parameter in cell.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    return cell


@pytest.mark.parametrize("kind", KINDS)
def test_cells_are_torchs(kind: str) -> None:
    """Outputs, last states and the gradients of inputs and weights, to float32's precision."""
    cell, sequences, steps = drawn_cell(kind, 6, 10), 5, 7
    other = theirs(cell, kind, 6)
    x = torch.randn(sequences, steps, 6, generator=torch.Generator().manual_seed(4))
    mine, others = (x.clone().requires_grad_() for _ in range(2))
    state = torch.randn(sequences, cell.kept * 10, generator=torch.Generator().manual_seed(5))
    parts = tuple(part.contiguous()[None] for part in state.chunk(cell.kept, -1))
    expected, last = other(others, parts if kind == "lstm" else parts[0])
    begins = np.zeros((sequences, steps), bool)
    found, states = cell.unroll(mine.reshape(-1, 6), state, begins)
    torch.testing.assert_close(found.view(expected.shape), expected)
    last_state = torch.cat(last, -1)[0] if kind == "lstm" else last[0]
    torch.testing.assert_close(states.view(sequences, steps, -1)[:, -1], last_state)
    found.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(mine.grad, others.grad)
    for name, parameter in cell.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(
            reordered(parameter.grad, 10), other.get_parameter(NAMES[name]).grad
        )


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_go_back_through_the_sequence_and_stop_where_an_episode_begins(
    kind: str,
) -> None:
    """The last output depends on every input since its episode began, and on none before."""
    cell = drawn_cell(kind, 4, 8)
    x = torch.randn(3 * 6, 4, generator=torch.Generator().manual_seed(6)).requires_grad_()
    begins = np.zeros((3, 6), bool)
    begins[1, 2] = begins[2, 5] = True
    state = torch.ones(3, cell.kept * 8).requires_grad_()
    found, _ = cell.unroll(x, state, begins)
    found.view(3, 6, 8)[:, -1].sum().backward()
    assert x.grad is not None
    assert state.grad is not None
    reached = x.grad.view(3, 6, 4).abs().sum(-1) > 0
    assert reached.tolist() == [[True] * 6, [False] * 2 + [True] * 4, [False] * 5 + [True]]
    assert (state.grad.abs().sum(-1) > 0).tolist() == [True, False, False]


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_and_agents_are_alone(kind: str) -> None:
    """No gradient of one agent's output reaches another agent or another sequence."""
    cell = drawn_cell(kind, 4, 8)
    x = torch.randn(2 * 5 * 3, 4, generator=torch.Generator().manual_seed(6)).requires_grad_()
    state = torch.zeros(2 * 3, cell.kept * 8)
    found, _ = cell.unroll(x, state, np.zeros((2, 5), bool))
    found.view(2, 5, 3, 8)[1, -1, 2].sum().backward()
    assert x.grad is not None
    reached = x.grad.view(2, 5, 3, 4).abs().sum(-1) > 0
    expected = torch.zeros(2, 5, 3, dtype=torch.bool)
    expected[1, :, 2] = True
    assert torch.equal(reached, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_forgotten_changes_nothing(kind: str) -> None:
    """Rule 27: where an episode begins, any state before it gives the same bits, not finite
    numbers included; elsewhere it does not."""
    policy = made(VECTORS, kind)
    seen, state = shown(VECTORS, 4, 3, 2), remembered(policy, 4)
    begins = np.zeros((4, 3), bool)
    begins[:2, 0] = True
    first = policy.unroll(seen, state, begins)
    state[:2] = np.nan
    state[2:] *= 2
    second = policy.unroll(seen, state, begins)
    assert torch.equal(first.head[:12], second.head[:12])
    assert not torch.equal(first.head[12:], second.head[12:])


@pytest.mark.parametrize(("kind", "gates"), [("lstm", 4), ("gru", 3)])
def test_cells_begin_orthogonal(kind: str, gates: int) -> None:
    """Each gate's own weights are orthogonal with gain 1; biases are 0, where an LSTM forgets 1."""
    policy = Policy(experiment(recurrent=kind, recurrent_units=16), VECTORS)
    vector = initial_parameters(policy, 0)
    assert torch.equal(vector, initial_parameters(policy, 0))
    assert not torch.equal(vector, initial_parameters(policy, 1))
    cell = policy.network.cell
    assert cell is not None
    for weight in (cell.given.weight, cell.state_weight):
        assert len(weight) == gates * 16
        for gate in weight.detach().chunk(gates):
            torch.testing.assert_close(gate @ gate.T, torch.eye(16), atol=1e-5, rtol=0)
    forgets = torch.tensor([0.0, 1.0, 0.0, 0.0] if kind == "lstm" else [0.0, 0.0, 0.0])
    assert torch.equal(cell.given.bias.detach(), forgets.repeat_interleave(16))


def test_the_size_of_the_state() -> None:
    """What is remembered of each row: an LSTM's output and cell, a GRU's output, else nothing."""
    sizes = {
        kind: Policy(experiment(recurrent=kind, recurrent_units=8), VECTORS).state_size
        for kind in ("none", *KINDS)
    }
    assert sizes == {"none": 0, "lstm": 16, "gru": 8}


def test_a_state_belongs_to_recurrent_policies() -> None:
    """Asked without the state that it needs, or with one that it has no use for: refused."""
    seen = shown(VECTORS, 4, 2)
    plain = Policy(experiment(), VECTORS)
    assert plain.answer(seen).state is None
    with pytest.raises(AssertionError, match="given to recurrent policies"):
        plain.answer(seen, np.zeros((4, 2, 8), np.float32))
    with pytest.raises(AssertionError, match="given to recurrent policies"):
        made(VECTORS, "gru").answer(seen)


@pytest.mark.parametrize("kind", KINDS)
def test_a_thread_of_its_own_has_the_same_network(kind: str) -> None:
    """A twin answers with the same bits, leaves its gradient to itself, and follows `load`."""
    policy = made(VECTORS, kind)
    twin = policy.twin()
    seen, state, begins = shown(VECTORS, 4, 3, 2), remembered(policy, 4), np.zeros((4, 3), bool)
    for scale in (1.0, 0.5):
        policy.load(policy.vector * scale)
        found, expected = (one.unroll(seen, state, begins) for one in (twin, policy))
        assert torch.equal(found.head, expected.head)
    found.head.sum().backward()
    assert bool(twin.gradient.any())
    assert not bool(policy.gradient.any())
