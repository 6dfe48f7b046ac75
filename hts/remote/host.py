"""A run's side of the conversation: one port, everybody who dials in, and who holds which seat.

It stands where an executor waits and where its blocks are stepped: a step is begun by telling the
seat's holder, and is over when that has been heard. Nobody is waited for alone: whoever speaks is
served. Who is gone loses its seats, after a moment in which it may come back, to whoever has room.

Nothing that is heard is believed: a peer speaks for its own seats only, what is not exactly as
agreed is dropped, and what was not asked for changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import zmq

from hts.determinism.keys import Purpose, key
from hts.errors import WorldFailed
from hts.memory.doorbell import Doorbell
from hts.remote import wire
from hts.remote.block import Holder, RemoteBlock
from hts.remote.hello import Hello
from hts.remote.listening import Listening
from hts.remote.port import Remote
from hts.remote.wire import Frames, Malformed
from hts_envs.contract import SEED_LIMIT, Spaces

_SECONDS_TO_COME_BACK = 2.0
_EVERY = 1.0  # seconds between looks at who is still there
_AT_ONCE = 64  # messages that are heard before the executor gets its turn
_PEERS = 4096


@dataclass
class Peer:
    """Somebody who has dialled in and said hello."""

    route: bytes
    hello: Hello
    seats: set[int] = field(default_factory=set)

    @property
    def room(self) -> int:
        return self.hello.seats - len(self.seats)

    def __str__(self) -> str:
        return f"{self.hello.name} {self.hello.session.hex()[:6]}"


class Host:
    """Everybody who has dialled in. For the executor: its doorbell, and how its blocks step."""

    def __init__(
        self,
        terms: Remote,
        spaces: Spaces,
        blocks: Sequence[RemoteBlock],
        bell: Doorbell,
        note: Callable[[str], None],
        *,
        last: int,
    ) -> None:
        self._terms = terms
        self._spaces = spaces
        self._blocks = blocks
        self._bell = bell
        self._note = note
        self._last = last  # the turn behind which nothing is asked any more
        self._rows = len(blocks[0].replicas)
        self._peers: dict[bytes, Peer] = {}
        self._kept: dict[int, tuple[bytes | None, float]] = {}  # for whom a seat is kept, how long
        self._gone: list[bytes] = []
        self._failed: set[tuple[int, int]] = set()
        self._said: dict[str, int] = {}
        self._context: zmq.Context[Any] = zmq.Context()
        self._frames = 3 + 2 * len(spaces.observation)
        self._poller = zmq.Poller()
        self._next_look = 0.0
        self._hears: dict[str, Callable[..., None]] = {
            "stand": self._stand,
            "ping": self._ping,
            "fail": self._fail,
            "bye": self._bye,
        }

    def open(self) -> None:
        """Let everybody dial in."""
        largest = self._blocks[0].format.largest
        self._listening = Listening(self._terms.port, self._context, largest)
        self._socket = self._listening.socket
        self._doors = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        for each in (self._bell.fileno(), self._socket, self._doors):
            self._poller.register(each, zmq.POLLIN)
        until = time.monotonic() + _SECONDS_TO_COME_BACK
        for block in self._blocks:
            if block.turn >= 0:  # whoever held it may come back
                self._kept[block.seat] = (None, until)

    # --- what the executor uses -------------------------------------------------------------------

    def start(self, place: int, step: Callable[[], None]) -> None:
        """Begin a block's step: its holder is told, if there is one."""
        step()

    def is_over(self, place: int) -> bool:
        """It has been heard what came of it."""
        return self._blocks[place].over

    def wait(self) -> None:
        """Until the executor may have something to do: it was rung for, or somebody has spoken."""
        timeout = max(0.0, self._next_look - time.monotonic())
        ready = dict(self._poller.poll(int(1e3 * timeout) + 1))
        if self._bell.fileno() in ready:
            self._bell.wait()
        if self._doors in ready:
            self._doors.recv_multipart()
            self._next_look = 0.0
        if self._socket in ready:
            self._listen()
        if time.monotonic() >= self._next_look:
            self._look()
        self._let_go()

    # --- hearing ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                route, *frames = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                self._hear(route, frames)
            except Malformed as error:
                peer = self._peers.get(route)
                if peer is not None:  # a stranger is not even worth a line
                    self._say(f"{peer}: a message was dropped: {error}")

    def _hear(self, route: bytes, frames: Frames) -> None:
        if not 1 <= len(frames) <= self._frames:
            raise Malformed("it has another number of frames than any that there is")
        kind, values = wire.unpack(frames[0])
        if kind == "hello":
            self._hello(route, *values)
            return
        peer = self._peers.get(route)
        if peer is None:
            self._send(route, [wire.pack("who")])
            return
        if kind == "stand":
            values.append(frames[1:])
        hear = self._hears.get(kind)
        if hear is None:
            raise Malformed(f"a simulator does not say {kind!r}")
        hear(peer, *values)

    def _hello(self, route: bytes, facts: dict[Any, Any]) -> None:
        hello = Hello.read(facts)
        why = hello.misfit(self._spaces, self._rows)
        if why is None and len(self._peers) >= _PEERS:
            why = "too many simulators have dialled in"
        if why is not None:
            self._say(f"{hello.name} is refused: {why}")
            self._send(route, [wire.pack("refused", why)])
            return
        known = [peer for peer in self._peers.values() if peer.hello.session == hello.session]
        for peer in known:  # it was here before, at the other end of another connection
            self._forget(peer)
        peer = self._peers[route] = Peer(route, hello)
        facts = {"protocol": wire.PROTOCOL, "run": self._terms.run}
        self._send(route, [wire.pack("welcome", facts)])
        if self._is_over:
            self._send(route, [wire.pack("over")])
            return
        held = hello.held if hello.run == self._terms.run else {}
        for seat, turn in held.items():
            if seat < len(self._blocks) and self._is_free(seat, hello.session) and peer.room:
                self._give(peer, seat, turn)
            else:
                self._send(route, [wire.pack("drop", seat)])
        self._fill()

    def _stand(self, peer: Peer, seat: int, turn: int, facts: Any, frames: Frames) -> None:
        if seat not in peer.seats:
            self._send(peer.route, [wire.pack("drop", seat)])
            return
        block = self._blocks[seat]
        block.stood(turn, block.format.read_stand(facts, frames))
        if block.turn == self._last and self._is_over:
            for each in self._peers.values():
                self._send(each.route, [wire.pack("over")])

    @property
    def _is_over(self) -> bool:
        return all(block.turn >= self._last for block in self._blocks)

    def _ping(self, peer: Peer, waiting: list[Any]) -> None:
        for each in waiting[: len(self._blocks)]:
            if not (isinstance(each, list) and [type(one) for one in each] == [int, int]):
                raise Malformed("it waits for seats and turns")
            seat, turn = each
            if seat in peer.seats:
                self._blocks[seat].waits(turn)
        self._send(peer.route, [wire.pack("here")])

    def _fail(self, peer: Peer, seat: int, why: str) -> None:
        """Its simulator cannot go on there. It, or another one, may try once more."""
        if seat not in peer.seats:
            return
        block, said = self._blocks[seat], wire.told(why)
        self._take_away(peer, seat)
        self._say(f"{_numbered(block.replicas)}: {peer} cannot go on: {_last_line(said)}")
        if (seat, block.turn) in self._failed:
            raise WorldFailed(block.replicas.start) from RuntimeError(said)
        self._failed.add((seat, block.turn))
        self._fill()

    def _bye(self, peer: Peer) -> None:
        seats = sorted(peer.seats)
        self._forget(peer)
        for seat in seats:
            self._kept.pop(seat, None)
        if seats and not self._is_over:
            self._say(f"{peer} has left; {self._waiting()}")
        self._fill()

    # --- seats ------------------------------------------------------------------------------------

    def _is_free(self, seat: int, session: bytes | None = None) -> bool:
        """Nobody holds it, and it is kept for nobody else."""
        if self._blocks[seat].holder is not None:
            return False
        kept, until = self._kept.get(seat, (None, 0.0))
        came_back = session is not None and kept in (None, session)
        return came_back or time.monotonic() >= until

    def _fill(self) -> None:
        """Give every free seat to somebody who has room."""
        with_room = [peer for peer in self._peers.values() if peer.room > 0]
        for block in self._blocks:
            if not with_room:
                return
            if self._is_free(block.seat):
                peer = max(with_room, key=lambda peer: peer.room)
                self._give(peer, block.seat, None)
                with_room = [peer for peer in with_room if peer.room > 0]

    def _give(self, peer: Peer, seat: int, claims: int | None) -> None:
        block = self._blocks[seat]
        self._kept.pop(seat, None)
        peer.seats.add(seat)
        seed = self._build_seed(block).to_bytes(8, "little")
        take = wire.pack("take", seat, block.replicas.start, self._rows, seed)
        self._send(peer.route, [take])
        send = partial(self._send, peer.route)
        block.joined(Holder(send, peer.hello.replayable, claims=claims))

    def _build_seed(self, block: RemoteBlock) -> int:
        """As a simulator in an executor is built with: its replica's own, or the run's."""
        if self._rows > 1:
            return block.seed
        return key(block.seed, Purpose.BUILD, block.replicas.start) % SEED_LIMIT

    def _take_away(self, peer: Peer, seat: int) -> None:
        peer.seats.discard(seat)
        self._blocks[seat].left()
        self._send(peer.route, [wire.pack("drop", seat)])

    def _forget(self, peer: Peer) -> None:
        """It is gone, or at the end of another connection."""
        del self._peers[peer.route]
        until = time.monotonic() + _SECONDS_TO_COME_BACK
        for seat in peer.seats:
            self._blocks[seat].left()
            self._kept[seat] = (peer.hello.session, until)

    # --- who is there -----------------------------------------------------------------------------

    def _look(self) -> None:
        """Whoever cannot be reached is gone; whose time to come back is over has lost its seats."""
        self._next_look = time.monotonic() + _EVERY
        for route in self._peers:
            self._send(route, [wire.pack("here")])
        self._let_go()
        self._fill()

    def _let_go(self) -> None:
        while self._gone:
            peer = self._peers.get(self._gone.pop())
            if peer is not None:
                self._forget(peer)
                if peer.seats and not self._is_over:
                    self._say(f"{peer} is gone; {self._waiting()}")

    def _waiting(self) -> str:
        """Whose replicas nobody holds."""
        free = [_numbered(block.replicas) for block in self._blocks if block.holder is None]
        return f"nobody holds {', '.join(free)}"

    def _send(self, route: bytes, frames: Frames) -> None:
        try:
            self._socket.send_multipart([route, *frames], zmq.DONTWAIT)
        except zmq.Again:
            return  # it does not read: what it misses is asked for again
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._gone.append(route)

    def _say(self, sentence: str) -> None:
        self._note(sentence)

    def close(self) -> None:
        """Let go of the port."""
        self._socket.disable_monitor()
        self._listening.close()
        self._context.destroy(linger=0)


def _numbered(replicas: range) -> str:
    if len(replicas) == 1:
        return f"replica {replicas.start}"
    return f"replicas {replicas.start} to {replicas.stop - 1}"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it does not say why"
