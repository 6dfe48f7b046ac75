"""A port that is open: nobody is heard there who has no right to be."""

from __future__ import annotations

import dataclasses
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

from hts.errors import WrongUsage
from hts.remote.keys import Keys
from hts.remote.port import Port

_HEARTBEAT = 2_000  # milliseconds; a peer that is silent for longer than the next is gone
_LOST_AFTER = 10_000
_WAITING = 1_000  # messages that may wait for a peer, or from it


class Listening:
    """A socket at a port, and whoever looks at keys there."""

    def __init__(self, port: Port, context: zmq.Context[Any], largest: int) -> None:
        self._guard: ThreadAuthenticator | None = None
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.router_mandatory = True
        self.socket.maxmsgsize = largest
        self.socket.rcvhwm = self.socket.sndhwm = _WAITING
        self.socket.heartbeat_ivl, self.socket.heartbeat_timeout = _HEARTBEAT, _LOST_AFTER
        try:
            if port.keys is not None:
                keys = Keys(port.keys)
                keys.listen(self.socket)
                self._guard = ThreadAuthenticator(context)
                self._guard.start()
                self._guard.configure_curve(domain="*", location=str(keys.clients))
            self.socket.bind(port.address)
        except zmq.ZMQError as error:
            self.close()
            raise WrongUsage(f"machine.listen: {port.address}: {error.strerror}") from None
        except WrongUsage:
            self.close()
            raise
        found = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.port = dataclasses.replace(port, address=found)

    def close(self) -> None:
        """Let go of it."""
        self.socket.close()
        if self._guard is not None:
            self._guard.stop()


def fixed(port: Port) -> Port:
    """The same with a number where the kernel was to choose one, and known to be free."""
    context: zmq.Context[Any] = zmq.Context()
    try:
        listening = Listening(port, context, 1)
        listening.close()
        return listening.port
    finally:
        context.destroy(linger=0)
