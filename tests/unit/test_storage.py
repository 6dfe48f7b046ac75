"""Storages and the blocks that fill them: stacks, ends and what crosses a rollout's boundary.

Scripted worlds show frames that are all different and keep what they showed; what a storage gives
back is held to a plain walk through those lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hts.determinism.digest import replica_digest, rollout_digest
from hts.determinism.keys import Purpose, episode_seed, key
from hts.machine import Sizes
from hts.memory.storage import Rows, Storage
from hts.models.bounds import as_drawn
from hts.roles.actor import due
from hts.roles.blocks import Block
from hts.roles.local import BatchedBlock, WorldsBlock
from hts_envs.contract import Array, Box, Discrete, Observation, Spaces
from tests.fakes.small_worlds import Act, Scripted, ScriptedBatch

SEED = 21


@dataclass
class Stage:
    """Scripted replicas, their blocks and the two storages of a run."""

    worlds: list[Scripted]
    blocks: list[Block]
    storages: tuple[Storage, Storage]

    @property
    def steps(self) -> int:
        return self.storages[0].sizes.steps

    def play(self, rollouts: int) -> Iterator[tuple[Storage, int]]:
        """Rollout after rollout; yields after every step."""
        for rollout in range(rollouts):
            storage = self.storages[rollout % 2]
            for block in self.blocks:
                if rollout:
                    block.take_over(storage, self.storages[(rollout - 1) % 2])
                else:
                    block.begin(storage)
            for step in range(self.steps):
                for block in self.blocks:
                    block.step(storage, step)
                yield storage, step

    def finals(self, storage: Storage, step: int) -> set[int]:
        """The replicas whose truncation at this step asks for a value."""
        rows = due(storage, [(range(len(self.worlds)), step + 1)]).final
        return set() if rows is None else set(rows.replicas.tolist())


def stage(scripts: list[list[Act]], steps: int, stack: int, *, batched: bool = False) -> Stage:
    worlds = [Scripted(acts, 1000 * replica) for replica, acts in enumerate(scripts)]
    sizes = Sizes(len(worlds), steps, 1, stack - 1)
    storages = Storage(sizes, Scripted.spaces), Storage(sizes, Scripted.spaces)
    blocks: list[Block]
    if batched:
        blocks = [BatchedBlock(ScriptedBatch(worlds), range(len(worlds)), as_drawn, SEED)]
    else:
        blocks = [WorldsBlock(worlds[:1], range(1), as_drawn, SEED)]
        if len(worlds) > 1:  # the others share a block
            everyone = range(1, len(worlds))
            blocks.append(WorldsBlock(worlds[1:], everyone, as_drawn, SEED))
    return Stage(worlds, blocks, storages)


def decided_on(world: Scripted) -> list[tuple[int, int]]:
    """(episode, step) of every observation that an action followed, in order."""
    return [(e, t) for e, seen in enumerate(world.shown) for t in range(len(seen) - 1)]


def stack_of(shown: list[Observation], step: int, stack: int, name: str) -> Array:
    """The latest frames of the episode up to `step`, the first one repeated; slowly."""
    frames = [shown[max(0, step - back)][name] for back in range(stack - 1, -1, -1)]
    if stack == 1:
        return frames[0]
    if frames[0].ndim == 1:
        return np.array([[frame[0] for frame in frames]])
    return np.concatenate(frames, axis=-1)


def seen_by(storage: Storage, replica: int, step: int, *, final: bool = False) -> Observation:
    return storage.gather(Rows(np.array([replica]), np.array([step]), final=final))


ACTS = st.lists(
    st.builds(Act, st.integers(1, 7), st.sampled_from(["terminated", "truncated", "both"])),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTS, min_size=1, max_size=3), st.integers(1, 6), st.integers(1, 5), st.booleans())
def test_stacks_are_those_of_the_episode(
    scripts: list[list[Act]], steps: int, stack: int, batched: bool
) -> None:
    """Rule 9: at every step of three rollouts, whatever the lengths of episodes and rollouts."""
    played = stage(scripts, steps, stack, batched=batched)
    for count, (storage, step) in enumerate(played.play(3)):
        finals = played.finals(storage, step)
        for replica, world in enumerate(played.worlds):
            episode, at = decided_on(world)[count]
            shown = world.shown[episode]
            for name, array in seen_by(storage, replica, step).items():
                np.testing.assert_array_equal(array[0], stack_of(shown, at, stack, name))
            act = world.acts[episode % len(world.acts)]
            over = at + 1 == act.length
            assert (replica in finals) == (over and act.end == "truncated")
            if replica in finals:
                for name, array in seen_by(storage, replica, step, final=True).items():
                    np.testing.assert_array_equal(array[0], stack_of(shown, at + 1, stack, name))


@settings(max_examples=30, deadline=None)
@given(st.lists(ACTS, min_size=1, max_size=3), st.integers(1, 6), st.integers(1, 4))
def test_the_observation_behind_a_rollout(scripts: list[list[Act]], steps: int, stack: int) -> None:
    """What is bootstrapped from is, bit for bit, what the next rollout begins with."""
    played = stage(scripts, steps, stack)
    behind: list[Observation] = []
    for storage, step in played.play(3):
        if step == 0 and behind:
            for replica, expected in enumerate(behind):
                for name, array in seen_by(storage, replica, 0).items():
                    np.testing.assert_array_equal(array, expected[name])
        if step == steps - 1:
            behind = [seen_by(storage, replica, steps) for replica in range(len(scripts))]


@settings(max_examples=25, deadline=None)
@given(st.lists(ACTS, min_size=2, max_size=4), st.integers(1, 6), st.integers(1, 4))
def test_a_batched_block_writes_what_single_ones_write(
    scripts: list[list[Act]], steps: int, stack: int
) -> None:
    """Every array of the storage, every episode and every seed are the same."""
    single, batched = stage(scripts, steps, stack), stage(scripts, steps, stack, batched=True)
    for one, many in zip(single.play(3), batched.play(3), strict=True):
        for name, array in one[0].arrays.items():
            np.testing.assert_array_equal(array, many[0].arrays[name], err_msg=name)
        assert single.finals(*one) == batched.finals(*many)
    ended = [[e for block in played.blocks for e in block.episodes] for played in (single, batched)]
    order = [sorted(episodes, key=lambda e: (e.replica, e.facts["length"])) for episodes in ended]
    assert order[0] == order[1]
    assert [w.seeds for w in single.worlds] == [w.seeds for w in batched.worlds]


def test_at_a_reset_the_first_frame_is_repeated() -> None:
    """By hand: an episode of two steps, then one of nine, three frames in a stack."""
    played = stage([[Act(2), Act(9)]], 4, 3)
    list(played.play(1))
    storage = played.storages[0]
    found = [seen_by(storage, 0, step)["symbol"][0, 0].tolist() for step in range(5)]
    # Frame 3 is the final one of the first episode, which nobody decides on.
    assert found == [[1, 1, 1], [1, 1, 2], [4, 4, 4], [4, 4, 5], [4, 5, 6]]


def test_a_final_observation_keeps_its_own_stack() -> None:
    """By hand: a truncation after two steps shows frames 1, 2 and 3, not the reset's frame 4."""
    played = stage([[Act(2, "truncated"), Act(9)]], 2, 3)
    *_, (storage, step) = played.play(1)
    assert played.finals(storage, step) == {0}
    assert seen_by(storage, 0, step, final=True)["symbol"][0, 0].tolist() == [1, 2, 3]
    assert seen_by(storage, 0, step, final=True)["pair"][0, 0].tolist() == [1, -1, 2, -2, 3, -3]
    assert seen_by(storage, 0, step + 1)["symbol"][0, 0].tolist() == [4, 4, 4]


def test_keys_and_seeds_are_named_by_replica_episode_and_step() -> None:
    """Rules 15 and 16: across rollouts, not one name comes twice."""
    played = stage([[Act(2), Act(3, "truncated")], [Act(4)]], 3, 1)
    drawn: list[list[int]] = [[], []]
    for storage, step in played.play(4):
        for replica in range(2):
            drawn[replica].append(int(storage.key[replica, step]))
    for replica, world in enumerate(played.worlds):
        names = decided_on(world)[: len(drawn[replica])]
        assert drawn[replica] == [key(SEED, Purpose.ACTION, replica, e, t) for e, t in names]
        episodes = range(len(world.seeds))
        assert world.seeds == [episode_seed(SEED, replica, e) for e in episodes]
    assert len({*drawn[0], *drawn[1]}) == 24


def test_whose_values_are_needed() -> None:
    """Of final observations at once, and behind the last step where an episode goes on."""
    played = stage([[Act(2)], [Act(2, "truncated")], [Act(2, "both")], [Act(9)]], 2, 1)
    everyone = range(4)
    steps = [due(storage, [(everyone, step + 1)]) for storage, step in played.play(1)]
    assert steps[0].act is not None
    assert (steps[0].final, steps[0].behind) == (None, None)
    final, behind = steps[1].final, steps[1].behind
    assert steps[1].act is None
    assert final is not None
    assert behind is not None
    assert (final.replicas.tolist(), final.steps.tolist(), final.final) == ([1], [1], True)
    assert (behind.replicas.tolist(), behind.steps.tolist(), behind.final) == ([3], [2], False)


def test_where_values_are_apart_those_of_a_whole_rollout_are_asked_at_its_end() -> None:
    """And of final observations at once, as ever."""
    played = stage([[Act(2)], [Act(2, "truncated")], [Act(9)]], 2, 1)
    everyone = range(3)
    first, last = (due(s, [(everyone, step + 1)], apart=True) for s, step in played.play(1))
    assert first.act is not None
    assert (first.final, first.behind, list(first.whole)) == (None, None, [])
    assert last.final is not None
    assert last.final.replicas.tolist() == [1]
    assert (last.act, last.behind, list(last.whole)) == (None, None, [everyone])


@pytest.mark.parametrize("stack", [1, 3])
def test_a_block_at_several_steps_is_its_rows_one_by_one(stack: int) -> None:
    """Replica after replica, the steps of each in order."""
    played = stage([[Act(2)], [Act(3, "truncated")], [Act(9)]], 5, stack)
    *_, (storage, _) = played.play(2)
    block = Rows(range(1, 3), range(1, 6))
    assert block.replicas.tolist() == [1] * 5 + [2] * 5
    assert block.steps.tolist() == [1, 2, 3, 4, 5] * 2
    seen, alone = storage.gather(block), storage.gather(Rows(block.replicas, block.steps))
    for name, array in seen.items():
        np.testing.assert_array_equal(array, alone[name], strict=True)
        assert len(array) == block.count == 10


def test_questions_of_blocks_at_different_steps_are_one_batch() -> None:
    """Two replicas at step 1 and two at step 2 of a rollout: four actions, and the one value."""
    played = stage([[Act(1, "truncated"), Act(9)]] * 4, 3, 1)
    *_, (storage, _) = played.play(1)
    found = due(storage, [(range(2, 4), 1), (range(2), 2)])
    assert found.act is not None
    assert found.final is not None
    assert found.act.replicas.tolist() == [2, 3, 0, 1]
    assert found.act.steps.tolist() == [1, 1, 2, 2]
    assert (found.final.replicas.tolist(), found.final.steps.tolist()) == ([2, 3], [0, 0])
    assert found.behind is None


def test_an_old_bootstrap_does_not_survive() -> None:
    """A storage is used again: what stood behind a step of an older rollout is gone."""
    played = stage([[Act(9)]], 2, 1)
    played.storages[0].bootstrap[:] = 7.0
    list(played.play(1))
    assert played.storages[0].bootstrap.tolist() == [[[0.0], [0.0]]]


@settings(max_examples=30, deadline=None)
@given(st.lists(ACTS, min_size=2, max_size=4), st.integers(1, 5))
def test_a_block_sees_what_its_rows_see(scripts: list[list[Act]], stack: int) -> None:
    """Read as one block or row by row, at every step, whether a first frame is repeated or not."""
    played, block = stage(scripts, 6, stack), range(len(scripts))
    for storage, step in played.play(2):
        as_block, steps = Rows(block, step), np.full(len(scripts), step)
        assert np.array_equal(as_block.replicas, block)
        assert np.array_equal(as_block.steps, steps)
        as_rows = storage.gather(Rows(np.arange(len(scripts)), steps))
        for name, array in storage.gather(as_block).items():
            np.testing.assert_array_equal(array, as_rows[name])


@pytest.mark.parametrize("stack", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_frames_of_every_width_are_joined_in_order(channels: int, stack: int, dtype: str) -> None:
    """However many bytes are moved at a time: what is seen is what `concatenate` makes of it."""
    space = Box((3, 2, channels), dtype, 0.0, 255.0)
    storage = Storage(Sizes(2, stack + 2, 1, stack - 1), Spaces({"seen": space}, Discrete(2)))
    frames = storage.arrays["frames.seen"]
    frames[:] = np.random.default_rng(stack).integers(0, 256, frames.shape)
    storage.age[:] = stack
    replicas, steps = np.array([1, 0, 1]), np.array([0, 2, 1])
    seen = storage.gather(Rows(replicas, steps))["seen"]
    for row, (replica, step) in enumerate(zip(replicas, steps, strict=True)):
        expected = np.concatenate(list(frames[replica, step : step + stack]), axis=-1)
        np.testing.assert_array_equal(seen[row], expected)


def test_what_is_gathered_is_a_copy() -> None:
    """Rule 10: nobody who reads can write into a storage, nor sees later steps."""
    for stack in (1, 3):
        played = stage([[Act(9)]], 4, stack)
        list(played.play(1))
        before = replica_digest(played.storages[0], 0)
        for seen in (
            seen_by(played.storages[0], 0, 2),
            seen_by(played.storages[0], 0, 2, final=True),
            played.storages[0].gather(Rows(range(1), 2)),
        ):
            for array in seen.values():
                array += 1
        assert replica_digest(played.storages[0], 0) == before


def test_the_digest_sees_every_array_that_is_hashed_and_no_other() -> None:
    """One changed number anywhere changes it, but for what another rollout hashes (the frames of
    history, and what stands behind the last step) and for finals, whose values are hashed."""
    played = stage([[Act(3, "truncated")], [Act(9)]], 4, 3)
    list(played.play(1))
    storage = played.storages[0]

    def hashed() -> str:
        return rollout_digest(replica_digest(storage, replica) for replica in range(2))

    before = hashed()
    for declared in storage.declared:
        array = storage.arrays[declared.name]
        counted = []
        for place in range(declared.shape[1]):
            kept = array[1, place].copy()
            array[1, place] = ~kept if array.dtype == np.bool_ else kept + 1
            counted.append(hashed() != before)
            array[1, place] = kept
        expected = [True] * 4
        if declared.name.startswith("frames."):
            expected = [False] * 2 + [True] * 4 + [False]
        elif declared.name.startswith("finals."):
            expected = [False]
        elif declared.name == "episode":
            expected = [False] * 5
        elif declared.name == "age":
            expected = [True] * 4 + [False]
        assert counted == expected, declared.name
    assert hashed() == before


def test_there_is_no_other_array() -> None:
    """A misspelt array is an attribute error that names it."""
    storage = stage([[Act(1)]], 1, 1).storages[0]
    with pytest.raises(AttributeError, match="'rewards'"):
        _ = storage.rewards
