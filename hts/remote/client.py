"""For simulators: dial in to a run, and be trained on. Needs pyzmq, msgpack and numpy, no more.

    with OwnSeat("tcp://127.0.0.1:5555", spaces) as seat:
        action = None
        while not seat.over:
            if action is None:  # an episode begins, also in the middle of one where the run asks
                action = seat.reset(game.reset(seat.seed))
            else:
                action = seat.step(*game.step(action))

`OwnSeat` is for one simulator with a loop of its own. `Connection` is for many on one connection:
it hands out whoever's turn it is, and nobody waits for anybody else. `serve` is that loop for
simulators that only offer `reset` and `step`, and `serve_gym` for those of Gymnasium.
`EMBEDDING.md` shows each of them.

A connection belongs to one thread. When the run goes away, and comes back, everything goes on by
itself; the logger `hts.remote` says so.
"""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hts.remote.line import PING_EVERY, Line
from hts.remote.serving import Batch, Make, OfWorld, Served, Simulator
from hts.remote.shape import WrongShape
from hts.remote.spaces import check, spaces_of
from hts.remote.talk import Offer, Refused, Seat, Talk
from hts_envs.contract import Array, Box, Discrete, MultiDiscrete, Spaces

__all__ = [
    "Batch",
    "Box",
    "Connection",
    "Discrete",
    "MultiDiscrete",
    "Offer",
    "OwnSeat",
    "Refused",
    "Seat",
    "Simulator",
    "Spaces",
    "WrongShape",
    "serve",
    "serve_gym",
    "spaces_of",
]


_HELD_BACK = 0.01
"""Seconds; whoever takes longer over a turn gains nothing by saying several things at once."""


class Connection:
    """A simulator's connection to a run, or to one run after the other.

    `patience`: seconds without a word from any run, after which TimeoutError is raised.
    """

    def __init__(
        self,
        address: str,
        offer: Offer,
        *,
        keys: Path | str | None = None,
        patience: float | None = None,
    ) -> None:
        check(offer)
        self.talk = Talk(offer)
        self._patience = math.inf if patience is None else patience
        self._line = Line(self.talk, address, None if keys is None else Path(keys))
        self._thread: int | None = None
        self._pinged = self._said = -math.inf
        self.talk.hello()

    @property
    def over(self) -> bool:
        """The run needs no simulators any more."""
        return self.talk.over

    def __iter__(self) -> Iterator[Seat]:
        """Whoever's turn it is, one after the other, until the run is over."""
        while (seat := self.next_turn()) is not None:
            yield seat

    def next_turn(self, wait: float = math.inf) -> Seat | None:
        """Wait until a seat may move; None when the run is over, or no seat may so soon."""
        self._own()
        until = time.monotonic() + wait
        while True:
            self._say()
            seat = self.talk.next_turn()
            if seat is not None or self.over:
                return seat
            left = until - time.monotonic()
            if not self._hears(max(0.0, left)) and left <= 0.0:
                return None

    def _say(self) -> None:
        """Say what there is to say. Where seats move one after the other, that can wait until half
        of them have moved: a run that hears several of them at once answers them at once."""
        now = time.monotonic()
        if self.talk.turns and now - self._said < _HELD_BACK:
            self._line.hear()
            seats = self.talk.seats.values()
            waiting = len(self.talk.turns)
            if 2 * waiting > len(seats) and not any(seat.at_work for seat in seats):
                return
        self._said = now
        self._line.say()

    @property
    def silence(self) -> float:
        """Seconds in which nothing was heard of the run."""
        return time.monotonic() - self._line.heard

    def offers(self, seats: int) -> None:
        """Offer room for so many seats from now on."""
        self.talk.offers(seats)

    def _own(self) -> None:
        """What another thread would do at the same time, nobody knows."""
        if self._thread is None:
            self._thread = threading.get_ident()
        if self._thread != threading.get_ident():
            raise RuntimeError("a connection belongs to the thread that has used it first")

    def _hears(self, seconds: float) -> bool:
        """Hear what comes within this time; say that it is waited for where no answer does."""
        has_come = self._line.wait(min(seconds, PING_EVERY))
        if has_come and self._line.answered == self._line.heard:
            return True
        now = time.monotonic()
        if not has_come and self.silence > self._patience:
            raise TimeoutError(f"no run has said a word for {self._patience:g} s")
        if now - max(self._line.answered, self._pinged) >= PING_EVERY:
            self._pinged = now
            self._line.silent()
        return has_come

    def close(self) -> None:
        """Leave: the seats are free at once."""
        if not self._line.socket.closed:
            self.talk.bye()
            self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OwnSeat:
    """One seat, for a simulator that keeps its own loop: it asks, and waits for the answer."""

    def __init__(
        self,
        address: str,
        spaces: Spaces,
        *,
        rows: int | None = None,
        replayable: bool = True,
        keys: Path | str | None = None,
        patience: float | None = None,
    ) -> None:
        offer = Offer(spaces, rows=rows, replayable=replayable)
        self._connection = Connection(address, offer, keys=keys, patience=patience)
        self._seat: Seat | None = None
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    @property
    def over(self) -> bool:
        """The run needs no simulators any more."""
        return self._seat is None

    @property
    def replica(self) -> int:
        """Which replica of the run this is, or the first of several."""
        return self._held.replica

    @property
    def seed(self) -> int:
        """What the episode that begins now is to be seeded with."""
        return self._held.seed

    @property
    def build_seed(self) -> int:
        """For a simulator that draws something while it is built."""
        return self._held.build_seed

    @property
    def rows(self) -> Array:
        """Of several replicas, those that begin an episode now."""
        return self._held.rows

    @property
    def seeds(self) -> Array:
        """And the seeds that they begin it with, in the order of `rows`."""
        return self._held.seeds

    def reset(self, observation: Any) -> Any:
        """An episode has begun and shows this; the action, or None where it begins again."""
        self._held.begin(observation)
        return self._wait()

    def step(
        self,
        observation: Any,
        reward: Any,
        terminated: Any = False,
        truncated: Any = False,
        facts: Mapping[Any, Any] | None = None,
    ) -> Any:
        """What came of the action; the next one, or None where an episode begins."""
        self._held.tell(observation, reward, terminated, truncated, facts)
        return self._wait()

    @property
    def _held(self) -> Seat:
        if self._seat is None:
            raise RuntimeError("the run is over: there is nothing to ask it for")
        return self._seat

    def _wait(self) -> Any:
        self._seat = self._connection.next_turn()
        return None if self._seat is None else self._seat.action

    def close(self) -> None:
        """Leave."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Leave; the run is told what the simulator has raised."""
        if self._seat is not None and isinstance(error, Exception):
            self._seat.fail("".join(traceback.format_exception(error)))
        self.close()


def serve(connection: Connection, make: Make) -> None:
    """Step a simulator for each seat until the run is over; `make` builds one for its seat.

    What one of them raises is told here and to the run, which tries once more with a new one.
    """
    served = Served(make)
    try:
        for seat in connection:
            served.move(seat)
    finally:
        served.close()


def serve_gym(
    address: str,
    make: Callable[[], Any],
    *,
    seats: int = 1,
    keys: Path | str | None = None,
    patience: float | None = None,
) -> None:
    """`serve` for environments with Gymnasium's interface: `make` builds one of them."""
    from hts_envs.adapter import GymWorld

    first = [GymWorld(make(), "this simulator")]
    offer = Offer(first[0].spaces, seats, replayable=first[0].traits.reseeds)

    def built(_: Seat) -> OfWorld:
        return OfWorld(first.pop() if first else GymWorld(make(), "this simulator"))

    with Connection(address, offer, keys=keys, patience=patience) as connection:
        serve(connection, built)
