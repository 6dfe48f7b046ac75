"""A port that is open: nobody is heard there who has no right to be."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from hts.errors import WrongUsage
from hts.remote.guard import Guard
from hts.remote.keys import Keys
from hts.remote.port import Port
from hts.signals import undisturbed

_LOST_AFTER = 10_000  # milliseconds
_PROBED = 4, 2, 3  # a silent peer, by TCP: after so many seconds, every so many, so often
_WAITING = 1_000  # messages that may wait for a peer
_UNHEARD = 100  # messages of a peer that may wait to be heard, before it has to wait itself


class Listening:
    """A socket at a port, and whoever looks at keys there."""

    def __init__(self, port: Port, context: zmq.Context[Any], largest: int) -> None:
        self._guard: Guard | None = None
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.router_mandatory = True
        self.socket.maxmsgsize = largest
        self.socket.sndhwm, self.socket.rcvhwm = _WAITING, _UNHEARD
        _watch(self.socket)
        self.socket.ipv6 = port.address.startswith("tcp://[")
        try:
            if port.keys is not None:
                keys = Keys(port.keys)
                keys.listen(self.socket)
                self._guard = Guard(context, keys)
            self.socket.bind(port.address)
        except zmq.ZMQError as error:
            self.close()
            why = zmq.strerror(error.errno or 0)
            raise WrongUsage(f"machine.listen: {port.address}: {why}") from None
        except WrongUsage:
            self.close()
            raise
        found = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.port = dataclasses.replace(port, address=found)

    @property
    def doors(self) -> list[zmq.Socket[Any]]:
        """What has to be waited at, for messages and for somebody to let in."""
        return [self.socket] if self._guard is None else [self.socket, self._guard.socket]

    def admit(self) -> Iterable[str]:
        """Let in whoever waits and has a key that is known; a sentence for each who has not."""
        return () if self._guard is None else self._guard.answer()

    def close(self) -> None:
        """Let go of it."""
        self.socket.close()
        if self._guard is not None:
            self._guard.socket.close()


def _watch(socket: zmq.Socket[Any]) -> None:
    """Have connections end whose other end is gone.

    Simulators send ZeroMQ's heartbeats, which say how long they may be missing. None are sent from
    here: libzmq 4.3 aborts where one is due on a connection that was cut while its messages had to
    wait, that is whenever somebody says much and dies.
    """
    socket.handshake_ivl = socket.tcp_maxrt = _LOST_AFTER
    socket.tcp_keepalive = 1
    socket.tcp_keepalive_idle, socket.tcp_keepalive_intvl, socket.tcp_keepalive_cnt = _PROBED


@contextmanager
def listening_at(port: Port, largest: int) -> Iterator[Listening]:
    """Listen at a port inside this block.

    Ctrl-C inside pyzmq's constructors would leave a socket that its context does not know, and the
    context would wait for ever for it to be closed; so opening and closing are not interrupted.
    """
    context: zmq.Context[Any] = zmq.Context()
    try:
        with undisturbed():
            listening = Listening(port, context, largest)
        yield listening
    finally:
        with undisturbed():
            context.destroy(linger=0)


def fixed(port: Port) -> Port:
    """Return the port with a number that is free now, where the kernel was to choose one."""
    with listening_at(port, 1) as listening:
        return listening.port
