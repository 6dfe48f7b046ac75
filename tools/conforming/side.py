"""The run's side of the conversation, as a case scripts it: a port, and the client that dials in.

`Port` is where a run listens; it can be closed and opened again. `Client` is the client that is
tried, as the run sees it: what it says is read strictly, its pings are kept aside, and anything
else than what a case waits for is Wrong.

That a client says nothing is not waited for: it is asked `who`, and whatever it had to say before
stands before its `hello`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import zmq

from hts.errors import WrongUsage
from hts.remote import wire
from hts.remote.hello import Hello
from hts.remote.listening import Listening
from hts.remote.port import Port as Address
from hts.remote.wire import Malformed

from .command import Command, Process, Wishes
from .reference import Model, Order
from .said import Message, Wrong, hexed, read

PATIENCE = 10.0
"""Seconds for an answer that comes at once where nothing else keeps the machine busy."""
RUN = "conformance"
LOOPBACK = Address("tcp://127.0.0.1:*")
_LOOK = 0.05  # seconds between looks at whether the client still runs
_SETTLED = 0.2
_PINGS = 4  # in so many seconds without anything else, nothing else comes
_SECONDS_TO_REOPEN = 5.0
_LARGEST = 1 << 24


class Port:
    """Where a run listens."""

    def __init__(self, address: Address = LOOPBACK) -> None:
        self._address = address
        self.turned_away: list[str] = []  # a sentence for each whose key is not known
        self.open()

    @property
    def address(self) -> str:
        return self._address.address

    def open(self) -> None:
        """At the place where it was."""
        self._context: zmq.Context[Any] = zmq.Context()
        until = time.monotonic() + _SECONDS_TO_REOPEN
        while True:
            try:
                self._listening = Listening(self._address, self._context, _LARGEST)
                break
            except WrongUsage:  # a connection that is being closed still has it
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK)
        self._address = self._listening.port
        self._poller = zmq.Poller()
        for door in self._listening.doors:
            self._poller.register(door, zmq.POLLIN)

    def close(self) -> None:
        """Nobody is there, until it is opened again."""
        self._listening.close()
        self._context.destroy(linger=0)

    def hear(self, seconds: float) -> list[bytes] | None:
        """The next message; None where there is none for so long."""
        until = time.monotonic() + seconds
        while True:
            left = max(0.0, until - time.monotonic())
            ready = dict(self._poller.poll(int(1e3 * left)))
            self.turned_away += self._listening.admit()
            if self._listening.socket in ready:
                frames: list[bytes] = self._listening.socket.recv_multipart()
                return frames
            if not ready:
                return None

    def say(self, route: bytes, frames: Sequence[bytes]) -> bool:
        """False where no more can be said before the client reads."""
        try:
            self._listening.socket.send_multipart([route, *frames], zmq.DONTWAIT)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            raise Wrong(f"the client's connection is gone ({error.strerror})") from None
        return True


@dataclass(frozen=True)
class Ping:
    """When it was said, and what the client waits for an answer to."""

    at: float
    waiting: list[Any]


class Client:
    """The client that is tried."""

    def __init__(self, port: Port, process: Process, wishes: Wishes) -> None:
        self.port = port
        self.process = process
        self.pings: list[Ping] = []
        self.said = 0  # messages, pings among them
        self._wishes = wishes
        self.route = b""

    # --- saying -----------------------------------------------------------------------------------

    def say(self, kind: str, *values: Any) -> None:
        self.send([wire.pack(kind, *values)])

    def send(self, frames: Sequence[bytes]) -> None:
        """Frames as they are."""
        if not self.port.say(self.route, frames):
            raise Wrong("the client does not read what it is told")

    def ask(self, *orders: Order) -> None:
        """Several at once."""
        for order in orders:
            self.send(order.frames)

    def welcome(self, run: str = RUN) -> None:
        self.say("welcome", {"protocol": wire.PROTOCOL, "run": run})

    def take(self, *numbers: int) -> list[Model]:
        """Give it these seats."""
        models = [Model(number, self._wishes.rows, self._wishes.agents) for number in numbers]
        for model in models:
            seed = (1_000 + model.number).to_bytes(8, "little")
            self.say("take", model.number, model.number * model.rows, model.rows, seed)
        return models

    def enter(self) -> list[Model]:
        """The whole handshake, with as many seats as it offers."""
        self.hello()
        self.welcome()
        return self.take(*range(self._wishes.seats))

    def play(self, *orders: Order) -> None:
        """One after the other: ask, and check what comes."""
        for order in orders:
            self.ask(order)
            order.check(self.hear(f"stand of {order}"))

    def play_at_once(self, *orders: Order, pause: float = 0.0) -> None:
        """Ask for all of them, and hear the answers in any order, after a pause."""
        self.ask(*orders)
        time.sleep(pause)
        asked = {order.seat: order for order in orders}
        while asked:
            said = self.hear(f"stands of seats {', '.join(map(str, asked))}")
            order = asked.pop(said.values[0], None) if said.kind == "stand" else None
            if order is None:
                raise Wrong("one stand for each seat that was asked", came=said)
            order.check(said)

    # --- hearing ----------------------------------------------------------------------------------

    def hear(self, what: str, seconds: float = PATIENCE) -> Message:
        """The next message but pings; Wrong where none comes."""
        until, before = time.monotonic() + seconds, len(self.pings)
        while time.monotonic() < until and len(self.pings) - before < _PINGS:
            message = self.next(_LOOK)
            if message is not None and message.kind == "fail":
                raise Wrong("its simulator has failed", expected=what, came=message)
            if message is not None and message.kind != "ping":
                return message
            if message is None and self.process.code is not None:
                came = f"the client has ended with exit code {self.process.code}"
                raise Wrong("the client goes on", expected=what, came=came)
        pings = [ping.waiting for ping in self.pings[before:]]
        came = f"pings: {pings}" if pings else f"nothing in {seconds:g} s"
        raise Wrong("the client answers", expected=what, came=came)

    def next(self, seconds: float) -> Message | None:
        """The next message, whatever it is. Who speaks over a new connection is asked who it is."""
        frames = self.port.hear(seconds)
        if frames is None:
            return None
        self.said += 1
        route, *rest = frames
        message = read(route, rest)
        if message.kind == "ping":
            self._pinged(message)
        if message.kind == "hello":
            self.route = route
        elif route != self.route:
            self.port.say(route, [wire.pack("who")])
            return None
        return message

    def _pinged(self, message: Message) -> None:
        (waiting,) = message.values
        if not all(
            isinstance(each, list) and [type(one) for one in each] == [int, int] for each in waiting
        ):
            raise Wrong("a ping lists [seat, turn], whole numbers both", came=message)
        self.pings.append(Ping(time.monotonic(), waiting))

    def hello(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """Its hello, as far as any run would look at it."""
        return self._hello("the client says hello", "hello", seconds)

    def quiet(self, why: str) -> dict[str, Any]:
        """It has nothing to say to this; what its hello says then."""
        self.say("who")
        return self._hello(why, "nothing, and hello as an answer to who", PATIENCE)

    def _hello(self, sentence: str, expected: str, seconds: float) -> dict[str, Any]:
        message = self.hear(expected, seconds)
        if message.kind != "hello":
            raise Wrong(sentence, expected=expected, came=message)
        (facts,) = message.values
        try:
            Hello.read(facts)
        except Malformed as error:
            raise Wrong(f"its hello is dropped by every run: {error}", came=facts) from None
        return dict(facts)

    def settle(self) -> None:
        """Whoever has reconnected may say hello by itself, and again when asked: hear all that."""
        until = time.monotonic() + _SETTLED
        while time.monotonic() < until:
            message = self.next(_LOOK)
            if message is not None and message.kind not in ("hello", "ping"):
                raise Wrong("nothing but hello was asked for", came=message)


class Trial:
    """What a case has: the client's command, and what other cases have found out."""

    def __init__(self, command: Command) -> None:
        self.digests: dict[int, str] = {}  # of runs without a socket, by their number of agents
        self._command = command

    def start(self, address: str, wishes: Wishes) -> Process:
        return Process(self._command.typed(address, wishes))

    @contextmanager
    def client(self, wishes: Wishes = Wishes(), address: Address = LOOPBACK) -> Iterator[Client]:
        """One that dials in to a port of its own."""
        port = Port(address)
        try:
            with self.start(port.address, wishes) as process:
                yield Client(port, process, wishes)
        finally:
            port.close()


def shown(frames: Sequence[bytes]) -> str:
    """A message of ours, for a sentence about it."""
    return " | ".join(hexed(frame) for frame in frames)
