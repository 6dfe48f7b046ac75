"""The replay: what came out went in, and no target crosses an end or what is written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hts.machine import Sizes, replay_arrays
from hts.replay.ring import Asked, Places, Ring, Span
from hts_envs.contract import Array, Box

REPLICAS, WINDOW, WINDOWS = 3, 2, 4
GAMMA = 0.5
NAMES = Asked(seen=("a",), behind=("a",))


def empty() -> Ring:
    """Room for four windows of two steps of three replicas."""
    sizes = Sizes(REPLICAS, WINDOW, 1, 0)
    declared = replay_arrays(sizes, WINDOWS, {"a": Box((2,))}, Box((1,)))
    return Ring({each.name: np.zeros(each.shape, each.dtype) for each in declared}, WINDOW)


def numbered(window: int, ends: Array | None = None) -> dict[str, Array]:
    """A window whose numbers say which step of which replica they are of: behind a step stands
    what is seen in the next one, or, where an episode ends, its number and a half."""
    step = np.arange(window * WINDOW, (window + 1) * WINDOW)[:, None]
    which = (step * 10 + np.arange(REPLICAS)).astype(np.float32)
    ended = np.zeros(which.shape, np.int64) if ends is None else ends
    behind = np.where(ended > 0, which + 0.5, which + 10)
    two = np.ones(2, np.float32)
    return {
        "seen.a": which[..., None] * two,
        "behind.a": behind[..., None].astype(np.float32) * two,
        "action": -which[..., None],
        "reward": which,
        "terminated": ended == 1,
        "truncated": ended == 2,
    }


def every(span: Span) -> Places:
    """All steps of all replicas."""
    steps, replicas = np.meshgrid(
        np.arange(span.first, span.end), np.arange(REPLICAS), indexing="ij"
    )
    return Places(steps.ravel(), replicas.ravel())


def test_what_comes_out_went_in() -> None:
    """Each place by its number, also behind windows that were written over."""
    ring = empty()
    for window in range(7):
        ring.write(window, numbered(window))
        span = ring.span(window + 1)
        assert span == Span(max(0, window - 3) * WINDOW, (window + 1) * WINDOW)
        places = every(span)
        found = ring.transitions(places, span.end, 1, GAMMA, NAMES)
        expected = places.steps * 10 + places.replicas
        assert (found.seen["a"] == expected[:, None]).all()
        assert (found.action[:, 0] == -expected).all()
        assert (found.returns.reward == expected).all()
        assert (found.behind["a"] == expected[:, None] + 10).all()
        assert (ring.seen(places, ("a",))["a"] == expected[:, None]).all()


def test_a_window_that_is_written_again_changes_nothing() -> None:
    """As a successor does, who finds half of it there."""
    ring = empty()
    for window in range(6):
        ring.write(window, numbered(window))
    before = {name: array.copy() for name, array in ring.arrays.items()}
    ring.write(5, numbered(5))
    assert all((before[name] == array).all() for name, array in ring.arrays.items())


def test_a_span_is_as_long_as_it_has_steps() -> None:
    """And never of a length below 0: before anything is written there is nothing to draw from."""
    assert [len(Span(*ends)) for ends in ((2, 5), (3, 3), (0, 0), (4, 2))] == [3, 0, 0, 0]
    with pytest.raises(AssertionError, match="something to draw from"):
        Places.drawn(np.array([0.5]), Span(3, 3), REPLICAS)


def test_it_says_which_fields_it_holds() -> None:
    """By the names that observations have for them."""
    assert empty().names == ("a",)


def test_what_is_spared_is_not_drawn() -> None:
    """While window 4 is written over window 0, somebody else draws from 1, 2 and 3."""
    ring = empty()
    for window in range(4):
        ring.write(window, numbered(window))
    span = ring.span(4, spared=1)
    assert span == Span(2, 8)
    assert ring.place(4) == ring.place(0) == slice(0, 2)


def test_all_places_are_drawn_and_no_others() -> None:
    """One number for each, evenly between 0 and 1, and the largest that is drawn."""
    uniforms = (np.arange(6 * REPLICAS) + 0.5) / (6 * REPLICAS)
    found = Places.drawn(uniforms, Span(4, 10), REPLICAS)
    assert sorted(zip(found.steps.tolist(), found.replicas.tolist(), strict=True)) == [
        (step, replica) for step in range(4, 10) for replica in range(REPLICAS)
    ]
    assert Places.drawn(np.array([1.0 - 2.0**-53]), Span(4, 10), REPLICAS).steps == 9


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 9))
def test_no_target_crosses_an_end_nor_the_write_pointer(seed: int, n: int, count: int) -> None:
    """The observation behind the last step of a return is of its own episode: the next number of
    that replica, or the final one where the episode ended there."""
    random, ring, ends = np.random.default_rng(seed), empty(), []
    for window in range(count):
        ends.append(random.choice(3, (WINDOW, REPLICAS), p=[0.6, 0.2, 0.2]))
        ring.write(window, numbered(window, ends[-1]))
    ended = np.concatenate(ends)
    span = ring.span(count)
    places = every(span)
    found = ring.transitions(places, span.end, n, GAMMA, NAMES)
    for row, (step, replica) in enumerate(zip(places.steps, places.replicas, strict=True)):
        total, last = 0.0, step
        for k, at in enumerate(range(step, min(step + n, span.end))):
            total += GAMMA**k * (at * 10 + replica)
            last = at
            if ended[at, replica]:
                break
        taken, end = last - step + 1, ended[last, replica]
        assert np.isclose(found.returns.reward[row], total, rtol=1e-6)
        assert found.returns.discount[row] == (0.0 if end == 1 else GAMMA**taken)
        assert found.behind["a"][row, 0] == last * 10 + replica + (0.5 if end else 10)
