"""Cases: silence, lost connections, a run that does not read, and keys."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from hts.remote import wire
from hts.remote.keys import Keys
from hts.remote.port import Port as Address
from hts.scratch import scratch

from .case import case
from .command import Wishes
from .said import Wrong, same
from .side import LOOPBACK, Client, Port, Trial

_SILENT = 1.0  # seconds of silence behind which a client says so
_EARLIEST, _LATEST = 0.6, 2.5
_HERE_EVERY = 0.3
_AWAY = 1.5
_SECONDS_TO_COME_BACK = 6.0
_UNREAD = 2.5
_FLOOD = 10_000
_STUCK = 0.5  # seconds in which a client reads nothing, since it cannot speak
_LOOK = 0.002


@case("pings")
def pings(trial: Trial) -> None:
    """Says ping about a second after the last word, with each seat that waits and its turn."""
    with trial.client(Wishes(seats=2)) as client:
        near, far = client.enter()
        client.play(near.begin(0), near.step(), far.begin(5))
        _ping(client, [[0, 1], [1, 5]])
        client.say("here")
        client.take(4)
        client.say("drop", 1)
        _ping(client, [[0, 1], [4, -1]])
        client.play(near.step())
        _ping(client, [[0, 2], [4, -1]])


@case("pings-without-a-seat")
def pings_without_a_seat(trial: Trial) -> None:
    """Says ping without a seat too, and so hears who from a run that was started again."""
    with trial.client() as client:
        client.hello()
        client.welcome()
        _ping(client, [])
        client.port.close()
        client.port.open()
        client.hello(_SECONDS_TO_COME_BACK)
        client.welcome("started again")
        client.settle()
        (seat,) = client.take(0)
        client.play(seat.begin(0), seat.step())


@case("here")
def here(trial: Trial) -> None:
    """Says ping each second though the run says here more often than that."""
    with trial.client() as client:
        (seat,) = client.enter()
        client.play(seat.begin(0))
        since = time.monotonic()
        while not client.pings:
            client.say("here")
            message = client.next(_HERE_EVERY)
            if message is not None and message.kind != "ping":
                raise Wrong("here asks for nothing", expected="ping", came=message)
            if time.monotonic() - since > _LATEST:
                came = f"nothing in {_LATEST:g} s"
                raise Wrong("here is no answer", expected=f"ping {_SILENT:g} s later", came=came)
        client.play(seat.step())


def _ping(client: Client, waiting: list[list[int]]) -> None:
    """Nothing is said to it from now on, until it says so."""
    since, before = time.monotonic(), len(client.pings)
    while len(client.pings) == before:
        message = client.next(_LATEST)
        seconds = time.monotonic() - since
        if message is not None and message.kind != "ping":
            raise Wrong("the run is silent", expected="ping", came=message)
        if len(client.pings) == before and seconds > _LATEST:
            came = f"nothing in {seconds:.1f} s"
            raise Wrong("the run is silent", expected=f"ping {_SILENT:g} s later", came=came)
    if seconds < _EARLIEST:
        came = f"after {seconds:.2f} s"
        raise Wrong("a ping follows silence", expected=f"after about {_SILENT:g} s", came=came)
    same(sorted(client.pings[-1].waiting), waiting, "ping lists [seat, turn] of whoever waits")


@case("reconnect")
def reconnect(trial: Trial) -> None:
    """Comes back by itself when the run's port was closed and is open again, and goes on."""
    with trial.client(Wishes(seats=2)) as client:
        near, far = client.enter()
        client.play(near.begin(0), near.step(), far.begin(0))
        for away in (0.0, _AWAY):
            step = near.step()
            client.ask(step)
            last = client.hear(f"stand of {step}")
            client.port.close()
            time.sleep(away)
            client.port.open()
            facts = client.hello(_SECONDS_TO_COME_BACK)
            same(facts["run"], "conformance", "its hello says the run that it was in")
            same(sorted(facts["held"]), [[0, near.turn], [1, far.turn]], "held, when it is back")
            client.welcome()
            client.settle()
            client.take(0, 1)  # held already: nothing changes
            client.say("again", 0, near.turn)
            said = client.hear(f"stand of {step} once more")
            same(said.frames, last.frames, "again is answered behind a lost connection too")
            client.play(near.step(), far.step())


@case("run-is-late")
def run_is_late(trial: Trial) -> None:
    """Dials in where no run listens yet, and waits for one."""
    port = Port()
    port.close()
    with trial.start(port.address, Wishes()) as process:
        code = process.ended(_AWAY)
        if code is not None:
            raise Wrong("nobody listens yet", expected="it waits", came=f"exit code {code}")
        port.open()
        try:
            client = Client(port, process, Wishes())
            client.hello(_SECONDS_TO_COME_BACK)
            client.welcome()
            client.settle()
            (seat,) = client.take(0)
            client.play(seat.begin(0), seat.step())
        finally:
            port.close()


@case("unread")
def unread(trial: Trial) -> None:
    """Says each stand once, and a ping each second, to a run that does not read for a while."""
    with trial.client(Wishes(seats=8)) as client:
        orders = [seat.begin(0) for seat in client.enter()]
        said, since = client.said, time.monotonic()
        client.play_at_once(*orders, pause=_UNREAD)
        client.quiet("each seat has said where it stands, and waits")
        seconds = time.monotonic() - since
        most = len(orders) + 1 + int(seconds / _EARLIEST)
        if client.said - said > most:
            came = f"{client.said - said} messages in {seconds:.1f} s"
            raise Wrong("the run does not read", expected=f"at most {most} messages", came=came)


@case("flood")
def flood(trial: Trial) -> None:
    """Survives a run that asks again and again and reads none of it, and goes on behind that."""
    with trial.client(Wishes(rows=64)) as client:
        (seat,) = client.enter()
        order = seat.begin(0)
        client.play(order)
        asked, since = 0, time.monotonic()
        while asked < _FLOOD and time.monotonic() - since < _STUCK:
            if client.port.say(client.route, [wire.pack("again", 0, 0)]):
                asked, since = asked + 1, time.monotonic()
            else:
                time.sleep(_LOOK)
        while (message := client.next(_SILENT)) is not None and message.kind != "ping":
            order.check(message)
        if client.process.code is not None:
            came = f"exit code {client.process.code}"
            raise Wrong(f"{asked} messages are not read", expected="it goes on", came=came)
        client.play(seat.step(), seat.step())


@case("keys")
def keys(trial: Trial) -> None:
    """Speaks to a run with keys with its own (--keys FOLDER), and to no run without."""
    with scratch() as folder:
        run, own = _keys(folder, "simulator")
        with trial.client(Wishes(keys=own), _locked(run)) as client:
            (seat,) = client.enter()
            client.play(seat.begin(0), seat.step())
        with trial.client(Wishes(keys=own)) as client:
            _not_heard(client, "its keys are for another run than this, which has none")


@case("other-keys")
def other_keys(trial: Trial) -> None:
    """Shows its key, and is not heard where the run does not know it."""
    with scratch() as folder:
        run, known = _keys(folder / "a", "known")
        _, own = _keys(folder / "b", "stranger")
        shutil.copy(known / "run.key", own)
        with trial.client(Wishes(keys=own), _locked(run)) as client:
            _not_heard(client, "the run does not know its key")
            if not client.port.turned_away:
                raise Wrong("it shows its own key", expected="a CURVE handshake", came="none")


def _keys(folder: Path, name: str) -> tuple[Path, Path]:
    """The folder of a run, and that of a simulator that may dial in to it."""
    keys = Keys(folder)
    keys.make_run()
    return folder, keys.make_client(name)


def _locked(keys: Path) -> Address:
    return Address(LOOPBACK.address, keys)


def _not_heard(client: Client, why: str) -> None:
    message = client.next(_AWAY)
    if message is not None:
        raise Wrong(why, expected="not a word is heard", came=message)
    code = client.process.code
    if code not in (None, 3):
        raise Wrong(why, expected="it goes on trying, or exit code 3", came=f"exit code {code}")
