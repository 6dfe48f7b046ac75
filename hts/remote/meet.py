"""What is asked before a run begins: a simulator's spaces, where nobody here has them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq

from hts.remote import wire
from hts.remote.hello import Hello
from hts.remote.listening import Listening
from hts.remote.port import Port
from hts.remote.wire import HEAD_LIMIT, Malformed
from hts_envs.contract import Spaces


def meet(port: Port, say: Callable[[str], None]) -> Spaces:
    """Wait for the first simulator that dials in: the run has its spaces.

    It is not answered: it asks again, and then the run is there.
    """
    context: zmq.Context[Any] = zmq.Context()
    try:
        listening = Listening(port, context, HEAD_LIMIT)
        say(f"waiting for a simulator at {port.address}: the first one says what the spaces are")
        while True:
            zmq.select(listening.doors, [], [])
            for sentence in listening.admit():
                say(sentence)
            if not listening.socket.poll(0):
                continue
            route, *frames = listening.socket.recv_multipart()
            hello = _heard(frames)
            if hello is None:  # it may have been told of another run before
                _tell(listening, route, wire.pack("who"))
                continue
            if hello.protocol == wire.PROTOCOL:
                return hello.spaces
            why = f"it speaks protocol {hello.protocol}, this run speaks {wire.PROTOCOL}"
            say(f"{hello.name} is refused: {why}")
            _tell(listening, route, wire.pack("refused", why))
    finally:
        context.destroy(linger=0)


def _tell(listening: Listening, route: bytes, head: bytes) -> None:
    """Somebody who may be gone by now."""
    with suppress(zmq.ZMQError):
        listening.socket.send_multipart([route, head], zmq.DONTWAIT)


def _heard(frames: list[bytes]) -> Hello | None:
    """A handshake, if that is what it is."""
    try:
        kind, values = wire.unpack(frames[0] if frames else b"")
        return Hello.read(*values) if kind == "hello" else None
    except Malformed:
        return None
