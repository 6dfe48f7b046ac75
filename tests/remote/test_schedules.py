"""Whatever happens between a run and its simulators, in whatever order: the same rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from hts.remote.block import Holder, RemoteBlock
from hts.remote.talk import Seat
from hts_envs.contract import Array, Step
from hts_envs.reference import ReferenceWorld
from tests.remote.schedules import Client, Schedule, Shape, local

TROUBLES = ("cut", "die", "replace", "double", "fail", "leave", "reopen")
SHAPES = (Shape(), Shape(rows=2), Shape(agents=2), Shape(replicas=6, rows=3, agents=2))
SEEDS = 12


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("troubles", [(), *((each,) for each in TROUBLES), TROUBLES], ids=str)
def test_every_order_gives_the_rollouts_of_a_run_without_a_socket(
    shape: Shape, troubles: tuple[str, ...]
) -> None:
    """Hashes of every replica's rollouts, and every episode with its return and its length."""
    expected = local(shape)
    assert len(expected.ended) > 3, "episodes end in these rollouts"
    for seed in range(SEEDS):
        found = Schedule(seed, shape, troubles).run()
        assert found.hashes == expected.hashes
        assert found.ended == expected.ended
        assert found.lost == []


class Unlucky(Schedule):
    """Every simulator raises in turn 9, and in each turn when it is replayed for the first time."""

    visits: Counter[tuple[int, int]]

    def _serve(self, client: Client, seat: Seat) -> None:
        self.visits[seat.number, seat.turn] += 1
        if self.visits[seat.number, seat.turn] == (1 if seat.turn == 9 else 2):
            seat.fail("it raised")
        else:
            super()._serve(client, seat)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_simulator_may_raise_once_in_each_turn_of_a_replay(shape: Shape) -> None:
    """Each turn has its own second try: with nobody else to take the seat, the run goes on."""
    expected = local(shape)
    for seed in range(SEEDS):
        schedule = Unlucky(seed, shape, ())
        schedule.visits = Counter()
        found = schedule.run()
        assert found.hashes == expected.hashes
        assert found.lost == []
        assert max(schedule.visits.values()) > 3, "replays were interrupted again and again"


class Aging(ReferenceWorld):
    """Shows how many steps it has taken in its life, so that a new one is not the same."""

    def __init__(self, agents: int) -> None:
        super().__init__(agents)
        self._life = 0

    def step(self, action: Array) -> Step:
        self._life += 1
        found = super().step(action)
        found.observation["values"][:, 0] = self._life
        return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_simulator_that_comes_back_as_another_one_is_found_out(shape: Shape) -> None:
    """Its episode is cut short at the first thing that it shows otherwise, and the run goes on."""
    lost = [
        found
        for seed in range(3 * SEEDS)
        for found in Schedule(seed, shape, ("die",), make=Aging).run().lost
    ]
    assert len(lost) > SEEDS / 2
    assert all(each.step is not None and each.step > 0 for each in lost)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_cannot_be_replayed_is_cut_short_when_it_is_lost(shape: Shape) -> None:
    """Not tried, said, and gone on with the next episode."""
    lost = [
        found
        for seed in range(3 * SEEDS)
        for found in Schedule(seed, shape, ("die",), replayable=False).run().lost
    ]
    assert len(lost) > SEEDS / 2
    assert all(each.step is None for each in lost)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_connection_that_comes_back_in_time_interrupts_nobody(shape: Shape) -> None:
    """Cut connections, messages that come twice, and a new executor lose no episode of simulators
    that cannot be replayed, as long as nobody else takes their seats."""
    expected = local(shape)
    for seed in range(SEEDS):
        quiet = Schedule(seed, shape, ("cut", "double"), make=Aging, replayable=False, many=6)
        quiet.keep_seats()
        found = quiet.run()
        assert found.lost == []
        assert len(found.hashes) == len(expected.hashes)


def _never_behind_a_claim(block: RemoteBlock, _turn: int) -> Holder | None:
    return block.holder


def _with_stale_seeds(block: RemoteBlock, _ahead: int) -> bytes:
    block._next_seeds = block._next_seeds or _SEEDS(block, 1)
    return block._next_seeds


def _leaps(block: RemoteBlock, _at: int) -> None:
    block._ask(block.turn, [], block._trail[-1], block._seeds(0))


_SEEDS = RemoteBlock._seeds


@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [
        (RemoteBlock, "_heard_from", _never_behind_a_claim),
        (RemoteBlock, "_seeds", _with_stale_seeds),
        (RemoteBlock, "_ask_to_replay", _leaps),
        (RemoteBlock, "waits", lambda *_: None),
        (Seat, "_is_wanted", lambda _: True),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_planted_mistake_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, planted: Callable[..., Any]
) -> None:
    """Each of them makes some order hang, or come out otherwise."""
    expected = local(Shape())
    monkeypatch.setattr(owner, name, planted)
    monkeypatch.setattr("tests.remote.schedules.LONG", 6_000)
    for seed in range(60):
        try:
            found = Schedule(seed, Shape(), TROUBLES).run()
        except (AssertionError, RuntimeError):
            return
        if found.hashes != expected.hashes or found.lost or found.ended != expected.ended:
            return
    pytest.fail("nobody noticed")


def test_what_was_dropped_is_said_at_the_end() -> None:
    """How many messages came, and how many of them were malformed; nothing where none were."""

    class Mumbles(Schedule):
        mumbled = 0

        def _point(self) -> None:
            if self.mumbled < 60:  # more than sentences that are said about single messages
                self.mumbled += 1
                self._seating.hear(b"other", [b"\xc1"])
            super()._point()

    quiet, loud = Schedule(0, Shape(), ()), Mumbles(0, Shape(), ())
    quiet.run()
    loud.run()
    assert not any("dropped" in note for note in quiet.notes)
    (note,) = [note for note in loud.notes if "dropped" in note]
    assert note == f"of {loud._seating.heard:,} messages 60 were dropped as malformed"
    assert loud._seating.heard > 60
