"""A seat's steps: what is said fast, and what is said with a closer look, is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hts.remote import wire
from hts.remote.shape import WrongShape
from hts.remote.talk import Offer, Seat, Talk
from hts.remote.wire import Format, Frames
from hts_envs.contract import Array, Box, Discrete, Spaces
from hts_envs.finite import are_finite

SPACES = Spaces({"seen": Box((3,), "float32")}, Discrete(2))
FORMAT = Format(SPACES, 1)
ACTION, SEED = bytes(8), bytes(8)


class _Seat:
    """One seat, and the run's side of it."""

    def __init__(self) -> None:
        self._talk = Talk(Offer(SPACES))
        self._talk.hear([wire.pack("welcome", {"protocol": wire.PROTOCOL, "run": "a run"})])
        self._talk.hear([wire.pack("take", 0, 0, 1, SEED)])
        self._asked(FORMAT.act(0, 0, [0], b"", SEED)).begin(np.zeros(3, np.float32))

    def _asked(self, frames: Frames) -> Seat:
        self._talk.hear(frames)
        seat = self._talk.next_turn()
        assert seat is not None, "it may move"
        self._seat = seat
        return seat

    def tell(self, turn: int, *told: Any) -> Frames:
        """What it says at this turn."""
        self._asked(FORMAT.act(0, turn, [], ACTION, SEED)).tell(*told)
        return self._seat.said

    def begin(self, shown: Array) -> Frames:
        """An episode, behind an end."""
        seat = self._talk.next_turn()
        assert seat is not None, "it has to begin"
        seat.begin(shown)
        return seat.said


def test_a_step_is_said_alike_however_it_was_given() -> None:
    """As it is sent, or in another type, order of memory or number of axes: the same bytes."""
    shown = np.array([0.5, -1.5, 3e38], np.float32)
    given: list[tuple[Any, ...]] = [
        (shown, 0.1, False, False),
        (shown.tolist(), 0.1, False, False),
        (np.repeat(shown, 2)[::2], 0.1, False, False),
        (shown.astype(np.float64), np.float64(0.1), np.False_, np.False_),
        ({"seen": shown[None]}, [0.1], 0, 0),
    ]
    said = []
    for told in given:
        seat = _Seat()
        before = [seat.tell(turn, *told) for turn in (1, 2)]
        seat.tell(3, *told[:2], True, False)
        said.append([*before, seat.begin(shown)])
    assert said[1:] == said[:1] * (len(said) - 1)
    _, (seat_, turn, facts) = wire.unpack(said[0][2][0])
    assert (seat_, turn, facts) == (0, 3, {0: {"return": 0.1 + 0.1 + 0.1, "length": 3.0}})


def test_what_a_simulator_shows_is_its_own_again_when_it_has_told() -> None:
    """It may write the next observation into the same array, also between an end and a begin."""
    seat, shown = _Seat(), np.ones(3, np.float32)
    first = seat.tell(1, shown, 0.0, False, False)
    shown[:] = 2
    assert FORMAT.read_stand({}, first[1:]).observation["seen"].tolist() == [[[1, 1, 1]]]
    seat.tell(2, shown, 0.0, False, True)
    shown[:] = 3
    _, (*_, facts) = wire.unpack((said := seat.begin(shown))[0])
    stand = FORMAT.read_stand(facts, said[1:])
    assert stand.final["seen"].tolist() == [[[2, 2, 2]]]
    assert stand.observation["seen"].tolist() == [[[3, 3, 3]]]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_noticed_before_they_are_said(wrong: float) -> None:
    """In an observation and in a reward; the same turn can be told again."""
    seat, shown = _Seat(), np.zeros(3, np.float32)
    with pytest.raises(WrongShape, match="not finite"):
        seat.tell(1, np.array([0, 0, wrong], np.float32), 0.0, False, False)
    with pytest.raises(WrongShape, match=r"finite|float32"):
        seat._seat.tell(shown, wrong, False, False)
    seat._seat.tell(shown, 0.0, False, False)
    assert seat._seat.turn == 1


@pytest.mark.parametrize("count", [1, 16, 17, 1000])
def test_each_number_is_looked_at(count: int) -> None:
    """However many there are, in every dtype, and where they are as large as they can be."""
    for dtype in (np.float16, np.float32, np.float64):
        whole = np.full((1, 1, count), np.finfo(dtype).max, dtype)
        assert are_finite(whole)
        for wrong in (np.nan, np.inf, -np.inf):
            for place in (0, count - 1):
                array = whole.copy()
                array[..., place] = wrong
                assert not are_finite(array)
