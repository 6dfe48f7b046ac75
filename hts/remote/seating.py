"""Who holds which seat of a run: what is heard of simulators, and what they are told. No socket.

Nobody is waited for alone: whoever speaks is served. Who is gone loses its seats, after a moment in
which it may come back, to whoever has room. A simulator that cannot go on somewhere may try there
once more; then the seat waits for another one.

Nothing that is heard is believed: a peer speaks for its own seats only, what is not exactly as
agreed is dropped, and what was not asked for changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from hts.determinism.keys import Purpose, key
from hts.remote import wire
from hts.remote.block import Holder, RemoteBlock
from hts.remote.hello import Hello
from hts.remote.notes import Notes, SeatStatus, named, numbered
from hts.remote.port import Remote
from hts.remote.wire import Frames, Malformed
from hts_envs.contract import SEED_LIMIT, Spaces

_SECONDS_TO_COME_BACK = 2.0
_SECONDS_TO_COME_BACK_TOGETHER = 10.0  # after the port was opened anew
_SPEAK_EVERY = 2.0  # whoever waits speaks first, behind a second in which it heard nothing
_PEERS = 4096
_TRIES = 2  # of one simulator to come to one turn


@dataclass
class Peer:
    """Somebody who has dialled in and said hello."""

    route: bytes
    hello: Hello
    seats: set[int] = field(default_factory=set)
    hangs: bool = False  # a step took it longer than it may, and nothing was heard since
    # By seat: its turn, and how often the simulator has failed on the way there, by the turn that
    # it was asked for: a replay that fails at random comes further with its next try.
    failed: dict[int, tuple[int, Counter[int | None]]] = field(default_factory=dict)

    @property
    def room(self) -> int:
        return 0 if self.hangs else self.hello.seats - len(self.seats)

    def may_take(self, block: RemoteBlock) -> bool:
        """It has room, and has not failed there again and again."""
        turn, times = self.failed.get(block.seat, (-1, Counter()))
        return self.room > 0 and (turn != block.turn or max(times.values(), default=0) < _TRIES)

    def __str__(self) -> str:
        return f"{wire.shown(self.hello.name)} {self.hello.session.hex()[:6]}"


class Seating:
    """Everybody who has dialled in, by the route to them, and the seats of a run."""

    def __init__(
        self,
        terms: Remote,
        spaces: Spaces,
        blocks: Sequence[RemoteBlock],
        send: Callable[[bytes, Frames], None],
        note: Callable[..., None],
        *,
        last: int,
        began: bool = False,
        most: int = _PEERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.peers: dict[bytes, Peer] = {}
        self.heard = self.dropped = 0  # messages, of everybody
        self._terms = terms
        self._spaces = spaces
        self._blocks = blocks
        self._send = send
        self._notes = Notes(note)
        self._status = SeatStatus(self._notes, blocks, began=began)
        self._most = min(most, _PEERS)  # simulators that can be connected at once
        self._last = last  # the turn behind which nothing is asked any more
        self._clock = clock
        self._rows = len(blocks[0].replicas)
        self._frames = 3 + 2 * len(spaces.observation)
        self._told: tuple[int, int] | None = None  # the seat and turn that somebody was told of
        self._next_word = 0.0
        self._strangers: set[bytes] = set()  # who were asked who they are, since the last look
        self._kept: dict[int, tuple[bytes | None, float]] = {}  # for whom a seat is kept, how long
        if began:  # whoever held a seat before may come back
            until = clock() + _SECONDS_TO_COME_BACK
            self._kept = {block.seat: (None, until) for block in blocks}
        self._hears: dict[str, Callable[..., None]] = {
            "stand": self._stand,
            "ping": self._ping,
            "fail": self._fail,
            "bye": self._bye,
        }

    def say(self, sentence: str) -> None:
        """Say something else about who dials in."""
        self._notes.say(sentence)

    def hear(self, route: bytes, frames: Frames) -> None:
        """One message of somebody."""
        self.heard += 1
        try:
            self._hear(route, frames)
        except Malformed as error:
            self.dropped += 1
            peer = self.peers.get(route)
            if peer is not None:  # a stranger is not even worth a line
                self._notes.say(f"{peer}: a message was dropped: {error}")

    def _hear(self, route: bytes, frames: Frames) -> None:
        if not 1 <= len(frames) <= self._frames:
            raise Malformed("it has another number of frames than any that there is")
        kind, values = wire.unpack(frames[0])
        if kind == "hello":
            self._hello(route, *values)
            return
        peer = self.peers.get(route)
        if peer is None:
            if route not in self._strangers:  # it may have said much before it is heard
                self._strangers.add(route)
                self._send(route, [wire.pack("who")])
            return
        peer.hangs = False
        if kind == "stand":
            values.append(frames[1:])
        hear = self._hears.get(kind)
        if hear is None:
            raise Malformed(f"a simulator does not say {kind!r}")
        hear(peer, *values)

    def _hello(self, route: bytes, facts: dict[Any, Any]) -> None:
        hello = Hello.read(facts)
        why = hello.misfit(self._spaces, self._rows)
        if why is None and len(self.peers) >= self._most:
            why = "too many simulators have dialled in"
        if why is not None:
            self._notes.say(f"{wire.shown(hello.name)} is refused: {why}")
            self._send(route, [wire.pack("refused", why)])
            return
        held = hello.held if hello.run == self._terms.run else {}
        peer = Peer(route, replace(hello, spaces=self._spaces, held={}))  # who it is, and no more
        seats: set[int] = set()  # that it has held until now
        for before in list(self.peers.values()):
            if before.hello.session == hello.session:  # it was at another connection's end
                peer.failed |= before.failed
                seats = before.seats
                self._forget(before)
            elif before.route == route:  # somebody else was at this one's
                self._forget(before)
        self.peers[route] = peer
        facts = {"protocol": wire.PROTOCOL, "run": self._terms.run}
        self._send(route, [wire.pack("welcome", facts)])
        if self._is_over:
            self._send(route, [wire.pack("over")])
            return
        for seat, (kept, _) in list(self._kept.items()):
            if kept == hello.session and seat not in held:  # it has forgotten that one itself
                del self._kept[seat]
        for seat, turn in islice(held.items(), len(self._blocks)):
            if seat < len(self._blocks) and self._is_free(seat, hello.session) and peer.room:
                self._give(peer, seat, turn)
            else:
                self._send(route, [wire.pack("drop", seat)])
        self._fill()
        if peer.seats and not seats:  # whoever shares them with others offers room for one by one
            self._notes.say(f"{peer} has dialled in and holds {self._replicas(peer.seats)}")

    def _stand(self, peer: Peer, seat: int, turn: int, facts: Any, frames: Frames) -> None:
        if seat not in peer.seats:
            self._send(peer.route, [wire.pack("drop", seat)])
            return
        block = self._blocks[seat]
        try:
            block.stood(turn, block.format.read_stand(facts, frames))
        except Malformed as error:  # it would be the same again
            self._give_up(peer, block, f"what it shows is not as agreed: {error}")
        if block.turn == self._last and self._is_over:
            if self.dropped:
                said = f"of {self.heard:,} messages {self.dropped:,} were dropped as malformed"
                self._notes.last(said)
            for each in self.peers.values():
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
        if seat in peer.seats:
            lines = why.strip().splitlines()
            told = wire.shown(lines[-1]) if lines else "it does not say why"
            self._give_up(peer, self._blocks[seat], told)

    def _bye(self, peer: Peer) -> None:
        seats = sorted(peer.seats)
        self._forget(peer)
        for seat in seats:
            self._kept.pop(seat, None)
        if seats and not self._is_over:
            self._notes.say(f"{peer} has left {self._replicas(seats)}")
        self._hand_over()

    # --- seats ------------------------------------------------------------------------------------

    def _is_free(self, seat: int, session: bytes | None = None) -> bool:
        """Nobody holds it, and it is kept for nobody else."""
        if self._blocks[seat].holder is not None:
            return False
        kept, until = self._kept.get(seat, (None, 0.0))
        came_back = session is not None and kept in (None, session)
        return came_back or self._clock() >= until

    def _fill(self) -> list[tuple[Peer, int]]:
        """Give every free seat to a simulator that has room; return which, and to which one."""
        given: list[tuple[Peer, int]] = []
        if not any(peer.room for peer in self.peers.values()):
            return given
        for block in self._blocks:
            if self._is_free(block.seat):
                able = [peer for peer in self.peers.values() if peer.may_take(block)]
                if able:
                    peer = min(able, key=lambda peer: len(peer.seats))
                    self._give(peer, block.seat, None)
                    given.append((peer, block.seat))
        return given

    def _hand_over(self) -> None:
        """Give free seats to simulators that have waited for one, and say so."""
        given = self._fill()
        for peer in {peer.route: peer for peer, _ in given}.values():
            seats = [seat for holder, seat in given if holder is peer]
            self._notes.say(f"{peer} takes over {self._replicas(seats)}")

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

    def _give_up(self, peer: Peer, block: RemoteBlock, why: str) -> None:
        """It cannot go on there. It may try once more, like everybody else."""
        turn, times = peer.failed.get(block.seat, (-1, Counter()))
        asked = None if block.holder is None else block.holder.asked
        before = times if turn == block.turn else Counter()
        peer.failed[block.seat] = block.turn, before + Counter([asked])
        peer.seats.discard(block.seat)
        block.left()
        self._send(peer.route, [wire.pack("drop", block.seat)])
        self._notes.say(f"{numbered(block.replicas)}: {peer} cannot go on: {why}")
        self._hand_over()

    def _forget(self, peer: Peer) -> None:
        """It is gone, or at the end of another connection."""
        del self.peers[peer.route]
        until = self._clock() + _SECONDS_TO_COME_BACK
        idle = any(other.room > 0 and not other.seats for other in self.peers.values())
        for seat in peer.seats:
            self._blocks[seat].left()
            if not (idle and peer.hello.replayable):  # otherwise nobody is waited for
                self._kept[seat] = (peer.hello.session, until)

    def reopened(self) -> None:
        """Forget every connection, since the port was opened anew, and keep all seats for a while.

        That is longer than for a single one: here the run has cut the connections itself.
        """
        until = self._clock() + _SECONDS_TO_COME_BACK_TOGETHER
        for peer in self.peers.values():
            for seat in peer.seats:
                self._blocks[seat].left()
                self._kept[seat] = (peer.hello.session, until)
        self.peers.clear()
        self._notes.say(
            "the port is opened anew: too many connections were open that were no simulator's"
        )

    def look(self) -> None:
        """Now and then: whose time to come back is over, and who takes too long?"""
        self._strangers.clear()
        if self._clock() >= self._next_word:
            self._seek()
        self._hand_over()
        if all(self._clock() >= until for _, until in self._kept.values()):
            self._status.tell()  # otherwise a simulator may come back in a moment
        waited_for = [block for block in self._blocks if not block.over]
        for block in waited_for:
            self._limit(block)
        if waited_for and self._terms.patience:
            self._watch(min(waited_for, key=lambda block: block.since))

    def was_cut(self) -> None:
        """Somebody's connection was: the next look finds out whose."""
        self._next_word = 0.0

    def _seek(self) -> None:
        """Speak to everybody: whoever cannot be reached is gone."""
        self._next_word = self._clock() + _SPEAK_EVERY
        for route in list(self.peers):
            self._send(route, [wire.pack("here")])

    def _limit(self, block: RemoteBlock) -> None:
        """Free a seat whose step takes longer than it may."""
        limit, holder = self._terms.step_limit, block.holder
        if not limit or holder is None or holder.asked is None:
            return
        if self._clock() - holder.since > limit:
            peer = self._holding(block)
            peer.hangs = True
            self._give_up(peer, block, f"a step takes it more than {limit:g} s")

    def _watch(self, block: RemoteBlock) -> None:
        """Say once who the run waits for, where that takes longer than there is patience for."""
        seconds, place = self._clock() - block.since, (block.seat, block.turn)
        if seconds > self._terms.patience and place != self._told:
            self._told = place
            replicas = numbered(block.replicas)
            self._notes.say(f"{replicas}: no step for {seconds:.0f} s; {self._culprit(block)}")

    def _culprit(self, block: RemoteBlock) -> str:
        """Return what a block waits for, and what can be done about it."""
        if block.holder is None:
            return f"no simulator holds the seat; they dial in at {self._terms.port.address}"
        sentence = f"{self._holding(block)} holds the seat and does not answer"
        if any(peer.may_take(block) for peer in self.peers.values()):
            sentence += "; another simulator is free, but a connected one keeps its seats"
        if not self._terms.step_limit:
            sentence += " (--set step_limit=SECONDS takes a seat away after a step that long)"
        return sentence

    def _holding(self, block: RemoteBlock) -> Peer:
        return next(peer for peer in self.peers.values() if block.seat in peer.seats)

    def lost(self, route: bytes) -> None:
        """Nobody is there any more."""
        peer = self.peers.get(route)
        if peer is not None:
            self._forget(peer)
            if peer.seats and not self._is_over:
                self._notes.say(f"{peer} is gone and has left {self._replicas(peer.seats)}")
            self._hand_over()

    def _replicas(self, seats: Iterable[int]) -> str:
        return named(self._blocks[seat] for seat in seats)
