"""For simulators whose steps are awaited: many seats on one connection, nobody waits for anybody.

    async with AsyncConnection(address, Offer(spaces, seats=16)) as connection:
        await serve(connection, make)

or, with a loop of one's own, each seat that may move as a task of its own:

    async for seat in connection:
        group.create_task(move(seat))

The socket's descriptor wakes the loop, as zmq.asyncio has it too; but what a seat says is sent at
once, wherever it is said, and waits for nobody. ZeroMQ wakes only once for all that has come, so
everything is heard whenever anything is sent or heard.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from hts.remote.line import LOG, PING_EVERY, Line
from hts.remote.serving import Make, results, said
from hts.remote.spaces import check
from hts.remote.talk import Offer, Seat, Talk


class AsyncConnection:
    """A simulator's connection to a run, or to one run after the other, in an event loop."""

    def __init__(self, address: str, offer: Offer, *, keys: Path | str | None = None) -> None:
        check(offer)
        self.talk = Talk(offer)
        self.talk.outbox = _Told(self._stir_soon)
        self.talk.turns = _Told(self._stir_soon)
        self._address = address
        self._keys = None if keys is None else Path(keys)
        self._line: Line | None = None
        self._failed: Exception | None = None
        self._stirred = asyncio.Event()
        self._soon = False

    @property
    def over(self) -> bool:
        """The run needs no simulators any more."""
        return self.talk.over

    async def __aenter__(self) -> Self:
        self._line = Line(self.talk, self._address, self._keys)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._line.descriptor, self._stir)
        self._tick = self._loop.call_later(PING_EVERY, self._look)
        self.talk.hello()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave: the seats are free at once."""
        line, self._line = self._line, None
        assert line is not None, "whoever leaves has entered"
        self._tick.cancel()
        self._loop.remove_reader(line.descriptor)
        self.talk.bye()
        line.close()

    async def __aiter__(self) -> AsyncIterator[Seat]:
        """Whoever's turn it is, one after the other, until the run is over."""
        while (seat := await self.next_turn()) is not None:
            yield seat

    async def next_turn(self) -> Seat | None:
        """Wait until a seat may move; None when the run is over."""
        while True:
            if self._failed is not None:
                raise self._failed
            seat = self.talk.next_turn()
            if seat is not None or self.over:
                return seat
            self._stirred.clear()
            await self._stirred.wait()

    def _stir_soon(self) -> None:
        """Something was said, or may be done: look at it when this step of the loop is over."""
        if self._line is not None and not self._soon:
            self._soon = True
            self._loop.call_soon(self._stir)

    def _stir(self) -> None:
        """Send and hear whatever there is; hearing comes last, or its next sign would not come."""
        line = self._line
        if line is None:
            return
        self._soon = True  # what is said and heard here is looked at here
        try:
            more = True
            while more or self.talk.outbox:
                line.say()
                more = line.hear()
        except Exception as error:
            self._failed = error
        self._soon = False
        self._stirred.set()

    def _look(self) -> None:
        """Now and then: nothing may have come for a while."""
        assert self._line is not None, "it is looked at between entering and leaving"
        self._tick = self._loop.call_later(PING_EVERY, self._look)
        if time.monotonic() - self._line.answered >= PING_EVERY:
            try:
                self._line.silent()
            except Exception as error:
                self._failed = error
        self._stir()


class _Told(deque[Any]):
    """A queue that tells when something is put into it."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell = tell

    def append(self, value: Any) -> None:
        super().append(value)
        self._tell()


async def serve(connection: AsyncConnection, make: Make) -> None:
    """Step a simulator for each seat until the run is over, each at its own pace.

    As `serve` of `hts.remote.client`, but that `reset` and `step` are awaited. What one of them
    raises is told here and to the run, which tries once more with a new one.
    """
    simulators: dict[Seat, Any] = {}
    tasks: set[asyncio.Task[None]] = set()
    try:
        async for seat in connection:
            task = asyncio.create_task(_move(seat, simulators, make))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for simulator in simulators.values():
            await _close(simulator)


async def _move(
    seat: Seat,
    simulators: dict[Seat, Any],
    make: Make,
) -> None:
    """Take the seat's turn, whatever becomes of its simulator."""
    try:
        if seat not in simulators:
            simulators[seat] = make(seat)
        simulator = simulators[seat]
        if seat.action is not None:
            seat.tell(*results(await simulator.step(seat.action)))
        elif seat.single:
            seat.begin(await simulator.reset(seat.seed))
        else:
            seat.begin(await simulator.reset(seat.rows, seat.seeds))
    except Exception as error:
        LOG.exception("%s: the simulator raised %s", seat, said(error))
        seat.fail(traceback.format_exc())
    for each in list(simulators):
        if each.gone and (each is seat or not each.at_work):
            await _close(simulators.pop(each))


async def _close(simulator: Any) -> None:
    """Give back what it holds, if there is a way to."""
    closed = getattr(simulator, "close", lambda: None)()
    if isinstance(closed, Awaitable):
        await closed
