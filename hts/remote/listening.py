"""A run's port: its socket, its guard of keys, and a limit to the connections that are open.

libzmq gives a connection that claims the routing id of another one to no one. Its messages are
never read; when more than `_UNHEARD` of them wait, its descriptor stays open for good, even if the
peer has closed it. Handing the id over to the newer connection would let any peer take the place of
a simulator, and heartbeats from here abort libzmq (see `_watch`). So the port is opened anew when
too many connections are open that never became a simulator: simulators reconnect by themselves.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import resource
import time
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
_STRANGERS = 256  # connections without a known simulator that may be open for longer
_SECONDS_TO_BE_KNOWN = 3.0  # a thousand simulators may connect at once, and are heard in turn
_OWN = 128  # descriptors for everything but connections
_SECONDS_TO_BIND = 2.0  # a process that ends may hold the address for a moment
_BIND_EVERY = 0.05


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
            _bind(self.socket, port.address)
        except zmq.ZMQError as error:
            self.close()
            why = zmq.strerror(error.errno or 0)
            raise WrongUsage(f"machine.listen: {port.address}: {why}") from None
        except WrongUsage:
            self.close()
            raise
        address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.port = dataclasses.replace(port, address=address)
        self._own = _open_descriptors()
        self._crowded_since: float | None = None

    @property
    def doors(self) -> list[zmq.Socket[Any]]:
        """What has to be waited at, for messages and for somebody to let in."""
        return [self.socket] if self._guard is None else [self.socket, self._guard.socket]

    def admit(self) -> Iterable[str]:
        """Let in whoever waits and has a key that is known; a sentence for each who has not."""
        return () if self._guard is None else self._guard.answer()

    def is_crowded(self, known: int) -> bool:
        """Return whether it is time to open the port anew, with so many simulators known."""
        strangers = _open_descriptors() - self._own - known
        if strangers <= _STRANGERS:
            self._crowded_since = None
            return False
        now = time.monotonic()
        if self._crowded_since is None:
            self._crowded_since = now
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return now - self._crowded_since > _SECONDS_TO_BE_KNOWN or strangers > limit // 2

    def close(self) -> None:
        """Let go of it."""
        self.socket.close()
        if self._guard is not None:
            self._guard.socket.close()


def raise_limit() -> int:
    """Let this process open as many descriptors as it may; return how many simulators can stay."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(1, hard - _STRANGERS - _OWN)


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _bind(socket: zmq.Socket[Any], address: str) -> None:
    until = time.monotonic() + _SECONDS_TO_BIND
    while True:
        try:
            socket.bind(address)
            return
        except zmq.ZMQError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
        time.sleep(_BIND_EVERY)


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
