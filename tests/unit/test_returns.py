"""Returns and advantages against the formula written slowly, and against literal numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hts.learn.returns import Trace, advantages, normalised
from hts_envs.contract import Array


def trace(
    reward: list[float],
    value: list[float],
    bootstrap: list[float],
    terminated: tuple[int, ...] = (),
    truncated: tuple[int, ...] = (),
) -> Trace:
    """One replica of one agent; the flags by the steps at which they are set."""

    def column(numbers: list[float]) -> Array:
        return np.array(numbers, np.float32).reshape(1, -1, 1)

    def flags(steps: tuple[int, ...]) -> Array:
        return np.isin(np.arange(len(reward)), steps)[None]

    columns = (column(reward), column(value), column(bootstrap))
    return Trace(*columns, flags(terminated), flags(truncated))


def random_trace(seed: int, replicas: int, steps: int, agents: int) -> Trace:
    """Flags of every combination, and a bootstrap wherever the rollout cannot say the value."""
    random = np.random.default_rng(seed)
    shape = (replicas, steps, agents)
    reward, value, behind = random.normal(size=(3, *shape)).astype(np.float32)
    terminated, truncated = random.random((2, replicas, steps)) < 0.25
    needed = truncated & ~terminated
    needed[:, -1] = ~terminated[:, -1]
    return Trace(reward, value, np.where(needed[:, :, None], behind, 0), terminated, truncated)


def slowly(given: Trace, gamma: float, gae_lambda: float) -> Array:
    """sum over l of (gamma lambda)^l delta_{t+l}, up to the end of the episode or the rollout."""
    found = np.zeros(given.reward.shape)
    replicas, steps, agents = found.shape
    for r, t, a in np.ndindex(replicas, steps, agents):
        for later in range(t, steps):
            over = given.terminated[r, later] or given.truncated[r, later]
            if given.terminated[r, later]:
                follows = 0.0
            elif given.truncated[r, later] or later == steps - 1:
                follows = float(given.bootstrap[r, later, a])
            else:
                follows = float(given.value[r, later + 1, a])
            delta = float(given.reward[r, later, a]) + gamma * follows
            delta -= float(given.value[r, later, a])
            found[r, t, a] += (gamma * gae_lambda) ** (later - t) * delta
            if over:
                break
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 2),
    st.sampled_from([(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.5)]),
)
def test_advantages_are_the_formula(
    seed: int, replicas: int, steps: int, agents: int, rates: tuple[float, float]
) -> None:
    """Equal to the sum written out; the order of the float64 additions alone differs."""
    given = random_trace(seed, replicas, steps, agents)
    np.testing.assert_allclose(
        advantages(given, *rates), slowly(given, *rates), rtol=1e-12, atol=1e-13
    )


def test_advantages_are_these_literal_numbers() -> None:
    """Worked out by hand, in numbers that are exact in binary."""
    given = trace([1, 2, 4], [0.5, 1, 2], [0, 0, 8])
    # delta = 1 + 1/2 - 0.5, 2 + 2/2 - 1, 4 + 8/2 - 2
    deltas = [1.0, 2.0, 6.0]
    assert advantages(given, 0.5, 0.0).ravel().tolist() == deltas
    assert advantages(given, 0.5, 0.5).ravel().tolist() == [1 + 3.5 / 4, 2 + 6 / 4, 6.0]


def test_terminated_bootstraps_nothing() -> None:
    """Rule 1: the target of a terminated step is its reward."""
    given = trace([3, 1], [0.25, 7], [0, 5], terminated=(0,))
    assert advantages(given, 0.5, 1.0)[0, 0, 0] + 0.25 == 3.0


def test_truncated_bootstraps_the_final_observation() -> None:
    """Rule 1: the target of a truncated step is r + gamma V(final), and the trace is cut."""
    given = trace([3, 1], [0.25, 7], [2, 5], truncated=(0,))
    assert advantages(given, 0.5, 1.0)[0, 0, 0] + 0.25 == 3.0 + 0.5 * 2


def test_both_flags_at_once_mean_terminated() -> None:
    """Rule 2: no bootstrap, even where a value stands in its place."""
    given = trace([3, 1], [0.25, 7], [2, 5], terminated=(0,), truncated=(0,))
    assert advantages(given, 0.5, 1.0)[0, 0, 0] + 0.25 == 3.0


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_an_ended_step_knows_nothing_of_the_next_episode(flag: str) -> None:
    """Rule 3: what follows in memory, its value and its rewards, changes no bit before the end."""
    bootstrap = [0.0, 2.0 if flag == "truncated" else 0.0, 0.0, 5.0]
    before = trace([1, 3, 1, 1], [0.5, 0.25, 7, 1], bootstrap, **{flag: (1,)})
    after = trace([1, 3, -9, 9], [0.5, 0.25, -80, 9], [*bootstrap[:3], -6.0], **{flag: (1,)})
    same = [advantages(one, 0.99, 0.95)[:, :2].tobytes() for one in (before, after)]
    assert same[0] == same[1]


def test_one_replica_one_step() -> None:
    """n = alpha = 1: r + gamma V' - V."""
    assert advantages(trace([1], [0.5], [4]), 0.25, 0.95).tolist() == [[[1.5]]]
    assert advantages(trace([1], [0.5], [4], terminated=(0,)), 0.25, 0.95).tolist() == [[[0.5]]]


def test_a_replica_is_the_same_bits_whatever_is_beside_it() -> None:
    """Alone, among others, in another place: the same bytes."""
    whole = random_trace(3, 7, 33, 2)
    found = advantages(whole, 0.99, 0.95)
    for chosen in ([0], [6], [5, 2], [6, 5, 4, 3, 2, 1, 0]):
        columns = (whole.reward, whole.value, whole.bootstrap, whole.terminated, whole.truncated)
        part = Trace(*(column[chosen] for column in columns))
        assert advantages(part, 0.99, 0.95).tobytes() == found[chosen].tobytes()


def test_nothing_is_written_into_a_trace() -> None:
    """The arrays are a storage's own."""
    given = random_trace(4, 2, 5, 1)
    for array in (given.reward, given.value, given.bootstrap, given.terminated, given.truncated):
        array.flags.writeable = False
    assert advantages(given, 0.99, 0.95).dtype == np.float64


def test_wrong_shapes_are_refused() -> None:
    """A missing agent axis, or flags of another shape, are found on entry."""
    good = random_trace(5, 2, 3, 1)
    with pytest.raises(AssertionError, match="replica, step, agent"):
        Trace(good.reward[..., 0], good.value, good.bootstrap, good.terminated, good.truncated)
    with pytest.raises(AssertionError, match="one of each"):
        Trace(good.reward, good.value[:1], good.bootstrap, good.terminated, good.truncated)
    with pytest.raises(AssertionError, match="two flags"):
        Trace(good.reward, good.value, good.bootstrap, good.terminated, good.truncated[:, :2])


def test_normalised_advantages_by_literal_numbers() -> None:
    """Over all numbers of a minibatch, or over each agent's; the formula's own 1e-8 is below these
    digits."""
    given = np.array([[[1.0, 7.0], [3.0, 13.0]]]) * np.array([[[1.0]], [[-8.0]]])
    apart = [[[-1, -1], [1, 1]], [[1, 1], [-1, -1]]]
    np.testing.assert_allclose(normalised(given, each=True), apart, rtol=1e-7)
    expected = np.array([[-5.0, 1.0], [-3.0, 7.0]]) / math.sqrt((25 + 1 + 9 + 49) / 4)
    np.testing.assert_allclose(normalised(given, each=False), [expected, -expected], rtol=1e-7)


@pytest.mark.parametrize("shape", [(8, 7, 1), (4, 300, 1), (3, 129, 3), (2, 5000, 2)])
@pytest.mark.parametrize("each", [False, True])
def test_minibatches_are_normalised_as_each_would_be_by_itself(
    shape: tuple[int, int, int], each: bool
) -> None:
    """Bit for bit, whatever their number and size."""
    given = np.random.default_rng(0).normal(size=shape)
    alone = np.concatenate([normalised(part[None], each=each) for part in given])
    np.testing.assert_array_equal(normalised(given, each=each), alone)


def test_advantages_that_hardly_differ_are_not_blown_up() -> None:
    """1e-8 is added to their deviation: where that is 1e-8 too, they become a half of a unit."""
    given = np.array([[[1e-8], [-1e-8]]])
    np.testing.assert_allclose(normalised(given, each=False), [[[0.5], [-0.5]]], rtol=1e-6)


def test_one_advantage_is_not_normalised_to_nothing() -> None:
    """Rule 31: one row of one agent, or one row for each agent, stays as it is."""
    assert normalised(np.array([[[7.0]]]), each=False) == [[[7.0]]]
    two = np.array([[[7.0, 9.0]]])
    np.testing.assert_array_equal(normalised(two, each=True), two)
    np.testing.assert_allclose(normalised(two, each=False), [[[-1.0, 1.0]]])
