"""One process of `hts-executor`: worlds of our own, stepped for a run elsewhere.

Several such processes share a run's seats though none knows how many there are: each offers one
seat more than it holds, again and again, until nobody is given any more. Whoever starts at the same
time ends up with the same number, and somebody who is gone leaves seats to all the others.
"""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass

from hts import signals
from hts.determinism import numerics, settings
from hts.errors import WrongUsage
from hts.remote.client import Connection
from hts.remote.line import LOG
from hts.remote.serving import Batch, OfBatchedWorld, OfWorld, OfWorlds, Served
from hts.remote.talk import Offer, Refused, Seat
from hts.runtime.crew import make_worlds
from hts.runtime.process import Pipe
from hts_envs.contract import BatchedWorld, Place
from hts_envs.errors import BadName, BadOption, BrokenSimulator, MissingPackages
from hts_envs.registry import Spec, make, parse

_LOOK_EVERY = 0.1  # seconds; offers grow at this pace
_BETWEEN_RUNS = 0.5
_GONE = 3.0  # seconds without a word of a run that says one every two


@dataclass(frozen=True)
class Service:
    """What is served, and to whom."""

    address: str
    env: str
    rows: int | None = None  # replicas of a seat, where they are stepped together
    seats: int | None = None  # None: as many as there are, shared with everybody else
    keys: str | None = None
    replayable: bool = True
    stays: bool = False  # behind the end of a run it waits for the next one


def run(pipe: Pipe, service: Service) -> None:
    """The whole life of the process."""
    signals.listen()
    LOG.propagate = False
    LOG.setLevel(logging.INFO)
    LOG.addHandler(_Passed(pipe))
    try:
        numerics.set_environment()
        offer, spec = _prepared(service)
        pipe.send(ready=True)
        pipe.receive()  # so that all of them dial in together
        while True:
            _Serving(pipe, service, spec, offer).run()
            pipe.send(over=True)
            if not service.stays:
                return
            time.sleep(_BETWEEN_RUNS)
    except KeyboardInterrupt:
        return
    except (Refused, WrongUsage, BadName, BadOption, MissingPackages) as error:
        pipe.send(refused=str(error))
    except BrokenSimulator as error:
        pipe.send(broken=str(error))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending as it is


def _prepared(service: Service) -> tuple[Offer, Spec]:
    """What is offered follows from one world, which is built to be looked at."""
    spec = parse(service.env)
    rows = service.rows or 1
    world = make(spec, Place(0, rows if spec.batched else 1))
    replayable = service.replayable and world.traits.reseeds
    together = rows if rows > 1 or spec.batched else None
    offer = Offer(world.spaces, service.seats or 1, together, replayable, "hts-executor")
    world.close()
    numerics.settle()
    return offer, spec


class _Passed(logging.Handler):
    """What the connection has to say is said by the parent: a line, without tracebacks."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self._pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        self._pipe.send(note=record.getMessage())


class _Serving:
    """One run, from its first word to its last."""

    def __init__(self, pipe: Pipe, service: Service, spec: Spec, offer: Offer) -> None:
        self._pipe = pipe
        self._service = service
        self._spec = spec
        self._offer = offer
        self._offered = offer.seats
        self._held: list[int] = []
        self._served = Served(self._built)
        self._next_look = 0.0
        self._named: set[str] = set()  # settings that simulators changed, and that were reported

    def run(self) -> None:
        """Until it is over. Whoever asks this process to end meanwhile is heard between two turns,
        or in one; a connection is made and left as a whole."""
        service, connection = self._service, None
        try:
            with signals.undisturbed():
                connection = Connection(service.address, self._offer, keys=service.keys)
            while not connection.over:
                seat = connection.next_turn(_LOOK_EVERY)
                if seat is not None:
                    self._served.move(seat)
                    if not settings.are_kept():
                        self._restore_settings(seat)
                if time.monotonic() >= self._next_look:
                    self._look(connection)
        finally:
            with signals.undisturbed():
                if connection is not None:
                    connection.close()
                self._served.close()

    def _built(self, seat: Seat) -> Batch | OfWorld:
        """What moves a seat, made of worlds as an executor of the run's would build them."""
        if seat.single:
            world = make(self._spec, Place(seat.replica, 1, seat.build_seed))
            assert not isinstance(world, BatchedWorld), "such seats have rows"
            made: Batch | OfWorld = OfWorld(world)
        else:
            worlds = make_worlds(self._spec, seat.replicas, seat.build_seed)
            made = OfBatchedWorld(worlds) if isinstance(worlds, BatchedWorld) else OfWorlds(worlds)
        numerics.settle()  # they may be made of torch, and have arranged it for themselves
        return made

    def _restore_settings(self, seat: Seat) -> None:
        """Undo what a simulator changed in its turn, as an executor of the run's would."""
        for change in settings.restore():
            if change.setting not in self._named:
                self._named.add(change.setting)
                self._pipe.send(note=change.by(f"{seat} ({self._service.env})", "in its turn"))

    def _look(self, connection: Connection) -> None:
        """Tell what is held, give back what is not, and offer room for more."""
        self._next_look = time.monotonic() + _LOOK_EVERY
        seats = connection.talk.seats.values()
        held = sorted(replica for seat in seats for replica in seat.replicas)
        if held != self._held:
            self._held = held
            self._pipe.send(holds=held)
        self._served.sweep()
        if self._service.seats is None:
            self._share(connection, len(seats))

    def _share(self, connection: Connection, held: int) -> None:
        """Room for one seat more; for none where a run is gone, and the next one shares anew."""
        gone = connection.silence >= _GONE
        room = max(1, held) if gone else held + 1
        if room > self._offered or (gone and room < self._offered):
            self._offered = room
            connection.offers(room)
