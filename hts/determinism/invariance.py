"""Does a row's answer depend on which rows are computed with it? Found out, not assumed.

On a CPU, matrix products of one, two or three rows take other paths than larger ones, and
elementwise functions treat the tail of an array differently from its body. So the network as it
is, with its sampling, is asked the same rows in batches of many sizes and at many positions; the
smallest padding under which every answer is bit-equal is what a learner uses, and so do actors, or
a smaller one that is safe with weights laid out beforehand. Where there is none, the whole batch
keeps one shape and every replica its place in it, which cannot depend on anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from hts.determinism.strategy import LARGEST_BATCH, Strategy
from hts.models.policy import Policy
from hts.models.spaces import is_image
from hts_envs.contract import Array, Box, Observation, Space
from hts_envs.randomness import fold_rows, uniform

_PADDINGS = (1, 2, 4, 8, 16, 32)
_LARGEST = 64
_MARKED = 1 / 1024
"""The share of bytes that images show to a network made for almost empty ones."""


@dataclass(frozen=True)
class _Examples:
    """What replicas show: observations (rows, agents, ...), recurrent states beside them."""

    seen: Observation
    state: Array | None


def probe(policy: Policy, spaces: dict[str, Space]) -> Strategy:
    """The smallest safe padding for this network on this device, with this thread count.

    The policy holds its initial parameters, and is used up. They are moved a little: zero biases
    and deviations would hide what is computed with them.
    """
    moved = uniform(fold_rows(13), policy.size)[0] * 0.1 - 0.05
    policy.load(policy.vector.cpu() + torch.from_numpy(moved.astype(np.float32)))
    rows = _examples(spaces, policy)
    expected = _answers(policy, rows, np.arange(_LARGEST))  # as a learner computes them, unpacked
    for padding in _PADDINGS:
        if all(_same(policy, rows, expected, order) for order in _orders(padding)):
            return _packed(policy, rows, expected, padding)
    return Strategy(0, "one batch of all replicas, each in its place (exact reproducibility)")


def _packed(policy: Policy, rows: _Examples, expected: Array, learning: int) -> Strategy:
    """How actors pad: with weights that are laid out less may be enough."""
    policy.packs = True
    policy.load(policy.vector)
    for padding in (each for each in _PADDINGS if each <= learning):
        sizes = _orders(padding)[:-2]  # but the largest: that takes longest
        if all(_same(policy, rows, expected, order) for order in sizes):
            return Strategy(padding, _padded_to(padding), True, learning)
    return Strategy(learning, _padded_to(learning), False, learning)


def _padded_to(rows: int) -> str:
    how = "batches of any size" if rows == 1 else f"batches padded to {rows} rows"
    return f"{how} (exact reproducibility)"


def _orders(padding: int) -> list[Array]:
    """Batches to try: sizes that are multiples of the padding, rows shifted and reversed.

    The larger ones hold the same rows several times, at other places.
    """
    sizes = list(range(padding, 17, padding))
    sizes += [size for size in (24, 48, 64, 200, LARGEST_BATCH) if size % padding == 0]
    places = np.arange(LARGEST_BATCH) % _LARGEST
    return [
        order[:size] for size in sizes for order in (places[::-1], np.roll(places, 3 * padding + 2))
    ]


def _same(policy: Policy, rows: _Examples, expected: Array, order: Array) -> bool:
    return _answers(policy, rows, order).tobytes() == expected[order].tobytes()


def _answers(policy: Policy, rows: _Examples, order: Array) -> Array:
    """Head, value, state, action and log-probability of rows in this order: (replicas, bytes).

    Head and value twice, where actors ask for them apart.
    """
    actions, agents = policy.distribution, policy.agents
    keys = fold_rows(11, order)
    noise = uniform(keys, agents * actions.noise).reshape(-1, actions.noise)
    with torch.inference_mode():
        seen = {name: array[order] for name, array in rows.seen.items()}
        answer = policy.answer(seen, None if rows.state is None else rows.state[order])
        drawn = actions.draw(answer.head, noise.astype(np.float32))
        apart = (policy.head(seen), policy.value(seen)) if policy.values_apart else ()
    said = (answer.head, answer.value, answer.state, *apart)
    parts = [part.cpu().numpy() for part in said if part is not None]
    columns = [np.ascontiguousarray(part) for part in (*parts, *drawn)]
    flat = [column.reshape(len(order), -1).view(np.uint8) for column in columns]
    return np.concatenate(flat, axis=1)


def _examples(spaces: dict[str, Space], policy: Policy) -> _Examples:
    """Observations of every size that a field allows, and states, from keys."""
    made = {}
    for index, (name, space) in enumerate(spaces.items()):
        shape = (_LARGEST, policy.agents, *space.shape)
        drawn = _drawn(index, shape)
        made[name] = _example(space, drawn)
        if policy.network.is_sparse and is_image(space):
            made[name] *= drawn * 256 % 1 < _MARKED
    if not policy.state_size:
        return _Examples(made, None)
    # A cell's output lies within (-1, 1), what an LSTM keeps beside it goes further.
    state = _drawn(len(spaces), (_LARGEST, policy.agents, policy.state_size)) * 4.0 - 2.0
    return _Examples(made, state.astype(np.float32))


def _drawn(name: int, shape: tuple[int, ...]) -> Array:
    """Numbers in [0, 1), each row from a key of its own."""
    keys = fold_rows(7, name, np.arange(shape[0]))
    return uniform(keys, int(np.prod(shape[1:]))).reshape(shape)


def _example(space: Space, drawn: Array) -> Array:
    if not isinstance(space, Box):
        limits = getattr(space, "nvec", getattr(space, "n", 1))
        return np.asarray(np.floor(drawn * np.asarray(limits)), np.int64)
    if space.dtype == "uint8":
        return np.asarray(np.floor(drawn * 256), np.uint8)
    return np.asarray((drawn - 0.5) * 6.0, space.dtype)
