"""Whoever means harm, in a process of its own, at the port of a run: until its standard input ends.

    python -m tests.remote.storm ADDRESS SEED [FOLDER]

With a folder the port has keys: of ZeroMQ's connections most have a key that the run knows, and the
others none, or a wrong one, as `Locks` makes them.

Many connections of ZeroMQ say what `Words` draws; raw ones beside them speak broken ZMTP, or say
nothing, or too slowly, or never read. At the end it prints how much there was of each.
"""

from __future__ import annotations

import json
import random
import select
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq
import zmq.auth

from hts.remote import wire
from hts.remote.hello import Hello
from hts.remote.keys import Keys
from hts.remote.wire import Frames, Malformed
from hts_envs.reference import ReferenceWorld
from tests.remote.hostile import Words

SPACES = ReferenceWorld(1).spaces
CONNECTIONS = 8
OPEN = 120  # raw connections that are held open
STAYS = 400  # messages on one connection, before it is cut

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


CURVE = GREETING.replace(b"NULL\0", b"CURVE")


def curve_hello(draw: random.Random) -> bytes:
    """The first command of somebody with keys, of the right size; its box holds nothing."""
    return b"\x04\xc8\x05HELLO\x01\x00" + bytes(72) + draw.randbytes(32 + 8 + 80)


def ready(name: bytes = b"DEALER", route: bytes = b"") -> bytes:
    """The command that ends a handshake."""
    facts = ((b"Socket-Type", name), (b"Identity", route))
    body = b"\x05READY" + b"".join(
        bytes([len(key)]) + key + struct.pack(">I", len(value)) + value for key, value in facts
    )
    return b"\x06" + struct.pack(">Q", len(body)) + body


class Locks:
    """Keys in a folder: those of a run, of honest simulators, and of others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.run = folder / "run"
        self.honest = self.run / "honest"
        self._known = Keys(self.run / "known")
        self._strange = Keys(folder / "strange" / "one")

    def make(self) -> None:
        """All of them; what is strange has the run's public key, and nobody knows its own."""
        for each in (Keys(self.run), Keys(self._strange.folder.parent)):
            each.make_run()
        Keys(self.run).make_client("honest")
        Keys(self.run).make_client("known")
        Keys(self._strange.folder.parent).make_client("one")

    def arm(self, dealer: zmq.Socket[Any], draw: random.Random) -> None:
        """With a key that is known, or another one, or none."""
        what = draw.random()
        if what < 0.7:
            self._known.dial(dealer)
        elif what < 0.95:
            self._strange.dial(dealer)
            if what < 0.85:  # otherwise it takes somebody else for the run
                dealer.curve_serverkey = _public(self.run)


def _public(folder: Path) -> bytes:
    public, _ = zmq.auth.load_certificate(folder / "run.key")
    return public


class Storm:
    """A piece of harm after the other."""

    def __init__(self, address: str, seed: int, locks: Locks | None) -> None:
        self._locks = locks
        self.words = Words(seed, SPACES)
        self.counts: Counter[str] = Counter()
        host, port = address.removeprefix("tcp://").rsplit(":", 1)
        self._there = host, int(port)
        self._address = address
        self._random = random.Random(seed)
        self._context: zmq.Context[Any] = zmq.Context()
        self._dealers: list[zmq.Socket[Any]] = []
        self._taken: dict[zmq.Socket[Any], set[int]] = {}
        self._fitting: set[zmq.Socket[Any]] = set()  # who have said a hello that fits
        self._raw: list[socket.socket] = []
        self._slow: list[tuple[socket.socket, bytearray]] = []
        self._ways: list[Callable[[], bytes]] = [
            lambda: self._random.randbytes(500),
            lambda: b"",
            lambda: GREETING[:12],
            lambda: GREETING,
            lambda: CURVE + bytes(200),
            lambda: CURVE + curve_hello(self._random),
            lambda: CURVE + curve_hello(self._random)[:90],
            lambda: CURVE + curve_hello(self._random) * 20,
            lambda: CURVE + curve_hello(self._random).replace(b"HELLO", b"READY"),
            lambda: CURVE + ready(),
            lambda: GREETING + ready(b"PUB"),
            lambda: GREETING + ready(route=self._random.randbytes(5000)),
            lambda: GREETING + ready() + b"\x02" + struct.pack(">Q", 1 << 63),
            lambda: GREETING + ready() + b"\x02" + struct.pack(">Q", (1 << 64) - 1) + b"x" * 99,
            lambda: GREETING + ready() + b"\x04\x05\x04PING",
            lambda: GREETING + ready() + b"\x01\x01x" * 3000,  # one message that never ends
            lambda: GREETING + ready() + self._random.randbytes(300),
            lambda: GREETING + ready() + b"\x00\x06\x91\xa4ping" * 900,  # and never reads
            lambda: b"GET / HTTP/1.1\r\nHost: run\r\n\r\n",
        ]

    def go_on(self) -> None:
        """A hundred messages, and what goes with them."""
        for _ in range(100):
            self._say()
        for _ in range(3):
            self._knock()
        for link, rest in list(self._slow):
            self._drip(link, rest)

    def _say(self) -> None:
        dealer = self._dealer()
        self._read(dealer)
        seats = self._taken[dealer]
        frames = self._gives_back(dealer, seats.pop()) if seats else self._harms(dealer)
        if dealer.closed:
            return
        try:
            dealer.send_multipart(frames, zmq.DONTWAIT)
        except zmq.Again:
            self.counts["had to wait"] += 1
            if not dealer.poll(20, zmq.POLLOUT) and self._locks is not None:
                self._leave(dealer)  # nobody lets it in
            return
        self.counts["messages"] += 1
        if not self._random.randrange(STAYS if self._locks is None else STAYS // 4):
            self._leave(dealer)

    def _harms(self, dealer: zmq.Socket[Any]) -> Frames:
        """A message. Whoever may be given a seat by now, and not know it, says no step in it: a
        simulator is believed what it shows in its own seat."""
        frames = self.words.next()
        with suppress(Malformed):
            kind, values = wire.unpack(frames[0])
            if kind == "hello" and Hello.read(*values).misfit(SPACES, 1) is None:
                self._fitting.add(dealer)
            if kind == "stand" and dealer in self._fitting:
                return self.words.unfit(0, 0)
        return frames

    def _dealer(self) -> zmq.Socket[Any]:
        if len(self._dealers) < CONNECTIONS:
            dealer: zmq.Socket[Any] = self._context.socket(zmq.DEALER)
            dealer.linger = 100
            dealer.sndhwm = 50
            if self._locks is not None:
                self._locks.arm(dealer, self._random)
            dealer.connect(self._address)
            self.counts["connections"] += 1
            self._dealers.append(dealer)
            self._taken[dealer] = set()
        return self._random.choice(self._dealers)

    def _leave(self, dealer: zmq.Socket[Any]) -> None:
        self._dealers.remove(dealer)
        del self._taken[dealer]
        self._fitting.discard(dealer)
        dealer.close()

    def _read(self, dealer: zmq.Socket[Any]) -> None:
        """What seats it was given; nothing but that is of interest."""
        while dealer.poll(0):
            try:
                kind, values = wire.unpack(dealer.recv_multipart()[0])
            except Malformed:
                continue
            if kind == "take":
                self._taken[dealer].add(values[0])

    def _gives_back(self, dealer: zmq.Socket[Any], seat: int) -> Frames:
        """In any way but a step that could be believed."""
        self.counts["seats given back"] += 1
        ways: list[Frames] = [
            [wire.pack("bye")],
            [wire.pack("fail", seat, "\x1b[2J" * 900)],
            [self.words.fitting()],
            self.words.unfit(seat, self._random.randrange(99)),
        ]
        way = self._random.randrange(len(ways) + 1)
        if way == len(ways):
            self._leave(dealer)
            return []
        self._fitting.add(dealer)
        if way in (1, 3):
            self._taken[dealer].add(seat)  # until it is taken away, it is asked for again
        return ways[way]

    def _knock(self) -> None:
        try:
            link = socket.create_connection(self._there, timeout=2)
            link.setblocking(False)
            data = self._random.choice(self._ways)()
            self.counts["raw connections"] += 1
            if self._random.random() < 0.2:
                self._slow.append((link, bytearray(data[:300])))
            else:
                self._raw.append(link)
                link.send(data)
        except OSError:
            self.counts["raw connections cut"] += 1
        while len(self._raw) > OPEN:
            self._raw.pop(self._random.randrange(len(self._raw))).close()

    def _drip(self, link: socket.socket, rest: bytearray) -> None:
        """A byte now, another one later."""
        try:
            if rest and select.select([], [link], [], 0)[1]:
                link.send(rest[:1])
                del rest[:1]
        except OSError:
            rest.clear()
        if not rest or len(self._slow) > OPEN:
            self._slow.remove((link, rest))
            link.close()

    def close(self) -> None:
        for link in (*self._raw, *(link for link, _ in self._slow)):
            link.close()
        self._context.destroy(linger=0)


def main() -> None:
    """Until nobody wants any more."""
    address, seed, *folder = sys.argv[1:]
    storm = Storm(address, int(seed), Locks(Path(folder[0])) if folder else None)
    while not select.select([sys.stdin], [], [], 0)[0]:
        storm.go_on()
    storm.close()
    print(json.dumps(storm.counts))


if __name__ == "__main__":
    main()
