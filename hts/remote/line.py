"""A simulator's socket: what is said and heard over it, and what becomes of the connection.

ZeroMQ connects again by itself, and says nothing about it. Whoever waits in vain is told why here:
nobody listens at the address, the run is gone, or the keys do not fit.
"""

from __future__ import annotations

import logging
import math
import struct
import time
from pathlib import Path
from typing import Any

import zmq

from hts.errors import WrongUsage
from hts.remote.frames import comes, receive, receive_next, send
from hts.remote.keys import Keys
from hts.remote.talk import Refused, Talk
from hts.remote.wire import Malformed, pack
from hts.signals import undisturbed

LOG = logging.getLogger("hts.remote")
"""What a person at the simulator's terminal wants to know."""

PING_EVERY = 1.0
"""Seconds of silence before a simulator that waits says so."""

_HEARTBEAT = 2_000  # milliseconds between ZeroMQ's own, which also go out from a busy step
_LOST_AFTER = 10_000
_HERE = pack("here")  # says that the run is there, and answers nothing
_LOOK_EVERY = 5.0
_AT_ONCE = 64  # messages that are heard before what came of them is looked at
_NO_KEY = zmq.EVENT_HANDSHAKE_FAILED_AUTH
_NO_GREETING = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_BROKEN_OFF = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
    | _NO_KEY
    | _NO_GREETING
    | _BROKEN_OFF
)
_FINAL: dict[int, str] = {  # ZeroMQ does not try again behind these
    _NO_KEY: "the run does not know this simulator's key",
    _NO_GREETING: "keys are needed there and none are given, or the other way round",
}
_TROUBLES: dict[int, str] = {
    zmq.EVENT_CONNECT_RETRIED: "nobody listens there yet",
    zmq.EVENT_DISCONNECTED: "the run is gone",
    _BROKEN_OFF: "whoever listens there has another key than is known here, or is ending",
}


class Line:
    """What a talk says and hears, over a socket. It belongs to one thread.

    `heard` and `answered` are the times of the last message, and of the last that was no `here`.
    """

    def __init__(self, talk: Talk, address: str, keys: Path | None) -> None:
        self._talk = talk
        self._address = address
        self._context: zmq.Context[Any] = zmq.Context()
        self._trouble = ""
        self._wait = -1  # milliseconds that the socket waits
        self.heard = self.answered = self._looked = time.monotonic()
        with undisturbed():  # a socket that pyzmq has half made would keep the context for ever
            self._connect(keys)

    def _connect(self, keys: Path | None) -> None:
        """Make the socket; leave nothing open where that fails."""
        try:
            self.socket = _dealer(self._context, keys)
            self.socket.ipv6 = self._address.startswith("tcp://[")
            self._doors = self.socket.get_monitor_socket(_EVENTS)
            self.socket.connect(self._address)
        except zmq.ZMQError:
            self._context.destroy(linger=0)
            raise WrongUsage(
                f"{self._address}: is no address: write tcp://HOST:PORT or ipc://PATH, "
                "such as tcp://127.0.0.1:5555"
            ) from None
        except BaseException:
            self._context.destroy(linger=0)
            raise

    @property
    def descriptor(self) -> int:
        """Readable once, when something has come."""
        return int(self.socket.fd)

    def say(self) -> None:
        """Send what the talk has to say."""
        outbox = self._talk.outbox
        while outbox:
            try:
                send(self.socket, outbox[0])
            except zmq.Again:  # nobody is there to hear it: it is asked for again
                outbox.clear()
                return
            outbox.popleft()

    def hear(self) -> bool:
        """Take what has come, if anything has; True where there may be more."""
        for _ in range(_AT_ONCE):
            frames = receive(self.socket)
            if frames is None:
                return False
            self._hear(frames)
        return True

    def wait(self, seconds: float) -> bool:
        """Until something comes, but no longer than this; hear all of it, if anything has come."""
        milliseconds = math.ceil(1e3 * seconds)
        if not milliseconds:
            there = comes(self.socket)
            self.hear()
            return there
        if milliseconds != self._wait:
            self.socket.rcvtimeo = self._wait = milliseconds
        try:
            frames = receive_next(self.socket)
        except zmq.Again:
            return False
        self._hear(frames)
        self.hear()
        return True

    def _hear(self, frames: list[bytes]) -> None:
        """One message."""
        self.heard = time.monotonic()
        if self._trouble:
            LOG.warning("%s: the run is there", self._address)
            self._trouble = ""
        if self.heard - self._looked > _LOOK_EVERY:
            self._look()
        try:
            self._talk.hear(frames)
        except Malformed as error:
            LOG.warning("%s: a message was dropped: %s", self._address, error)
            return
        if frames[0] != _HERE:
            self.answered = self.heard

    def silent(self) -> None:
        """Nothing has come for a while: say what is waited for, and tell the person why."""
        self._talk.ping()
        self.say()
        self._look()

    def _look(self) -> None:
        """At what has become of the connection: the latest is what counts."""
        self._looked = time.monotonic()
        trouble = self._trouble
        while self._doors.poll(0):
            event = _event(self._doors.recv_multipart())
            if event in _FINAL:
                raise Refused(f"{self._address}: {_FINAL[event]}")
            if event != zmq.EVENT_CONNECT_RETRIED or not trouble:
                trouble = _TROUBLES.get(event, "")
        if trouble and trouble != self._trouble:
            LOG.warning("%s: %s; waiting", self._address, trouble)
        self._trouble = trouble

    def close(self) -> None:
        """Say what is left to say, and let go."""
        if self.socket.closed:
            return
        with undisturbed():
            self.say()
            self.socket.disable_monitor()
            self._context.destroy(linger=200)


def _dealer(context: zmq.Context[Any], keys: Path | None) -> zmq.Socket[Any]:
    """A socket of a simulator, as every client has to set it up."""
    socket: zmq.Socket[Any] = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.reconnect_ivl = 50
    socket.reconnect_ivl_max = 1_000
    socket.heartbeat_ivl = _HEARTBEAT
    socket.heartbeat_timeout = socket.heartbeat_ttl = _LOST_AFTER
    socket.rcvhwm = 0  # nothing waits outside: libzmq aborts on a heartbeat if that then is cut
    if keys is not None:
        Keys(keys).dial(socket)
    return socket


def _event(frames: list[bytes]) -> int:
    """Which one: a number of 16 bits, and a value behind it."""
    return int(struct.unpack("=HI", frames[0])[0])
