"""Running statistics: one update for each rollout, in float64, of single frames."""

from __future__ import annotations

import numpy as np
import pytest

from hts.learn.normalise import Moments, ObservationScale, RewardScale
from hts_envs.contract import Array
from tests.fakes.runs import experiment, serial


def rollouts(count: int = 3, *shape: int) -> list[Array]:
    """(replica, step, agent, ...) arrays, each with a mean and a spread of its own."""
    random = np.random.default_rng(0)
    whole = (4, 6, 2, *shape)
    return [random.normal(5 * i, 1 + i, whole).astype(np.float32) for i in range(count)]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_moments_are_those_of_everything_at_once(shape: tuple[int, ...]) -> None:
    """Three updates give the mean and variance of all rows, to float64's precision."""
    data = rollouts(3, *shape)
    scale = ObservationScale.of({"seen": shape})
    for rollout in data:
        scale = scale.with_rollout({"seen": rollout})
    rows = np.concatenate([rollout.reshape(-1, *shape) for rollout in data]).astype(np.float64)
    found = scale.moments["seen"]
    assert found.count == len(rows) == 144
    assert found.mean.dtype == found.squares.dtype == np.float64
    np.testing.assert_allclose(found.mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.squares / len(rows), rows.var(0), rtol=1e-12)


def test_moments_of_large_numbers_keep_their_spread() -> None:
    """Not a difference of two sums: around a million, a spread of 1 is still a spread of 1."""
    rows = np.array([[1e6 - 1], [1e6 + 1]], np.float64)
    found = Moments(0.0, np.zeros(1), np.zeros(1))
    for _ in range(1000):
        found = found.with_rows(rows)
    assert found.deviation[0] == pytest.approx(1.0, rel=1e-6)


def test_statistics_begin_as_zeros() -> None:
    """Of observations and of returns; a number that never changed has the deviation 1e-4."""
    beginnings = (
        ObservationScale.of({"seen": (3,)}).moments["seen"],
        RewardScale(np.zeros(1)).moments,
    )
    for moments in beginnings:
        assert moments.count == 0
        assert not moments.mean.any()
        assert not moments.squares.any()
    still = Moments(0.0, np.zeros(1), np.zeros(1)).with_rows(np.full((5, 1), 3.0))
    assert still.mean[0] == 3.0
    assert still.deviation[0] == pytest.approx(1e-4, rel=1e-12)


def test_a_return_goes_on_into_the_next_rollout() -> None:
    """Rewards 1, 2 and, after an end, 4 with gamma 1/2: returns 1, 2.5 and 4; their mean is 2.5."""
    reward, ended = np.array([[[1.0], [2.0], [4.0]]]), np.array([[False, True, False]])
    scale = RewardScale(np.zeros((1, 1))).with_rollout(reward, ended, 0.5)
    assert scale.running.tolist() == [[4.0]]
    assert (scale.moments.count, float(scale.moments.mean)) == (3.0, 2.5)
    after = scale.with_rollout(reward, ended, 0.5)
    assert (after.moments.count, float(after.moments.mean)) == (6.0, (7.5 + 3 + 3.5 + 4) / 6)


def test_before_any_data_nothing_is_scaled() -> None:
    """The first versions see the world as it is."""
    seen = rollouts(1, 3)[0]
    scale = ObservationScale.of({"seen": (3,)})
    assert scale.apply({"seen": seen})["seen"] is seen


def test_scaled_rows_have_mean_0_and_deviation_1() -> None:
    """And float32, and fields that are not named stay as they are."""
    seen, other = rollouts(1, 3)[0] * 100 + 7, np.arange(3)
    scale = ObservationScale.of({"seen": (3,)}).with_rollout({"seen": seen, "other": other})
    scaled = scale.apply({"seen": seen, "other": other})
    assert scaled["seen"].dtype == np.float32
    np.testing.assert_allclose(scaled["seen"].reshape(-1, 3).mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled["seen"].reshape(-1, 3).std(0), 1, rtol=1e-5)
    assert scaled["other"] is other


def test_scaled_numbers_stay_within_ten_deviations() -> None:
    """An outlier does not blow up the network."""
    seen = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6, 1, 1)
    scale = ObservationScale.of({"seen": (1,)}).with_rollout({"seen": seen})
    far = np.array([[[1e6]], [[-1e6]]], np.float32)
    assert scale.apply({"seen": far})["seen"].ravel().tolist() == [10.0, -10.0]


def test_a_scale_never_changes() -> None:
    """I4: an update makes another scale; the one that was published stays as it was."""
    first, second, _ = rollouts(3, 3)
    scale = ObservationScale.of({"seen": (3,)}).with_rollout({"seen": first})
    before = scale.apply({"seen": second})["seen"].tobytes()
    scale.with_rollout({"seen": second})
    assert scale.apply({"seen": second})["seen"].tobytes() == before


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_every_frame_of_a_stack_is_scaled_alike(shape: tuple[int, ...]) -> None:
    """Stacking what was scaled, and scaling what was stacked, are the same bits."""
    first, second, third = rollouts(3, *shape)
    scale = ObservationScale.of({"seen": shape}).with_rollout({"seen": first})
    join = np.concatenate if shape else np.stack
    stacked = scale.apply({"seen": join([first, second, third], axis=-1)})["seen"]
    each = [scale.apply({"seen": frame})["seen"] for frame in (first, second, third)]
    assert stacked.tobytes() == join(each, axis=-1).tobytes()


def test_a_run_counts_single_frames_once() -> None:
    """Rule 14: version v + 2 knows each frame of rollouts 0 to v once, however many are stacked."""
    run = serial(experiment(frame_stack=3, normalise_observations=True))
    seen = []
    for update, _ in enumerate(run):
        storage = run.storages[update % 2]
        seen.append(storage.arrays["frames.observation"][:, 2:-1].reshape(-1, 4).copy())
        rows = np.concatenate(seen).astype(np.float64)
        found = run.versions[-1].scale.moments["observation"]
        assert found.count == len(rows) == 64 * (update + 1)
        np.testing.assert_allclose(found.mean, rows.mean(0), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found.squares / len(rows), rows.var(0), rtol=1e-10)
        older = run.versions[0].scale.moments["observation"]
        assert older.count == 64 * update, "the version before it is one rollout behind"
    run.close()


def test_sums_are_taken_in_the_order_of_the_replicas() -> None:
    """Rules 14 and 23: bit for bit one addition after the other, replica by replica, in float64;
    in another order, or in float32, the bits are others."""
    far = np.array([1.0, 1e-9, 1e9, 1e-4], np.float32)  # so far apart that every sum is rounded
    seen = rollouts(1, 3)[0] * far[:, None, None, None]

    def summed(rows: Array) -> bytes:
        total = np.zeros(3, rows.dtype)
        for row in rows:
            total = total + row
        return (total / len(rows)).astype(np.float64).tobytes()

    scale = ObservationScale.of({"seen": (3,)}).with_rollout({"seen": seen})
    found = scale.moments["seen"].mean.tobytes()
    rows = seen.reshape(-1, 3)
    assert found == summed(rows.astype(np.float64))
    assert found != summed(seen[::-1].reshape(-1, 3).astype(np.float64))
    assert found != summed(rows)


def slow_returns(reward: Array, ended: Array, gamma: float) -> list[float]:
    """Every discounted return so far, replica by replica, from the start of its episode."""
    found = []
    replicas, steps, agents = reward.shape
    for t in range(steps):
        for r in range(replicas):
            for a in range(agents):
                start = max([s + 1 for s in range(t) if ended[r, s]], default=0)
                weights = [gamma ** (t - s) for s in range(start, t + 1)]
                found.append(float(np.dot(weights, reward[r, start : t + 1, a])))
    return found


def test_rewards_are_divided_by_the_deviation_of_the_return() -> None:
    """Across two rollouts and several ends, against the definition."""
    random = np.random.default_rng(1)
    reward = random.normal(0, 3, (3, 14, 2)).astype(np.float32)
    ended = random.random((3, 14)) < 0.2
    scale = RewardScale(np.zeros((3, 2)))
    scale = scale.with_rollout(reward[:, :7], ended[:, :7], 0.9)
    scale = scale.with_rollout(reward[:, 7:], ended[:, 7:], 0.9)
    deviation = np.std(slow_returns(reward, ended, 0.9))
    np.testing.assert_allclose(scale.apply(reward), reward / deviation, rtol=1e-5)
    assert scale.apply(reward).dtype == np.float32


def test_scaled_rewards_stay_within_ten() -> None:
    """Clipped, and not shifted: the sign of a reward stays."""
    scale = RewardScale(np.zeros((1, 1)))
    scale = scale.with_rollout(np.ones((1, 8, 1), np.float32), np.ones((1, 8), np.bool_), 0.9)
    far = np.array([1e9, -1e9, 0.0], np.float32)
    assert scale.apply(far).tolist() == [10.0, -10.0, 0.0]


def test_episodes_report_raw_returns() -> None:
    """Rule 11: clipped and scaled rewards are learnt from, and nobody reports them."""
    plain = serial(experiment())
    scaled = serial(experiment(normalise_rewards=True, clip_rewards=0.1))
    told = [next(iter(run)).episodes for run in (plain, scaled)]
    assert told[0] == told[1]
    assert told[0]
    assert all(e.facts["return"] == e.facts["length"] for e in told[0])
    plain.close()
    scaled.close()
