"""The first simulator of a run whose spaces only simulators know: `--env remote:NAME`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import zmq

from hts.remote import wire
from hts.remote.hello import Hello
from hts.remote.listening import Listening, listening_at
from hts.remote.notes import Notes
from hts.remote.port import Port
from hts.remote.wire import HEAD_LIMIT, Malformed
from hts_envs.contract import Spaces

_LOOK_EVERY = 1  # seconds; a signal just before `poll` is noticed when that returns

Refusal = Callable[[Spaces], str | None]
"""Returns why no run with these spaces is possible here, or None."""


def meet(port: Port, say: Callable[[str], None], refusal: Refusal) -> Spaces:
    """Wait for a simulator that the run can take, and return its spaces.

    The simulator that is taken gets no answer: it asks again, and by then the run listens.
    """
    notes = Notes(say)
    notes.say(f"waiting for a simulator at {port.address}: the first one defines the spaces")
    spaces = None
    while spaces is None:
        with listening_at(port, HEAD_LIMIT) as listening:
            spaces = _wait(listening, notes, refusal)
    return spaces


def _wait(listening: Listening, notes: Notes, refusal: Refusal) -> Spaces | None:
    """Return the spaces of the first simulator, or None when the port has to be opened anew."""
    poller = zmq.Poller()
    for door in listening.doors:
        poller.register(door, zmq.POLLIN)
    next_look = time.monotonic() + _LOOK_EVERY
    while True:
        poller.poll(1_000 * _LOOK_EVERY)
        for sentence in listening.admit():
            notes.say(sentence)
        spaces = _hear(listening, notes, refusal)
        if spaces is not None:
            return spaces
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + _LOOK_EVERY
            if listening.is_crowded(known=0):
                return None


def _hear(listening: Listening, notes: Notes, refusal: Refusal) -> Spaces | None:
    """Handle one message, if one has arrived; return the spaces that it brings for the run."""
    if not listening.socket.poll(0):
        return None
    route, *frames = listening.socket.recv_multipart()
    hello = _read(frames)
    if hello is None:  # this simulator may know another run from before
        _send(listening, route, wire.pack("who"))
        return None
    why = hello.other_protocol() or refusal(hello.spaces)
    if why is None:
        return hello.spaces
    notes.say(f"{wire.shown(hello.name)} is refused: {why}")
    _send(listening, route, wire.pack("refused", why))
    return None


def _read(frames: list[bytes]) -> Hello | None:
    """Return the handshake in a message, or None if the message is anything else."""
    try:
        kind, values = wire.unpack(frames[0] if frames else b"")
        return Hello.read(*values) if kind == "hello" else None
    except Malformed:
        return None


def _send(listening: Listening, route: bytes, head: bytes) -> None:
    """Send a head to a peer that may be gone by now."""
    with suppress(zmq.ZMQError):
        listening.socket.send_multipart([route, head], zmq.DONTWAIT)
