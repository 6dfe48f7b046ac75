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
simulators that only offer `reset(seed)` and `step(action)`. `EMBEDDING.md` shows each of them.

A connection belongs to one thread. When the run goes away, and comes back, everything goes on by
itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import zmq

from hts.remote.keys import Keys
from hts.remote.talk import Offer, Refused, Seat, Talk
from hts_envs.contract import Array, Box, Discrete, MultiDiscrete, Spaces

__all__ = [
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
    "serve",
]

PING_EVERY = 1.0
"""Seconds of silence before a simulator that waits says so."""

_HEARTBEAT = (
    2_000  # milliseconds between those of ZeroMQ itself, which also go out from a busy step
)
_LOST_AFTER = 10_000


def dealer(context: zmq.Context[Any], address: str, keys: Path | None) -> zmq.Socket[Any]:
    """A socket of a simulator, as every client has to set it up."""
    socket: zmq.Socket[Any] = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.reconnect_ivl = 50
    socket.reconnect_ivl_max = 1_000
    socket.heartbeat_ivl = _HEARTBEAT
    socket.heartbeat_timeout = _LOST_AFTER
    if keys is not None:
        Keys(keys).dial(socket)
    socket.connect(address)
    return socket


class Connection:
    """A simulator's connection to a run, or to one run after the other.

    `patience`: seconds without a word from any run, after which TimeoutError is raised.
    """

    def __init__(
        self,
        address: str,
        offer: Offer,
        *,
        keys: Path | None = None,
        patience: float | None = None,
    ) -> None:
        self.talk = Talk(offer)
        self._patience = patience
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = dealer(self._context, address, keys)
        self._heard = self._pinged = time.monotonic()
        self.talk.hello()

    @property
    def over(self) -> bool:
        """The run needs no simulators any more."""
        return self.talk.over

    def __iter__(self) -> Iterator[Seat]:
        """Whoever's turn it is, one after the other, until the run is over."""
        while (seat := self.next_turn()) is not None:
            yield seat

    def next_turn(self) -> Seat | None:
        """Wait until a seat may move; None when the run is over."""
        while True:
            seat = self.talk.next_turn()
            self.flush()
            if seat is not None:
                return seat
            if self.over:
                return None
            self._listen()

    def flush(self) -> None:
        """Send what was said meanwhile."""
        outbox = self.talk.outbox
        while outbox:
            try:
                self._socket.send_multipart(outbox[0], zmq.DONTWAIT, copy=False)
            except zmq.Again:  # nobody is there to hear it: it is asked for again
                outbox.clear()
                return
            outbox.popleft()

    def _listen(self) -> None:
        """Hear one message at the least, or say that one is waited for."""
        if not self._socket.poll(int(1e3 * PING_EVERY)):
            self._silent()
            return
        self._heard = time.monotonic()
        try:
            while not self.talk.turns:
                self.talk.hear(self._socket.recv_multipart(zmq.DONTWAIT))
        except zmq.Again:
            return

    def _silent(self) -> None:
        if self._patience is not None and time.monotonic() - self._heard > self._patience:
            raise TimeoutError(f"no run has said a word for {self._patience:g} s")
        self.talk.ping()

    def close(self) -> None:
        """Leave: the seats are free at once."""
        if self._socket.closed:
            return
        self.talk.bye()
        self.flush()
        self._context.destroy(linger=200)

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
        keys: Path | None = None,
        patience: float | None = None,
    ) -> None:
        offer = Offer(spaces, rows=rows, replayable=replayable)
        self._connection = Connection(address, offer, keys=keys, patience=patience)
        self._seat: Seat | None = None
        self._wait()

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
        """And the seeds that they begin it with."""
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

    def __exit__(self, *_: object) -> None:
        self.close()


class Simulator(Protocol):
    """What `serve` steps: observation; and observation, reward, terminated, truncated, (facts)."""

    def reset(self, seed: int) -> Any: ...

    def step(self, action: Any) -> tuple[Any, ...]: ...


def serve(connection: Connection, make: Callable[[Seat], Simulator]) -> None:
    """Step a simulator for each seat until the run is over; `make` builds one for its seat."""
    simulators: dict[Seat, Simulator] = {}
    for seat in connection:
        if seat not in simulators:
            simulators = {held: made for held, made in simulators.items() if not held.gone}
            simulators[seat] = make(seat)
        simulator = simulators[seat]
        if seat.action is None:
            seat.begin(simulator.reset(seat.seed))
        else:
            seat.tell(*simulator.step(seat.action))
