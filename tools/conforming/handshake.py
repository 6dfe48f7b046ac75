"""Cases: how a client comes in, and how it leaves."""

from __future__ import annotations

from typing import Any

from hts.remote import wire

from .case import case
from .command import Wishes
from .reference import spaces
from .said import Wrong, same
from .side import RUN, Client, Trial

_SECONDS_TO_ASK = 4.0
_LONG_NAME = "another" + "-" * 57
FIELDS = (
    "protocol",
    "name",
    "session",
    "run",
    "seats",
    "rows",
    "replayable",
    "spaces",
    "held",
)


@case("hello")
def hello(trial: Trial) -> None:
    """Says hello first, with exactly the nine fields; its session is drawn in each process."""
    sessions = []
    for _ in range(2):
        with trial.client() as client:
            message = client.hear("hello")
            if message.kind != "hello":
                raise Wrong("the first word of a client is hello", expected="hello", came=message)
            (facts,) = message.values
            _check(facts, Wishes())
            _check_route(message.route)
            sessions.append(facts["session"])
    if sessions[0] == sessions[1]:
        raise Wrong("two processes have two sessions", came=sessions[0].hex(" "))


def _check(facts: dict[str, Any], wishes: Wishes) -> None:
    same(sorted(map(str, facts)), sorted(FIELDS), "hello has these nine fields and no others")
    same(facts["protocol"], wire.PROTOCOL, "protocol")
    if not wire.is_name(facts["name"]):
        raise Wrong("name is a text of 1 to 64 characters", came=repr(facts["name"]))
    session = facts["session"]
    if not isinstance(session, bytes) or len(session) != 16:
        raise Wrong("session is a msgpack binary of 16 bytes", came=repr(session))
    same(facts["run"], "", "run is empty before the first welcome")
    same(facts["held"], [], "held is empty before the first take")
    same(facts["seats"], wishes.seats, "seats is what --seats says")
    same(facts["rows"], wishes.rows, "rows is what --rows says")
    same(facts["replayable"], wishes.replayable, "replayable is false with --not-replayable only")
    plain = wire.spaces_to_plain(spaces(wishes.agents))
    same(facts["spaces"], plain, "spaces are those of the reference simulator, fields in order")


def _check_route(route: bytes) -> None:
    """ZeroMQ's own routing ids are a zero byte and a number of 32 bits."""
    if len(route) != 5 or route[0]:
        sentence = "its socket leaves the routing id to ZeroMQ"
        raise Wrong(sentence, expected="00 and four bytes", came=route.hex(" "))


@case("offer")
def offer(trial: Trial) -> None:
    """Says in hello what it is told to offer: --seats 3 --rows 2 --agents 2 --not-replayable."""
    wishes = Wishes(seats=3, rows=2, agents=2, replayable=False)
    with trial.client(wishes) as client:
        _check(client.hello(), wishes)


@case("who")
def who(trial: Trial) -> None:
    """Says hello again at every who: the same session, the run, and held with the last turns."""
    with trial.client(Wishes(seats=2)) as client:
        first = client.hello()
        same(client.quiet("before welcome"), first, "hello is the same as before")
        client.welcome()
        _told(client, first, run=RUN, held=[])
        near, far = client.take(3, 5)
        _told(client, first, run=RUN, held=[[3, -1], [5, -1]])
        client.play(far.begin(0), far.step(), near.begin(7))
        _told(client, first, run=RUN, held=[[3, 7], [5, 1]])


def _told(client: Client, first: dict[str, Any], *, run: str, held: list[list[int]]) -> None:
    """Its hello now: as the first one was, but for these."""
    facts = client.quiet("a who is answered with hello alone")
    same(sorted(facts["held"]), held, "held lists [seat, turn said last] (-1: none)")
    same({**facts, "held": []}, {**first, "run": run}, "hello says the same, but for run and held")


@case("hello-lost")
def hello_lost(trial: Trial) -> None:
    """Says ping after a second in which its hello is not answered, and hello again at who."""
    with trial.client() as client:
        first = client.hello()
        message = client.next(_SECONDS_TO_ASK)
        if message is None or message.kind != "ping":
            came = message or f"nothing in {_SECONDS_TO_ASK:g} s"
            raise Wrong("nobody answers hello", expected="ping within a second", came=came)
        same(message.values, [[]], "it holds no seats, so its ping lists none")
        same(client.quiet("before welcome"), first, "hello is the same as before")
        client.welcome()
        (seat,) = client.take(0)
        client.play(seat.begin(0))


@case("other-run")
def other_run(trial: Trial) -> None:
    """Forgets its seats when welcome names another run (a name may have 64 characters), and keeps
    them when it names the same."""
    with trial.client() as client:
        (seat,) = client.enter()
        client.play(seat.begin(0), seat.step())
        client.welcome()
        facts = client.quiet("a welcome of the same run")
        same(facts["held"], [[0, 1]], "a welcome of the same run changes nothing")
        client.play(seat.step())
        client.welcome(_LONG_NAME)
        facts = client.quiet("a welcome of another run")
        same([facts["run"], facts["held"]], [_LONG_NAME, []], "its seats belonged to another run")
        client.ask(seat.step())
        client.quiet("an act of a seat that it lost is ignored")
        (seat,) = client.take(0)
        client.play(seat.begin(0), seat.step())


@case("refused")
def refused(trial: Trial) -> None:
    """Shows the sentence of refused on stderr, as it is, and ends with exit code 3."""
    _refuse(trial, "its action is Discrete(4); this run’s is Discrete(3), naïvely")


@case("other-protocol")
def other_protocol(trial: Trial) -> None:
    """Drops what only another protocol says, and shows why that run refuses it."""
    _refuse(trial, "it speaks protocol 1, this run speaks 2", [wire.pack("greeting", 2, {})])


def _refuse(trial: Trial, why: str, *before: list[bytes]) -> None:
    with trial.client() as client:
        client.hello()
        for frames in before:
            client.send(frames)
        client.say("refused", why)
        client.process.ends(3, "it is refused")
        if why not in client.process.errors:
            came = repr(client.process.errors)
            raise Wrong("people read on stderr why it is refused", expected=repr(why), came=came)


@case("over")
def over(trial: Trial) -> None:
    """Ends with exit code 0 when the run is over: at once, and in the middle of an episode."""
    for turns in (0, 3):
        with trial.client(Wishes(seats=2)) as client:
            if turns:
                first, second = client.enter()
                client.play(first.begin(0), second.begin(0), first.step())
            else:
                client.hello()
                client.welcome()
            client.say("over")
            client.process.ends(0, "the run is over")
            while (message := client.next(0.0)) is not None:
                if message.kind not in ("bye", "ping"):
                    raise Wrong("behind over", expected="nothing, or bye", came=message)
