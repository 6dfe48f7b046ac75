"""Messages of several frames over a socket.

pyzmq's own `send_multipart` and `recv_multipart` combine flags, which are enumerations, anew for
each frame, and ask the socket by such a number whether there are more of them: that takes longer
than to send it. A frame knows whether it is the last one, and what pyzmq's sockets add to `send`,
for groups and routing identities, nobody needs here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq
from zmq import backend

_NOW, _MORE = int(zmq.DONTWAIT), int(zmq.DONTWAIT | zmq.SNDMORE)
_EVENTS, _CAN_READ = int(zmq.EVENTS), int(zmq.POLLIN)
_send, _recv = backend.Socket.send, backend.Socket.recv


def send(socket: zmq.Socket[Any], frames: Sequence[bytes]) -> None:
    """zmq.Again where there is no room for it."""
    for frame in frames[:-1]:
        _send(socket, frame, _MORE)
    _send(socket, frames[-1], _NOW)


def comes(socket: zmq.Socket[Any]) -> bool:
    """A message has come."""
    return bool(int(socket.get(_EVENTS)) & _CAN_READ)


def receive(socket: zmq.Socket[Any]) -> list[bytes] | None:
    """The next message; None where none has come."""
    return _all(socket, _NOW) if comes(socket) else None


def receive_next(socket: zmq.Socket[Any]) -> list[bytes]:
    """The next message, as soon as it comes; zmq.Again behind the socket's `rcvtimeo`."""
    return _all(socket, 0)


def _all(socket: zmq.Socket[Any], flags: int) -> list[bytes]:
    """A message, whose other frames are there with the first one."""
    frame = _recv(socket, flags, False)
    frames = [frame.bytes]
    while frame.more:
        frame = _recv(socket, _NOW, False)
        frames.append(frame.bytes)
    return frames
