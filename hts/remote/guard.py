"""Who is asked whether somebody may dial in: ZeroMQ's authentication protocol (ZAP, RFC 27).

ZeroMQ asks once for each connection that has proven to hold a key, before anything else of it is
heard; nothing goes on there until it is answered. It is asked in the thread that hears everything
else, so that nobody is left behind when the port is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import zmq
from zmq.utils import z85

from hts.remote.keys import Keys

_WHERE = "inproc://zeromq.zap.01"
_AT_ONCE = 16  # connections that are looked at before everybody else gets their turn


class Guard:
    """The answers for every socket of a context."""

    def __init__(self, context: zmq.Context[Any], keys: Keys) -> None:
        self._keys = keys
        self._known = keys.allowed()
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(_WHERE)

    def answer(self) -> Iterator[str]:
        """Whoever waits; yields a sentence for each who is turned away."""
        for _ in range(_AT_ONCE):
            try:
                _, request, _, address, _, _, *credentials = self.socket.recv_multipart(
                    zmq.DONTWAIT
                )
            except zmq.Again:
                return
            key = z85.encode(credentials[0])  # of CURVE: sockets here speak nothing else
            with suppress(OSError):  # no descriptor may be left: then it is who was known before
                self._known = self._keys.allowed()
            name = self._known.get(key)
            status = [b"400", b"unknown key", b""] if name is None else [b"200", b"", key]
            self.socket.send_multipart([b"1.0", request, *status, b""])
            if name is None:
                yield f"{address.decode()} is turned away: its key {key.decode()} is not known"
