"""The reference client with one mistake in it, as somebody might make it in another language.

python -m tests.remote.mistaken_client MISTAKE ADDRESS ...
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import zmq

from hts.remote import line, wire
from hts.remote.talk import Seat, Talk
from hts.remote.wire import Format, Frames, Malformed, Stand
from tests.remote import reference_client


def _put(owner: object, **changed: Any) -> None:
    """The mistake takes the place of what was right."""
    for name, value in changed.items():
        setattr(owner, name, value)


class Stray(Exception):
    """What a client without a guard dies of."""


def no_finals() -> None:
    """Behind a truncation the last observations are missing."""
    whole = Format.stand

    def stand(self: Format, seat: int, turn: int, stand: Stand) -> Frames:
        return whole(self, seat, turn, stand)[: 3 + len(stand.observation)]

    _put(Format, stand=stand)


def ignores_again() -> None:
    """What was said once is said."""
    _put(Talk, _again=lambda *_: None)


def stale_seeds() -> None:
    """The next episode begins with the seed of the act before."""
    read, last = Format.read_act, dict[int, Any]()

    def read_act(self: Format, begins: list[Any], frames: Sequence[bytes]) -> tuple[Any, Any]:
        action, seeds = read(self, begins, frames)
        before = last.get(id(self), seeds)
        last[id(self)] = seeds
        return action, seeds if action is None else before

    _put(Format, read_act=read_act)


def takes_everything() -> None:
    """Late and double acts are answered too."""
    ask = Seat.ask

    def asked(self: Seat, turn: int, *rest: Any) -> None:
        self.turn = turn - 1
        self._before = None
        ask(self, turn, *rest)

    _put(Seat, ask=asked)


def holds_nothing() -> None:
    """Hello never says what is held."""
    _in_hello(lambda facts: facts | {"held": []})


def other_sessions() -> None:
    """Each hello has a session of its own."""
    _in_hello(lambda facts: facts | {"session": os.urandom(16)})


def one_field_more() -> None:
    """Hello says what nobody asked for."""
    _in_hello(lambda facts: facts | {"language": "python"})


def _in_hello(changed: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    pack = wire.pack

    def packed(kind: str, *values: Any) -> bytes:
        return pack(kind, changed(values[0])) if kind == "hello" else pack(kind, *values)

    _put(wire, pack=packed)


def silent() -> None:
    """Nobody hears that it waits."""
    _put(Talk, ping=lambda _: None)


def silent_without_seats() -> None:
    """Who has no seat waits for nothing."""
    ping = Talk.ping

    def pinged(self: Talk) -> None:
        if self.seats:
            ping(self)

    _put(Talk, ping=pinged)


def here_is_an_answer() -> None:
    """Any message of the run ends the silence."""
    hear = line.Line._hear

    def heard(self: line.Line, frames: Frames) -> None:
        hear(self, frames)
        self.answered = self.heard

    _put(line.Line, _hear=heard)


def takes_what_it_offers() -> None:
    """One seat and no more."""
    take = Talk._take

    def taken(self: Talk, *given: Any) -> None:
        if len(self.seats) < self.offer.seats:
            take(self, *given)

    _put(Talk, _take=taken)


def any_action() -> None:
    """The run knows which actions there are."""
    _put(wire, _are_choices=lambda *_: True)


def own_route() -> None:
    """Its connection has its name."""
    dealer = line._dealer

    def named(*given: Any) -> zmq.Socket[Any]:
        socket = dealer(*given)
        socket.routing_id = b"reference"
        return socket

    _put(line, _dealer=named)


def text_rows() -> None:
    """Rows are texts, as keys of an object are in some languages."""
    pack = wire.pack

    def packed(kind: str, *values: Any) -> bytes:
        if kind != "stand":
            return pack(kind, *values)
        *first, facts = values
        return bytes(msgpack.packb([kind, *first, {str(row): facts[row] for row in facts}]))

    _put(wire, pack=packed)


def wide_rewards() -> None:
    """Rewards have 64 bits."""
    whole = Format.stand

    def stand(self: Format, seat: int, turn: int, stand: Stand) -> Frames:
        frames = whole(self, seat, turn, stand)
        frames[1] = stand.reward.astype(np.float64).tobytes()
        return frames

    _put(Format, stand=stand)


def in_order() -> None:
    """A seat is served when the one before it has been."""
    served = [-1]

    def next_turn(self: Talk) -> Seat | None:
        numbers = sorted(self.seats)
        later = [number for number in numbers if number > served[0]] or numbers
        for seat in self.turns:
            if seat.number == later[0]:
                served[0] = seat.number
                self.turns.remove(seat)
                return seat.hand_out()
        return None

    _put(Talk, next_turn=next_turn)


def keeps_seats() -> None:
    """A run is like another."""

    def welcome(self: Talk, facts: dict[str, Any]) -> None:
        self._run = str(facts["run"])

    _put(Talk, _welcome=welcome)


def dies_of_it() -> None:
    """What is not as agreed ends it."""
    hear = Talk.hear

    def heard(self: Talk, frames: Frames) -> None:
        try:
            hear(self, frames)
        except Malformed as error:
            raise Stray(error) from None

    _put(Talk, hear=heard)


def stays_away() -> None:
    """Whoever is cut off is gone."""
    dealer = line._dealer

    def once(*given: Any) -> zmq.Socket[Any]:
        socket = dealer(*given)
        socket.reconnect_ivl = -1
        return socket

    _put(line, _dealer=once)


def says_it_twice() -> None:
    """Each stand is said once more, to be sure."""
    say = Seat._say

    def said(self: Seat, stand: Stand) -> None:
        say(self, stand)
        self._talk.outbox.append(self.said)

    _put(Seat, _say=said)


def refusal_is_well() -> None:
    """Being refused is a way to end as any other."""
    _put(reference_client, REFUSED=0)


def never_over() -> None:
    """Behind one run there may be another."""
    _put(Talk, _over=lambda _: None)


def forgets_return() -> None:
    """The return goes on over all episodes."""
    begin = Seat.begin

    def begun(self: Seat, observation: Any) -> None:
        total = self._total.copy()
        begin(self, observation)
        self._total[:] = total

    _put(Seat, begin=begun)


def no_keys() -> None:
    """Keys are for others."""
    dealer = line._dealer
    _put(line, _dealer=lambda context, _: dealer(context, None))


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
    sys.exit(reference_client.main())
