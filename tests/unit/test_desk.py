"""The desk and the memory behind it: states of a block, shared arrays, published versions."""

from __future__ import annotations

import gc
import os
import re
import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hts.errors import HtsError
from hts.learn.normalise import Moments, ObservationScale
from hts.machine import ALIVE, SharedArray, Sizes, learnt_arrays, version_arrays
from hts.memory import arena
from hts.memory.arena import Arena
from hts.memory.desk import Bells, Crew, Desk
from hts.memory.room import Room
from hts.memory.versions import Published, Version
from hts.runtime.shared import Blueprint, allocate
from hts_envs.contract import Array, Box, Discrete, Spaces

STEPS = 5
CREW = Crew((range(2), range(2, 3), range(3, 6)), (0, 0, 1), executors=2, actors=2)
SPACES = Spaces({"observation": Box((3,))}, Discrete(2))
KEPT = learnt_arrays({"weights": np.zeros(5)})


def desk() -> Desk:
    return Desk(CREW, STEPS)


def test_steps_of_unfinished_rollouts_are_counted() -> None:
    """Each block counts with its replicas; a run that continues counts the rollouts before."""
    one = desk()
    assert one.taken == 0
    one.ask(0, 0, 0)
    assert one.taken == 0, "the first observation takes no step"
    for block, (rollout, step) in enumerate([(1, 1), (0, STEPS), (0, 2)]):
        one.answer(block)
        one.ask(block, rollout, step)
    sizes = [len(block) for block in CREW.blocks]
    assert one.taken == sizes[0] * (STEPS + 1) + sizes[1] * STEPS + sizes[2] * 2
    again = desk()
    again.stand(3)
    assert again.taken == 3 * STEPS * CREW.replicas


def test_a_question_is_read_back_as_it_was_asked() -> None:
    """Rollout and step of every ticket of three rollouts, the one behind the last step included."""
    one = desk()
    for rollout in range(3):
        for step in range(STEPS + 1):
            one.ask(1, rollout, step)
            assert one.question(1) == (rollout, step)
            assert one.pending(range(3)) == [1]
            assert not one.drained(1)
            one.answer(1)
            assert one.drained(1)
            assert one.pending(range(3)) == []


def test_a_block_asks_once_at_a_time() -> None:
    """I6: whoever asks again before the answer is stopped, and no other block is."""
    one = desk()
    one.ask(0, 0, 0)
    one.ask(2, 0, 3)
    with pytest.raises(AssertionError, match="I6: block 0 asks before it was answered"):
        one.ask(0, 0, 1)
    assert one.pending((0, 1, 2)) == [0, 2]
    assert one.question(0) == (0, 0)


@pytest.mark.parametrize("earlier", [(1, 2), (1, 1), (0, STEPS)])
def test_tickets_only_grow(earlier: tuple[int, int]) -> None:
    """I6: the same question again, or an older one, is a call out of order."""
    one = desk()
    one.ask(0, 1, 2)
    one.answer(0)
    with pytest.raises(AssertionError, match="I6: tickets only grow"):
        one.ask(0, *earlier)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60))
def test_whatever_the_order_a_block_is_drained_or_has_one_question(
    calls: list[tuple[int, bool]],
) -> None:
    """The state diagram, against a model that is a dictionary of open questions."""
    one, asked, waiting = desk(), [0, 0, 0], dict[int, tuple[int, int]]()
    for block, answers in calls:
        if answers and block in waiting:
            assert one.question(block) == waiting.pop(block)
            one.answer(block)
        elif not answers and block not in waiting:
            waiting[block] = divmod(asked[block], STEPS + 1)
            one.ask(block, *waiting[block])
            asked[block] += 1
        assert one.pending(range(3)) == sorted(waiting)
        assert [one.drained(b) for b in range(3)] == [b not in waiting for b in range(3)]


def test_fresh_memory_asks_nothing_and_lets_nothing_begin() -> None:
    """Zeros mean that no block has asked, that no rollout may begin and that none is complete."""
    one = desk()
    assert all(not array.any() for array in (one.asked, one.answered, one.filled))
    assert one.pending(range(3)) == []
    assert one.may_begin == -1
    assert not one.is_complete(0)


def test_what_may_begin_is_never_taken_back() -> None:
    """It only grows; the same again is no harm."""
    one = desk()
    for rollout in (0, 2, 2):
        one.may_begin = rollout
        assert one.may_begin == rollout
    with pytest.raises(AssertionError, match="never taken back"):
        one.may_begin = 1


def test_a_rollout_is_complete_when_its_last_executor_has_filled_it() -> None:
    """I2: the slowest executor decides, and hashes come out in replica order."""
    one = desk()
    one.filled[:] = (3, 2)
    assert [one.is_complete(rollout) for rollout in range(4)] == [True, True, False, False]
    one.hashes[1] = np.arange(6)[:, None]
    assert one.parts(3) == [bytes([replica] * 16) for replica in range(6)]
    assert one.parts(2) == [bytes(16)] * 6


def test_every_block_has_one_executor_and_one_actor() -> None:
    """I1: what belongs to each is disjoint and complete, and one's blocks are neighbours."""
    assert [list(CREW.blocks_of(executor)) for executor in range(2)] == [[0, 1], [2]]
    assert [list(CREW.answered_by(actor)) for actor in range(2)] == [[0, 2], [1]]
    assert [CREW.actor_of(block) for block in range(3)] == [0, 1, 0]
    assert [CREW.block_with(replica) for replica in range(6)] == [0, 0, 1, 2, 2, 2]
    assert CREW.replicas == 6
    assert desk().crew is CREW


def test_a_block_is_stepping_from_an_answer_to_its_next_question() -> None:
    """Neither before the first answer, nor after the values behind the last step."""
    one = desk()
    assert one.stepping(range(3)) == []
    one.ask(0, 0, 0)
    one.ask(1, 0, STEPS - 1)
    one.ask(2, 0, STEPS)
    assert one.stepping(range(3)) == []
    for block in range(3):
        one.answer(block)
    assert one.stepping(range(3)) == [0, 1]
    one.ask(0, 0, 1)
    assert one.stepping(range(3)) == [1]


@pytest.mark.parametrize("rollouts", [1, 2, 7])
def test_a_resumed_run_begins_behind_its_last_rollout(rollouts: int) -> None:
    """Every block has had its last answer, every executor has filled its part, none is stepping."""
    one = desk()
    one.stand(rollouts)
    assert [one.question(block) for block in range(3)] == [(rollouts - 1, STEPS)] * 3
    assert one.pending(range(3)) == one.stepping(range(3)) == []
    assert [one.is_complete(rollout) for rollout in (rollouts - 1, rollouts)] == [True, False]
    one.ask(0, rollouts, 0)
    assert one.pending(range(3)) == [0]


def test_every_process_has_a_bell_and_all_are_rung_and_closed_at_once() -> None:
    """Two executors, two actors, the learner and the process beside it."""
    bells = Bells.of(CREW)
    every = [*bells.executors, *bells.actors, bells.learner, bells.beside]
    assert len({bell.fileno() for bell in every}) == 6
    bells.ring_all()
    assert [os.eventfd_read(bell.fileno()) for bell in every] == [1] * 6
    bells.close()
    for bell in every:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(bell.fileno())


@pytest.mark.parametrize("blocks", [(range(2), range(3, 4)), (range(2), range(1, 3))])
def test_a_replica_of_nobody_or_of_two_is_refused(blocks: tuple[range, ...]) -> None:
    """I1: a gap between blocks, or two that overlap."""
    with pytest.raises(AssertionError, match="I1: every replica is in one block"):
        Crew(blocks, (0, 0), executors=1, actors=0)
    with pytest.raises(AssertionError, match="every block has an executor"):
        Crew((range(2), range(2, 4)), (0,), executors=1, actors=0)


SCALED = {"observation": (3,), "clock": ()}


def memory() -> dict[str, Array]:
    """Fresh memory for versions of five parameters and two scaled fields."""
    return {a.name: np.zeros(a.shape, a.dtype) for a in version_arrays(5, SCALED)}


def version(number: int) -> Version:
    drawn = np.random.default_rng(number)
    moments = {
        name: Moments(64.0 * number, drawn.normal(size=shape), drawn.random(shape))
        for name, shape in SCALED.items()
    }
    parameters = torch.from_numpy(drawn.normal(size=5).astype(np.float32))
    return Version(number, parameters, ObservationScale(moments))


def contents(one: Version) -> list[bytes]:
    moments = [one.scale.moments[name] for name in SCALED]
    scale = [np.asarray(part) for m in moments for part in (m.count, m.mean, m.squares)]
    return [one.parameters.numpy().tobytes(), *(np.float64(part).tobytes() for part in scale)]


def test_what_is_published_is_what_is_read() -> None:
    """Parameters and statistics bit for bit, in another view of the memory; with ever new ones."""
    arrays = memory()
    ours, theirs = (Published(arrays, tuple(SCALED)) for _ in range(2))
    for number in range(7):
        ours.publish(version(number))
        for alive in range(max(0, number - ALIVE + 1), number + 1):
            assert contents(theirs.read(alive)) == contents(version(alive))


def test_a_version_is_made_again_from_its_arrays() -> None:
    """Bit for bit, under the names that shared memory has for them; and a copy has memory of its
    own."""
    first = version(3)
    again = Version.of(3, first.arrays())
    assert set(first.arrays()) == {each.name for each in version_arrays(5, SCALED)} - {"published"}
    assert again.number == 3
    assert contents(again) == contents(first)
    copied = first.copy()
    first.parameters.add_(1.0)
    assert contents(copied) == contents(again) != contents(first)


@pytest.mark.parametrize("number", [0, 1, 3, 5])
def test_a_version_that_does_not_stand_there_is_refused(number: int) -> None:
    """I4: fresh memory holds no version, not even 0; one that was overwritten, or is yet to come,
    is never taken for the one in its place."""
    arrays = memory()
    published = Published(arrays, tuple(SCALED))
    with pytest.raises(
        AssertionError, match=f"I4: version -1 stands where version {number} should"
    ):
        published.read(number)
    published.publish(version(number + ALIVE))
    with pytest.raises(AssertionError, match="I4"):
        published.read(number)
    with pytest.raises(AssertionError, match="I4"):
        published.read(number + 2 * ALIVE)


def test_tables_do_not_overlap_in_shared_memory() -> None:
    """Every array of a run, filled with a number of its own, still holds it when all are filled."""
    blueprint = Blueprint(Sizes(6, STEPS, 1, 2, 4), SPACES, 33, {"observation": (3,)}, KEPT, CREW)
    made = allocate(blueprint)
    tables = [made.arena.arrays(table) for table in blueprint.tables()]
    arrays = [array for table in tables for array in table.values()]
    assert not any(array.any() for array in arrays), "memory begins as zeros"
    for number, array in enumerate(arrays):
        array[:] = array.dtype.type(number % 2 if array.dtype == np.bool_ else number % 200 + 1)
    for number, array in enumerate(arrays):
        expected = number % 2 if array.dtype == np.bool_ else number % 200 + 1
        assert (array == array.dtype.type(expected)).all()
    made.close()


def test_networks_find_parameters_where_torch_would_have_put_them() -> None:
    """Kernels may go by where memory begins: each version does at a multiple of 64 bytes."""
    blueprint = Blueprint(Sizes(6, STEPS, 1, 2, 4), SPACES, 33, {}, KEPT, CREW)
    made = allocate(blueprint)
    parameters = made.view().versions["parameters"]
    assert parameters.shape == (ALIVE, 33)
    assert [row.ctypes.data % 64 for row in parameters] == [0] * ALIVE
    made.close()


def test_more_than_was_declared_is_refused() -> None:
    """An array that the memory was not made for is named."""
    made = Arena.create([[SharedArray("first", (8,), "int64", "all", "all")]])
    with pytest.raises(AssertionError, match="second was not declared"):
        made.arrays([SharedArray("second", (9,), "int64", "all", "all")])
    made.close()


MIB = 2**20


def large(count: int) -> list[list[SharedArray]]:
    """A table of so many MiB: little, for whoever really asks the kernel for it."""
    return [[SharedArray("large", (count * MIB,), "uint8", "all", "all")]]


def test_memory_that_is_not_there_is_never_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would make room by killing somebody: one sentence says what would do instead."""
    monkeypatch.setattr(arena, "available", lambda: Room(3 * MIB, "here"))
    with pytest.raises(
        HtsError, match=r"^4 MiB .* cannot be had \(3 MiB are free here\); .* fewer replicas"
    ):
        Arena.create(large(4))
    Arena.create(large(3)).close()


def test_memory_that_the_kernel_refuses_is_one_sentence() -> None:
    """Asked for when the run begins, not page by page in its middle; and nothing stays open."""
    before = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, limits[1]))
    try:
        with pytest.raises(HtsError, match=r"^4 MiB .* \(File too large\); .* fewer replicas"):
            Arena.create(large(4))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_is_taken_when_the_run_begins() -> None:
    """All but that of sparse arrays, also where one of those is the last; closing lets go of the
    file, whatever still maps it."""
    sparse = SharedArray("sparse", (4 * MIB,), "uint8", "all", "all", sparse=True)
    made = Arena.create([*large(2), [sparse]])
    descriptor = made._descriptor
    taken = os.fstat(descriptor)
    assert taken.st_size == 6 * MIB
    assert 2 * MIB <= taken.st_blocks * 512 < 3 * MIB
    arrays = [made.arrays(table) for table in (large(2)[0], [sparse])]
    arrays[1]["sparse"][-1] = 7
    made.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert arrays[1]["sparse"][-1] == 7


def kept_files() -> int:
    """How many pieces of a run's memory this process has mapped or open."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text()
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:  # the one with which the directory was read
            continue
    return len(re.findall("memfd:hts", maps)) + sum("memfd:hts" in link for link in links)


def test_closed_memory_is_given_back() -> None:
    """A process that starts many runs keeps the memory of none of them."""
    before = kept_files()
    blueprint = Blueprint(Sizes(6, STEPS, 1, 0), SPACES, 33, {}, KEPT, CREW)
    made = allocate(blueprint)
    shared = made.view()
    assert kept_files() > before
    made.close()
    assert not shared.desk.asked.any(), "views live as long as somebody holds them"
    del shared, made
    assert kept_files() == before


def test_memory_has_no_name() -> None:
    """Nothing in the file system stands for it, so a killed run cannot leave anything there."""
    made = allocate(Blueprint(Sizes(6, STEPS, 1, 0), SPACES, 33, {}, KEPT, CREW))
    maps = Path("/proc/self/maps").read_text()
    assert "/memfd:hts (deleted)" in maps
    assert "/dev/shm/" not in maps
    made.close()
