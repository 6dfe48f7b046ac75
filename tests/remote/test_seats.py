"""Sentences about the seats of a run: how many are filled, which simulator takes over or hangs."""

from __future__ import annotations

from typing import Any

import pytest

from hts.models.bounds import as_drawn
from hts.remote import wire
from hts.remote.block import RemoteBlock
from hts.remote.port import Port, Remote
from hts.remote.seating import Seating
from hts.remote.wire import Frames
from tests.remote.hostile import Words
from tests.remote.schedules import RUN_SEED, STEPS, Shape, Stage, Waiting

PATIENCE = 60.0
MORE_THAN_A_LOOK = 2.5  # seconds: simulators that are gone do not come back after that


class Run:
    """The seats of a run, without a socket: peers are routes, and time is a number."""

    def __init__(self, shape: Shape, *, step_limit: float = 0.0, begun: bool = False) -> None:
        self.now = 0.0
        self.told: list[str] = []
        self.facts: list[dict[str, int]] = []
        self.sent: list[tuple[bytes, list[Any]]] = []
        self._stage = Stage(shape)
        self._words = Words(0, self._stage.spaces)
        self.blocks = [
            RemoteBlock(seat, part, as_drawn, RUN_SEED, self._stage.spaces, clock=lambda: self.now)
            for seat, part in enumerate(shape.crew.blocks)
        ]
        self.seating = Seating(
            Remote(Port("tcp://127.0.0.1:1"), "this run", PATIENCE, step_limit),
            self._stage.spaces,
            self.blocks,
            self._send,
            self._note,
            last=STEPS,
            began=begun,
            clock=lambda: self.now,
        )
        self._stage.settle(self._stage.executor(self.blocks, Waiting(self.blocks)))

    def _send(self, route: bytes, frames: Frames) -> None:
        kind, values = wire.unpack(frames[0])
        self.sent.append((route, [kind, *values]))

    def _note(self, sentence: str, **facts: int) -> None:
        self.told.append(sentence)
        self.facts += [facts] if facts else []

    def dial(self, route: bytes, **facts: Any) -> None:
        """A simulator connects, named like its route."""
        own = {"name": route.decode(), "session": route.ljust(16), "run": "", "held": []}
        spaces = wire.spaces_to_plain(self._stage.spaces)
        self.hear(route, self._words.hello(**own | {"spaces": spaces} | facts))

    def hear(self, route: bytes, head: bytes) -> None:
        self.seating.hear(route, [head])

    def look(self, seconds: float = 1.0) -> list[str]:
        """Time passes; return what is told about it."""
        before = len(self.told)
        self.now += seconds
        self.seating.look()
        return self.told[before:]


def short(sentences: list[str]) -> list[str]:
    """Without the first digits of sessions behind names."""
    sessions = {b"first".ljust(16).hex()[:6], b"second".ljust(16).hex()[:6]}
    words = [[word for word in each.split(" ") if word not in sessions] for each in sentences]
    return [" ".join(each) for each in words]


def test_missing_simulators_are_told_with_what_to_do() -> None:
    """Once for each change, and without advice when the run had all of them before."""
    run = Run(Shape())
    assert run.look() == [], "a run that has just begun says nothing about that"
    run.dial(b"first", seats=1)
    missing = "no simulator for replicas 1 to 3"
    advice = "start 3 more, or restart with --envs 1"
    assert run.look() == [f"1 of 4 seats filled; {missing}: {advice}"]
    assert run.look() == []
    run.dial(b"second", seats=3)
    assert run.look() == ["4 of 4 seats filled"]
    run.seating.lost(b"second")
    assert run.look(0.5) == [], "it may come back"
    assert run.look(MORE_THAN_A_LOOK) == [f"1 of 4 seats filled; {missing}"]
    assert run.facts == [{"seats_filled": filled, "seats": 4} for filled in (1, 4, 1)]


def test_seats_of_several_replicas_count_as_seats() -> None:
    """And `--envs` as replicas."""
    run = Run(Shape(replicas=6, rows=3))
    run.dial(b"first", seats=1, rows=3)
    missing = "no simulator for replicas 3 to 5"
    advice = "start 1 more, or restart with --envs 3"
    assert run.look() == [f"1 of 2 seats filled; {missing}: {advice}"]


def test_a_replaced_executor_says_nothing_when_all_come_back() -> None:
    """Nor when some need a moment."""
    run = Run(Shape(), begun=True)
    run.dial(b"first", seats=4, run="this run", held=[[seat, -1] for seat in range(2)])
    assert run.look(0.5) == []
    assert run.look(MORE_THAN_A_LOOK) == ["first 666972 takes over replicas 2 to 3"]
    assert run.facts == []


def test_whoever_takes_over_is_named() -> None:
    """A simulator that has waited, and one that dials in while the seats are kept."""
    run = Run(Shape())
    run.dial(b"first", seats=4)
    run.look()
    run.seating.lost(b"first")
    assert short(run.told[-1:]) == ["first is gone and has left replicas 0 to 3"]
    run.dial(b"second", seats=4)
    assert short(run.look(MORE_THAN_A_LOOK)) == ["second takes over replicas 0 to 3"]
    run.dial(b"first", seats=4)
    run.hear(b"second", wire.pack("bye"))
    assert short(run.told[-2:]) == [
        "second has left replicas 0 to 3",
        "first takes over replicas 0 to 3",
    ]


def test_whoever_is_waited_for_is_named_with_what_helps() -> None:
    """A holder that does not answer keeps its seats while another simulator is free."""
    run = Run(Shape(replicas=1))
    nobody = "replica 0: no step for 61 s; no simulator holds the seat; they dial in at tcp:"
    assert run.look(PATIENCE + 1)[0].startswith(nobody)
    run = Run(Shape(replicas=1))
    run.dial(b"first", seats=1)
    run.look()
    silent = "replica 0: no step for 61 s; first holds the seat and does not answer"
    limit = " (--set step_limit=SECONDS takes a seat away after a step that long)"
    assert short(run.look(PATIENCE)) == [silent + limit]
    assert run.look() == [], "once for each step"
    run = Run(Shape(replicas=1))
    run.dial(b"first", seats=1)
    run.dial(b"second", seats=1)
    free = "; another simulator is free, but a connected one keeps its seats"
    assert short(run.look(PATIENCE + 1))[-1] == silent + free + limit


def test_a_step_limit_hands_the_seat_over() -> None:
    """As that sentence says."""
    run = Run(Shape(replicas=1), step_limit=5.0)
    run.dial(b"first", seats=1)
    run.dial(b"second", seats=1)
    assert short(run.look(6.0))[-2:] == [
        "replica 0: first cannot go on: a step takes it more than 5 s",
        "second takes over replica 0",
    ]


@pytest.mark.parametrize("name", ["\x1b[2J", "x\ny", "x" * 65, "\u202e"])
def test_a_name_is_plain(name: str) -> None:
    """A simulator with another one is not known at all."""
    run = Run(Shape())
    run.dial(b"first", name=name)
    assert (run.seating.peers, run.told) == ({}, [])


def test_a_failure_is_told_in_one_clean_line() -> None:
    """However much of it there is."""
    run = Run(Shape(replicas=1))
    run.dial(b"first", seats=1)
    run.hear(b"first", wire.pack("fail", 0, "Traceback\n\x1b]0;title\x07" + "\x1b[2J" * 900))
    (told,) = (each for each in run.told if "cannot go on" in each)
    assert told.isprintable()
    assert len(told) < 300


def test_seats_of_another_run_are_not_claimed() -> None:
    """They begin anew: where the simulator stands there says nothing about this run."""
    for other, asked in (("this run", "again"), ("another run", "act")):
        run = Run(Shape(replicas=1))
        run.dial(b"first", seats=1, run=other, held=[[0, 0]])
        kinds = [values[0] for route, values in run.sent if route == b"first"]
        assert kinds == ["welcome", "take", asked]


def holds(run: Run) -> list[str]:
    """The name of each seat's holder."""
    peers = {seat: peer for peer in run.seating.peers.values() for seat in peer.seats}
    return [peers[seat].hello.name if seat in peers else "" for seat in range(len(run.blocks))]


def test_a_seat_is_kept_for_the_simulator_that_was_cut_off() -> None:
    """Another one that claims it gets it only when that time is over."""
    run = Run(Shape(replicas=2))
    run.dial(b"first", seats=2)
    run.seating.lost(b"first")
    run.dial(b"second", seats=2, run="this run", held=[[0, 0]])
    assert holds(run) == ["", ""]
    assert (b"second", ["drop", 0]) in run.sent
    again = {"name": "first", "session": b"first".ljust(16), "run": "this run"}
    run.dial(b"first again", seats=2, held=[[1, 0]], **again)
    assert holds(run)[1] == "first"
    assert holds(run)[0], "the seat that it has forgotten is free at once"


def test_a_simulator_that_fails_twice_at_a_turn_is_not_asked_there_again() -> None:
    """Nor over another connection; another simulator is."""
    run = Run(Shape(replicas=1))
    run.dial(b"first", seats=1)
    run.hear(b"first", wire.pack("fail", 0, "it broke"))
    assert holds(run) == ["first"], "it may try once more"
    run.hear(b"first", wire.pack("fail", 0, "it broke again"))
    run.dial(b"first again", name="first", session=b"first".ljust(16), seats=1)
    run.look(MORE_THAN_A_LOOK)
    assert holds(run) == [""]
    run.dial(b"second", seats=1)
    assert holds(run) == ["second"]
