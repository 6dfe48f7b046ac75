"""Messages of several frames over a socket.

pyzmq's own `send_multipart` and `recv_multipart` combine flags, which are enumerations, anew for
each frame: that takes longer than to send it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq

_NOW, _MORE = int(zmq.DONTWAIT), int(zmq.DONTWAIT | zmq.SNDMORE)
_IS_MORE, _EVENTS, _CAN_READ = int(zmq.RCVMORE), int(zmq.EVENTS), int(zmq.POLLIN)


def send(socket: zmq.Socket[Any], frames: Sequence[bytes]) -> None:
    """zmq.Again where there is no room for it."""
    for frame in frames[:-1]:
        socket.send(frame, _MORE)
    socket.send(frames[-1], _NOW)


def comes(socket: zmq.Socket[Any]) -> bool:
    """A message has come."""
    return bool(int(socket.get(_EVENTS)) & _CAN_READ)


def receive(socket: zmq.Socket[Any]) -> list[bytes] | None:
    """The next message; None where none has come."""
    return _all(socket, socket.recv(_NOW)) if comes(socket) else None


def receive_next(socket: zmq.Socket[Any]) -> list[bytes]:
    """The next message, as soon as it comes; zmq.Again behind the socket's `rcvtimeo`."""
    return _all(socket, socket.recv())


def _all(socket: zmq.Socket[Any], first: bytes) -> list[bytes]:
    """A message, whose other frames are there with the first one."""
    frames = [first]
    while socket.get(_IS_MORE):
        frames.append(socket.recv(_NOW))
    return frames
