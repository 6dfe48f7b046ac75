"""The Python client, as somebody meets it who embeds it: what it takes, and what it says."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import zmq

from hts.errors import WrongUsage
from hts.remote import client, wire
from hts.remote.client import (
    Box,
    Connection,
    Discrete,
    MultiDiscrete,
    Offer,
    OwnSeat,
    Refused,
    Seat,
    Spaces,
    WrongShape,
    spaces_of,
)
from hts.remote.keys import Keys
from hts.remote.listening import Listening
from hts.remote.port import Port
from hts.remote.serving import Served
from hts.remote.talk import Talk
from hts_envs.errors import BadName
from hts_envs.registry import make, parse

SPACES = Spaces({"x": Box((2,)), "n": Discrete(3), "p": Box((), "uint8", 0, 255)}, Discrete(2))
SOUND = {"x": [0.5, 1.0], "n": 2, "p": 255}


def seat_of(spaces: Spaces = SPACES, rows: int | None = None) -> tuple[Talk, Seat]:
    """A seat whose turn it is to begin."""
    talk = Talk(Offer(spaces, rows=rows))
    count = rows or 1
    talk.hear([wire.pack("welcome", {"protocol": 1, "run": "one"})])
    talk.hear([wire.pack("take", 0, 3, count, bytes(8))])
    asks(talk, 0, None, count)
    seat = talk.next_turn()
    assert seat is not None
    return talk, seat


def asks(talk: Talk, turn: int, action: Any, rows: int = 1) -> None:
    """The run asks for this turn."""
    seeds = np.arange(7, 7 + rows, dtype="<u8").tobytes()
    begins = [] if action is not None else list(range(rows))
    talk.hear([wire.pack("act", 0, turn, begins), action or b"", seeds])


def acting() -> tuple[Talk, Seat]:
    """A seat whose turn it is to take action 1."""
    talk, seat = seat_of()
    seat.begin(SOUND)
    asks(talk, 1, (1).to_bytes(8, "little"))
    assert talk.next_turn() is seat
    assert seat.action == 1
    return talk, seat


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (SOUND | {"x": [0.5, 1.0, 2.0]}, "observation 'x' has the shape (3,); it must be (2,)"),
        ({"x": [0.5, 1.0], "n": 2}, "has no 'p', which its spaces declare; it has x, n"),
        ([0.5, 1.0], "the observation is a list; it has the fields x, n, p"),
        (SOUND | {"x": [0.5, np.nan]}, "observation 'x' holds a number that is not finite"),
        (SOUND | {"x": [0.5, 1e300]}, "observation 'x' holds a number that is not finite"),
        (SOUND | {"x": "up"}, "observation 'x' must hold float32 numbers, not str"),
        (SOUND | {"x": [[1.0], [1.0, 2.0]]}, "observation 'x' must hold float32 numbers, not list"),
        (SOUND | {"n": 3}, "observation 'n' is none of its choices, 0 to 2: 3"),
        (SOUND | {"n": -1}, "observation 'n' is none of its choices, 0 to 2: -1"),
        (SOUND | {"p": 256}, "observation 'p' holds numbers that uint8 cannot hold"),
        (SOUND | {"p": -1}, "observation 'p' holds numbers that uint8 cannot hold"),
        (SOUND | {"p": np.float32(0.5)}, "must hold uint8 numbers, not float32 ones"),
        (SOUND | {"x": (np.zeros(2), {})}, "Gymnasium's reset returns observation and info"),
    ],
)
def test_what_cannot_be_shown_is_refused(given: Any, sentence: str) -> None:
    """In a sentence that names the field; and the turn is still to be had."""
    talk, seat = seat_of()
    with pytest.raises(WrongShape) as raised:
        seat.begin(given)
    assert sentence in str(raised.value)
    assert not talk.outbox
    seat.begin(SOUND)
    assert len(talk.outbox) == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((SOUND, [1.0, 2.0], False, False), "reward has the shape (2,); it must be ()"),
        ((SOUND, None, False, False), "reward must hold float64 numbers, not NoneType"),
        ((SOUND, np.inf, False, False), "reward holds a number that is not finite"),
        ((SOUND, 1e39, False, False), "reward is more than a float32 can hold: 1e+39"),
        (
            (SOUND, 1.0, False, {}),
            "truncated is one flag for each replica of the seat, not {} (bef",
        ),
        ((SOUND, 1.0, [True, False], False), "terminated is one flag for each replica of the seat"),
        ((SOUND, 1.0, "no", False), "terminated is one flag for each replica of the seat"),
    ],
)
def test_what_cannot_have_come_of_a_step_is_refused(given: Any, sentence: str) -> None:
    """Nothing of it is said, and the turn is still to be had."""
    talk, seat = acting()
    before = len(talk.outbox)
    with pytest.raises(WrongShape) as raised:
        seat.tell(*given)
    assert sentence in str(raised.value)
    assert len(talk.outbox) == before
    seat.tell(SOUND, 1.0, False, False)
    assert len(talk.outbox) == before + 1


@pytest.mark.parametrize(
    ("misuse", "sentence"),
    [
        (lambda seat: seat.begin(SOUND), "this seat's turn is to take an action"),
        (lambda seat: (step(seat), step(seat)), "this seat has had its turn: wait until"),
        (lambda seat: (step(seat, True), seat.begin(SOUND)), "this seat has had its turn: wait"),
        (lambda seat: (step(seat, True), step(seat)), "this seat has had its turn: wait until"),
    ],
)
def test_calls_out_of_order_are_refused(misuse: Callable[[Seat], Any], sentence: str) -> None:
    """Whichever comes at a wrong time is told whose turn it is."""
    _, seat = acting()
    with pytest.raises(RuntimeError, match=sentence):
        misuse(seat)


def step(seat: Seat, ends: bool = False) -> None:
    seat.tell(SOUND, 1.0, ends, False)


def test_an_episode_begins_before_it_goes_on() -> None:
    """A step where a reset was due is refused, behind an end too."""
    talk, seat = acting()
    step(seat, True)
    assert talk.next_turn() is seat
    with pytest.raises(RuntimeError, match="turn is to begin an episode: reset it, and begin"):
        step(seat)


def test_facts_are_finite_numbers_with_a_name() -> None:
    """Whatever else a simulator knows is left out, so that Gymnasium's info can be given."""
    talk, seat = acting()
    info = {"score": np.float32(2.5), "won": True, "bad": np.nan, "lives": [3], "": 1, "x" * 65: 1}
    seat.tell(SOUND, 1.0, True, False, info)
    talk.next_turn()
    seat.begin(SOUND)
    _, values = wire.unpack(talk.outbox[-1][0])
    assert values[2] == {0: {"return": 1.0, "length": 1.0, "score": 2.5, "won": 1.0}}


def test_who_was_dropped_says_nothing_more() -> None:
    """A late step, a late failure: neither disturbs whoever holds the seat by now, here again."""
    for late in (step, lambda seat: seat.fail("too late")):
        talk, seat = acting()
        talk.outbox.clear()
        talk.hear([wire.pack("drop", 0)])
        talk.hear([wire.pack("take", 0, 3, 1, bytes(8))])
        late(seat)
        assert not talk.outbox
        assert list(talk.seats) == [0]


def test_a_simulator_that_raises_is_told_here_and_there(caplog: pytest.LogCaptureFixture) -> None:
    """Its traceback is logged, the run hears it, and what it held is given back; so it is when its
    step returns something else than a step does."""

    class Fails:
        closed = 0

        def reset(self, _: int) -> Any:
            return SOUND

        def step(self, action: int) -> Any:
            return (SOUND, 1.0, False) if action else 1 / action

        def close(self) -> None:
            Fails.closed += 1

    talk, seat = seat_of()
    served = Served(lambda _: Fails())
    served.move(seat)
    asks(talk, 1, (1).to_bytes(8, "little"))
    talk.next_turn()
    with caplog.at_level(logging.INFO, "hts.remote"):
        served.move(seat)
    said = wire.unpack(talk.outbox[-1][0])
    assert said[0] == "fail"
    assert (
        "truncated and, if anything more is known, facts: a tuple of four or five, not 3"
        in said[1][1]
    )
    assert Fails.closed == 1
    assert "replica 3: the simulator raised TypeError: step returns observation" in caplog.text
    assert "Traceback" in caplog.text
    assert not talk.seats


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Box(-1, 1, (3,), np.float64),
        gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8),
        gymnasium.spaces.Discrete(5),
        gymnasium.spaces.MultiDiscrete([2, 3]),
        gymnasium.spaces.MultiBinary(4),
        gymnasium.spaces.Dict(
            camera=gymnasium.spaces.Dict(left=gymnasium.spaces.Box(0, 1, (2,))),
            pose=gymnasium.spaces.Tuple(
                (gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(3))
            ),
        ),
    ],
)
def test_spaces_of_gymnasium_are_called_as_gym_calls_them(space: Any) -> None:
    """The fields, their order, dtypes and bounds are those of the local family; and what such a
    space holds can be shown as it is."""

    class Env(gymnasium.Env[Any, Any]):
        observation_space, action_space = space, gymnasium.spaces.Discrete(2)

    from hts_envs.adapter import GymWorld

    found = spaces_of(space, gymnasium.spaces.Discrete(2))
    assert found == GymWorld(Env(), "test").spaces
    assert list(found.observation) == list(GymWorld(Env(), "test").spaces.observation)
    space.seed(0)
    talk, seat = seat_of(found)
    seat.begin(space.sample())
    assert len(talk.outbox) == 1


def test_spaces_can_be_mixed() -> None:
    """Gymnasium's and our own, below one name or several; an action of either kind."""
    both = {"ours": Box((2,)), "theirs": gymnasium.spaces.Discrete(4)}
    assert spaces_of(both, MultiDiscrete((2, 2)), 3) == Spaces(
        {"ours": Box((2,)), "theirs": Discrete(4)}, MultiDiscrete((2, 2)), 3
    )
    assert spaces_of(Box((2,)), Discrete(2)) == Spaces({"observation": Box((2,))}, Discrete(2))
    with pytest.raises(BadName, match="counts from another number than 0"):
        spaces_of(gymnasium.spaces.Discrete(3, start=1), Discrete(2))
    with pytest.raises(BadName, match="counts from another number than 0"):
        spaces_of(Box(()), gymnasium.spaces.Discrete(3, start=1))


@pytest.mark.parametrize(
    ("offer", "error", "sentence"),
    [
        (Offer(gymnasium.spaces.Discrete(2)), TypeError, "spaces_of(observation_space, action_"),
        (Offer(Spaces(gymnasium.spaces.Box(0, 1), Discrete(2))), TypeError, "a dict of named"),
        (Offer(Spaces({}, Discrete(2))), TypeError, "the observation is a dict of named spaces"),
        (
            Offer(Spaces({"x": Box(())}, gymnasium.spaces.Discrete(2))),
            TypeError,
            "spaces: action is Discrete(2); spaces_of(",
        ),
        (Offer(Spaces({"x": Box(())}, Discrete(0))), ValueError, "spaces: choices: a whole number"),
        (
            Offer(Spaces({"x": Box((), "text")}, Discrete(2))),
            ValueError,
            "spaces: a box has one of",
        ),
        (Offer(SPACES, seats=0), ValueError, "seats: a whole number of at least 1, not 0"),
        (Offer(SPACES, rows=0), ValueError, "rows: a whole number of at least 1, not 0"),
    ],
)
def test_an_offer_is_looked_at_before_it_is_made(
    offer: Any, error: type[Exception], sentence: str
) -> None:
    """What the run would only drop or refuse is told where it is written."""
    with pytest.raises(error) as raised:
        Connection("tcp://127.0.0.1:9", offer)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1", "127.0.0.1:5555", "nonsense", "tcp://x:*"])
def test_an_address_says_where(address: str) -> None:
    """One that is none is told apart from one where nobody listens."""
    with pytest.raises(WrongUsage, match=r"is no address: write tcp://HOST:PORT"):
        Connection(address, Offer(SPACES))


def test_who_waits_in_vain_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    """Once, in the log; and patience has an end, where one was given."""
    with pytest.raises(TimeoutError, match="no run has said a word for"):
        OwnSeat("tcp://127.0.0.1:9", SPACES, patience=1.5)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["tcp://127.0.0.1:9: nobody listens there yet; waiting"]


def test_a_turn_can_be_looked_for() -> None:
    """A loop with a pace of its own waits as long as it likes, or not at all."""
    with Connection("tcp://127.0.0.1:9", Offer(SPACES)) as connection:
        assert connection.next_turn(0) is None
        assert connection.next_turn(0.01) is None
        assert not connection.over


@pytest.fixture
def four() -> Iterator[tuple[Connection, zmq.Socket[Any]]]:
    """A connection whose four seats may all begin, and the run at its other end."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as run:
        run.linger = 0
        run.rcvtimeo = 10_000
        port = run.bind_to_random_port("tcp://127.0.0.1")
        with Connection(f"tcp://127.0.0.1:{port}", Offer(SPACES, seats=4)) as connection:
            assert connection.next_turn(0) is None
            route, _ = run.recv_multipart()
            run.send_multipart([route, wire.pack("welcome", {"protocol": 1, "run": "one"})])
            for seat in range(4):
                run.send_multipart([route, wire.pack("take", seat, seat, 1, bytes(8))])
                run.send_multipart([route, wire.pack("act", seat, 0, [0]), b"", bytes(8)])
            until = time.monotonic() + 10
            while len(connection.talk.turns) < 4:
                assert time.monotonic() < until
                connection._line.wait(1.0)
            yield connection, run


def heard(run: zmq.Socket[Any], count: int) -> list[int]:
    """The seats of so many messages that have come."""
    words = [wire.unpack(run.recv_multipart()[1]) for _ in range(count)]
    assert all(kind == "stand" for kind, _ in words)
    return [values[0] for _, values in words]


def test_who_moves_one_seat_after_the_other_says_several_things_at_once(
    four: tuple[Connection, zmq.Socket[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that have moved are told when as many are left to move: nobody waits for an answer."""
    monkeypatch.setattr(client, "_HELD_BACK", 60.0)
    connection, run = four
    for told in (0, 0, 2, 1):  # behind each turn but the last one, the next one is asked for
        seat = connection.next_turn(0)
        assert seat is not None
        assert len(heard(run, told)) == told
        seat.begin(SOUND)
    assert connection.next_turn(0) is None
    assert heard(run, 1) == [3]
    assert not connection.talk.outbox


@pytest.mark.parametrize("others", [0, 1])
def test_who_moves_several_seats_at_a_time_or_takes_long_says_it_at_once(
    four: tuple[Connection, zmq.Socket[Any]], monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """While somebody works on another seat's turn, and where nothing is held back for so long."""
    monkeypatch.setattr(client, "_HELD_BACK", 60.0 if others else 0.0)
    connection, run = four
    seats = [connection.next_turn(0) for _ in range(1 + others)]
    assert seats[0] is not None
    seats[0].begin(SOUND)
    connection.next_turn(0)
    assert heard(run, 1) == [0]


def test_a_connection_belongs_to_one_thread() -> None:
    """Another one that uses it is told so, and nothing is broken by that."""
    raised: list[BaseException] = []

    def use() -> None:
        try:
            connection.next_turn(0)
        except RuntimeError as error:
            raised.append(error)

    with Connection("tcp://127.0.0.1:9", Offer(SPACES)) as connection:
        connection.next_turn(0)
        other = threading.Thread(target=use)
        other.start()
        other.join()
        assert "belongs to the thread that has used it first" in str(raised[0])
        assert connection.next_turn(0) is None


def test_keys_that_do_not_fit_are_told(tmp_path: Path) -> None:
    """A key that the run does not know, and none where some are needed, end in a sentence."""
    run, other = Keys(tmp_path / "run"), Keys(tmp_path / "other")
    run.make_run()
    run.make_client("friend")
    other.make_run()
    stranger = other.make_client("stranger")
    shutil.copy(run.folder / "run.key", stranger / "run.key")
    context: zmq.Context[Any] = zmq.Context()
    listening = Listening(Port("tcp://127.0.0.1:*", run.folder), context, 1 << 20)
    over = threading.Event()

    def admit() -> None:
        while not over.is_set():
            if listening.doors[1].poll(10):
                list(listening.admit())

    guard = threading.Thread(target=admit)
    guard.start()
    try:
        for keys, sentence in (
            (stranger, "the run does not know this simulator's key"),
            (None, "keys are needed there and none are given"),
        ):
            with pytest.raises(Refused, match=sentence):
                OwnSeat(listening.port.address, SPACES, keys=keys, patience=20)
    finally:
        over.set()
        guard.join()
        listening.close()
        context.destroy(linger=0)


def test_a_batch_shows_the_rows_that_begin() -> None:
    """And those alone; another number of them is refused."""
    spaces = Spaces({"x": Box((2,))}, Discrete(3))
    talk, seat = seat_of(spaces, rows=3)
    seat.begin(np.zeros((3, 2)))
    asks(talk, 1, np.arange(3, dtype="<i8").tobytes(), 3)
    talk.next_turn()
    assert seat.action.tolist() == [0, 1, 2]
    seat.tell(np.zeros((3, 2)), np.ones(3), np.array([True, False, True]), False)
    talk.next_turn()
    assert (seat.rows.tolist(), seat.seeds.tolist()) == ([0, 2], [7, 9])
    with pytest.raises(WrongShape, match=r"has the shape \(3, 2\); it must be \(2, 2\)"):
        seat.begin(np.zeros((3, 2)))
    seat.begin(np.ones((2, 2)))
    shown = np.frombuffer(talk.outbox[-1][3], "<f4").reshape(3, 2)
    assert shown[:, 0].tolist() == [1, 0, 1]


def test_the_local_family_and_the_offer_agree() -> None:
    """Spaces of every kind of world that comes with the package can be offered."""
    for name in (
        "reference:?agents=3",
        "gym:CartPole-v1",
        "counting:",
        "sleeper:?observation=4x4x1",
    ):
        world = make(parse(name))
        plain = wire.spaces_to_plain(world.spaces)
        assert wire.spaces_from_plain(plain) == world.spaces
        world.close()
