"""Messages of several frames over a socket, without waiting.

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
    if not comes(socket):
        return None
    frames = [socket.recv(_NOW)]
    while socket.get(_IS_MORE):
        frames.append(socket.recv(_NOW))
    return frames
