"""What a replay takes over from a rollout, and what a rollout takes over from the one before."""

from __future__ import annotations

import numpy as np
import pytest

from hts.machine import Sizes
from hts.memory.storage import Rows, Storage, as_declared
from hts.roles.replayed import columns
from hts_envs.contract import Box, Spaces
from hts_envs.errors import BrokenSimulator

REPLICAS, STEPS = 3, 4
SPACES = Spaces({"seen": Box((2,)), "clock": Box(())}, Box((2,), low=-1.0, high=1.0))


def filled(sizes: Sizes, seed: int = 0) -> Storage:
    """A rollout of noise in which a third of all steps end an episode in some way."""
    storage, draw = Storage(sizes, SPACES), np.random.default_rng(seed)
    for array in storage.arrays.values():
        if array.dtype == bool:
            array[:] = draw.random(array.shape) < 0.3
        elif array.dtype == np.float32:
            array[:] = draw.normal(size=array.shape)
        else:
            array[:] = draw.integers(0, 3, array.shape)
    return storage


@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_replay_takes_over_every_step_with_what_is_behind_it(clip: float | None) -> None:
    """Time first: the next observation, or, where the episode was cut off and did not end, the
    final one; rewards within the clip, if there is one."""
    storage = filled(Sizes(REPLICAS, STEPS, 1, 0, finals=STEPS))
    found = columns(storage, ("seen",), clip)
    assert set(found) == {
        *("seen.seen", "behind.seen", "action", "reward", "terminated", "truncated")
    }
    frames, finals = (storage.arrays[f"{kind}.seen"] for kind in ("frames", "finals"))
    kinds = set()
    for t, n in np.ndindex(STEPS, REPLICAS):
        ends = bool(storage.terminated[n, t]), bool(storage.truncated[n, t])
        kinds.add(ends)
        behind = finals[n, t, 0] if ends == (False, True) else frames[n, t + 1, 0]
        reward = storage.reward[n, t, 0]
        np.testing.assert_array_equal(found["seen.seen"][t, n], frames[n, t, 0])
        np.testing.assert_array_equal(found["behind.seen"][t, n], behind)
        np.testing.assert_array_equal(found["action"][t, n], storage.action[n, t, 0])
        assert found["reward"][t, n] == (reward if clip is None else np.clip(reward, -0.5, 0.5))
        assert (found["terminated"][t, n], found["truncated"][t, n]) == ends
    assert len(kinds) == 4, "every way to end, and none"


def test_a_rollout_goes_on_where_the_one_before_ended() -> None:
    """Of the replicas that are named: the last frames, age, episode and recurrent state; nothing
    has ended in it yet."""
    sizes = Sizes(REPLICAS, STEPS, 2, 1, state=5)
    older, newer, before = filled(sizes, 0), filled(sizes, 1), filled(sizes, 1)
    newer.take_over(older, slice(0, 2))
    for name in ("frames.seen", "frames.clock"):
        ours, theirs = newer.arrays[name], older.arrays[name]
        np.testing.assert_array_equal(ours[:2, :2], theirs[:2, STEPS : STEPS + 2])
        np.testing.assert_array_equal(ours[:2, 2:], before.arrays[name][:2, 2:])
    for name in ("age", "episode", "state"):
        np.testing.assert_array_equal(newer.arrays[name][:2, 0], older.arrays[name][:2, STEPS])
        np.testing.assert_array_equal(newer.arrays[name][:2, 1:], before.arrays[name][:2, 1:])
    for name in ("terminated", "truncated", "bootstrap"):
        assert not newer.arrays[name][:2].any()
    for name, array in newer.arrays.items():
        np.testing.assert_array_equal(array[2], before.arrays[name][2], err_msg=name)


def test_ends_are_taken_back_from_a_step_on() -> None:
    """What ended before that step stays."""
    sizes = Sizes(REPLICAS, STEPS, 1, 0)
    storage, before = filled(sizes), filled(sizes)
    for each in (storage, before):
        each.terminated[:] = each.truncated[:] = True
    storage.no_ends(slice(0, 3), 2)
    for name in ("terminated", "truncated", "bootstrap"):
        np.testing.assert_array_equal(storage.arrays[name][:, :2], before.arrays[name][:, :2])
        assert not storage.arrays[name][:, 2:].any()


def test_rows_of_a_block_are_those_that_it_stands_for() -> None:
    """All steps of some replicas at once, or one step of them, with stacked frames: what each row
    by itself shows."""
    storage = filled(Sizes(REPLICAS, STEPS, 1, 2))
    storage.age[:] = np.arange(STEPS + 1) + 2
    grid = np.repeat([1, 2], 2), np.tile([1, 2], 2)
    for block, rows in (
        (Rows(range(1, 3), range(1, 3)), Rows(*grid)),
        (Rows(range(1, 3), 2), Rows(np.array([1, 2]), np.array([2, 2]))),
    ):
        assert (block.count, block.replicas.tolist()) == (rows.count, rows.replicas.tolist())
        assert block.steps.tolist() == rows.steps.tolist()
        for name, found in storage.gather(block).items():
            np.testing.assert_array_equal(found, storage.gather(rows)[name], err_msg=name)


def test_the_state_before_a_step_is_zero_where_an_episode_begins() -> None:
    """Behind a truncation it is the state after the step, though another episode began there."""
    storage = filled(Sizes(REPLICAS, STEPS, 1, 0, state=5))
    storage.age[:] = np.array([[0, 1, 2, 0, 1]])
    replicas, steps = np.array([0, 1, 2, 2]), np.array([0, 1, 2, 3])
    found = storage.state_before(Rows(replicas, steps))
    assert found is not None
    expected = storage.state[replicas, steps] * (storage.age[replicas, steps] > 0)[:, None, None]
    np.testing.assert_array_equal(found, expected)
    behind = storage.state_before(Rows(replicas, steps, final=True))
    np.testing.assert_array_equal(behind, storage.state[replicas, steps + 1])
    assert (
        Storage(Sizes(1, 2, 1, 0), SPACES).state_before(Rows(np.array([0]), np.array([1]))) is None
    )


def test_a_fresh_rollout_holds_nothing_and_belongs_to_no_version() -> None:
    """Zeros; and what a simulator shows in another shape is refused."""
    storage = Storage(Sizes(REPLICAS, STEPS, 1, 0), SPACES)
    assert storage.version == -1
    assert not any(array.any() for array in storage.arrays.values())
    shown = np.zeros((2, 1))
    assert as_declared("seen", shown, (2, 1)) is shown
    with pytest.raises(BrokenSimulator, match=r"seen has the shape \(2, 1\); declared is \(2,\)"):
        as_declared("seen", shown, (2,))
