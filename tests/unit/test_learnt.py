"""How far a learner has come, and how many updates it makes: what a successor finds."""

from __future__ import annotations

import numpy as np
import pytest

from hts.machine import learnt_arrays
from hts.memory.learnt import Learnt
from hts.roles.pace import by_clock, by_count
from hts_envs.contract import Array


def fresh() -> dict[str, Array]:
    """Memory for what a learner keeps: two arrays, each twice, a count and a digest."""
    declared = learnt_arrays({"weights": np.zeros(3), "steps": np.zeros(1, np.int64)})
    return {each.name: np.zeros(each.shape, each.dtype) for each in declared}


def kept(number: int) -> dict[str, Array]:
    """What is kept after this update."""
    return {"weights": np.full(3, float(number)), "steps": np.array([number])}


def chain(number: int) -> str:
    return bytes([number] * 16).hex()


def test_what_is_kept_is_found_by_another_one() -> None:
    """After each update: the count, the arrays and the digest of it, and the arrays of the update
    before, in another view of the memory."""
    arrays = fresh()
    ours, theirs = Learnt(arrays), Learnt(arrays)
    assert theirs.updates == 0
    for update in range(1, 6):
        ours.complete(kept(update), chain(update))
        assert (theirs.updates, theirs.chain) == (update, chain(update))
        for found, number in ((theirs.kept(), update), (theirs.kept(update - 1), update - 1)):
            assert {name: array.tolist() for name, array in found.items()} == {
                "weights": [float(number)] * 3,
                "steps": [number],
            }


def test_an_unfinished_update_is_as_if_it_had_not_begun() -> None:
    """Everything is written before the count: who dies in between changes nothing that is read."""
    arrays = fresh()
    learnt = Learnt(arrays)
    learnt.stand(4, kept(4), chain(4))
    unfinished = kept(5) | {"gone": np.zeros(1)}
    with pytest.raises(KeyError, match="gone"):
        learnt.complete(unfinished, chain(5))
    assert (learnt.updates, learnt.chain) == (4, chain(4))
    assert learnt.kept()["weights"].tolist() == [4.0] * 3


def test_a_learner_without_a_digest_keeps_none() -> None:
    """The one beside another leaves the digest as it is; a resumed run begins where it stood."""
    arrays = fresh()
    learnt = Learnt(arrays)
    learnt.stand(7, kept(7))
    assert learnt.updates == 7
    assert not arrays["chain"].any()
    learnt.stand(8, kept(8), chain(8))
    learnt.stand(10, kept(10))
    assert learnt.chain == chain(8), "the place of even updates"


def test_updates_are_counted_or_go_on_while_there_is_time() -> None:
    """By the clock: one at least, and as many until the next window is complete; after the last
    turn no window is filled, so that one has its count."""
    assert list(by_count(3, 4)) == [0, 1, 2, 3]
    asked: list[int] = []

    def is_complete(window: int) -> bool:
        asked.append(window)
        return len(asked) > 2

    pace = by_clock(is_complete, 10)
    assert list(pace(3, 4)) == [0, 1, 2]
    assert asked == [4, 4, 4]
    assert list(pace(4, 4)) == [0], "it is complete already"
    assert list(pace(9, 4)) == [0, 1, 2, 3]
