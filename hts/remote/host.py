"""The port of a run: everybody dials in here, is heard and is told.

It stands where an executor waits and where its blocks are stepped: a step is begun by telling the
seat's holder, and is over when what came of it was heard. Who holds which seat is `seating`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from hts.memory.doorbell import Doorbell
from hts.remote.block import RemoteBlock
from hts.remote.frames import receive, send
from hts.remote.listening import Listening, raise_limit
from hts.remote.port import Remote
from hts.remote.seating import Seating
from hts.remote.wire import Frames
from hts.roles.executor import Stepping
from hts_envs.contract import Spaces

_EVERY = 1.0  # seconds between looks at who is still there
_UNTIL_KNOWN = 0.05  # the port hears that a connection was cut a moment after its monitor
_AT_ONCE = 64  # messages that are heard before the executor gets its turn
_IN_A_ROW = 16  # times that messages alone are looked for, while there are some


class Host(Stepping):
    """For an executor whose simulators dial in: its doorbell, and how its blocks step."""

    def __init__(
        self,
        terms: Remote,
        spaces: Spaces,
        blocks: Sequence[RemoteBlock],
        bell: Doorbell,
        note: Callable[..., None],
        *,
        last: int,
        began: bool = False,
    ) -> None:
        self._blocks = blocks
        self._bell = bell
        self._gone: list[bytes] = []
        self._in_a_row = 0
        limits = [limit / 4 for limit in (terms.patience, terms.step_limit) if limit]
        self._every = min(_EVERY, *limits) if limits else _EVERY
        self._next_look = 0.0
        self._port = terms.port
        self._open()
        most = raise_limit()
        self._seating = Seating(
            terms, spaces, blocks, self._send, note, last=last, began=began, most=most
        )

    def _open(self) -> None:
        """Listen at the port, and at its monitor for connections that are cut."""
        self._context: zmq.Context[Any] = zmq.Context()
        self._listening = Listening(self._port, self._context, self._blocks[0].format.largest)
        self._socket = self._listening.socket
        self._doors = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._poller = zmq.Poller()
        for each in (self._bell.fileno(), self._doors, *self._listening.doors):
            self._poller.register(each, zmq.POLLIN)

    def _reopen(self) -> None:
        """Close every connection; simulators reconnect to the same address and keep their seats."""
        self._port = self._listening.port
        self.close()
        self._gone.clear()
        self._open()
        self._seating.reopened()

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._listening.port.address

    def start(self, place: int, step: Callable[[], None]) -> None:
        """Begin a block's step: its holder is told, if there is one."""
        step()

    def is_over(self, place: int) -> bool:
        """It has been heard what came of it."""
        return self._blocks[place].over

    def wait(self) -> None:
        """Until the executor may have something to do: it was rung for, or somebody has spoken."""
        if self._in_a_row < _IN_A_ROW and self._listen():
            self._in_a_row += 1  # whoever has rung is looked for by the executor in any case
        else:
            self._in_a_row = 0
            self._wait_for_all()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + self._every
            self._seating.look()
            if self._listening.is_crowded(len(self._seating.peers)):
                self._reopen()
        while self._gone:
            self._seating.lost(self._gone.pop())

    def _wait_for_all(self) -> None:
        """For messages, the doorbell, cut connections, and whoever is to be let in."""
        timeout = max(0.0, self._next_look - time.monotonic())
        ready = dict(self._poller.poll(int(1e3 * timeout) + 1))
        if self._bell.fileno() in ready:
            self._bell.wait()
        if self._doors in ready:
            self._doors.recv_multipart()
            self._seating.was_cut()
            self._next_look = min(self._next_look, time.monotonic() + _UNTIL_KNOWN)
        for sentence in self._listening.admit():
            self._seating.say(sentence)
        if self._socket in ready:
            self._listen()

    def _listen(self) -> bool:
        """Hear who has spoken; False where nobody has."""
        for count in range(_AT_ONCE):
            heard = receive(self._socket)
            if heard is None:
                return count > 0
            self._seating.hear(heard[0], heard[1:])
        return True

    def _send(self, route: bytes, frames: Frames) -> None:
        try:
            send(self._socket, [route, *frames])
        except zmq.Again:
            return  # it does not read: what it misses is asked for again
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._gone.append(route)

    def close(self) -> None:
        """Let go of the port."""
        self._socket.disable_monitor()
        self._listening.close()
        self._context.destroy(linger=0)
