"""What a client says, as it is shown to whoever writes the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hts.remote import wire
from hts.remote.wire import Malformed

SAYS = ("hello", "stand", "ping", "fail", "bye")
_SHOWN = 64


class Wrong(Exception):
    """What a client should not have said, or should have: expected, and what came instead."""

    def __init__(self, sentence: str, *, expected: object = None, came: object = None) -> None:
        super().__init__(sentence)
        self.expected = expected
        self.came = came


@dataclass(frozen=True)
class Message:
    """One message of a client: its head, taken apart, and the frames behind it."""

    route: bytes
    kind: str
    values: list[Any]
    frames: list[bytes]

    def __str__(self) -> str:
        behind = [f"{len(frame)} bytes" for frame in self.frames]
        return f"{[self.kind, *self.values]!r}" + (f" + {', '.join(behind)}" if behind else "")


def read(route: bytes, frames: Sequence[bytes]) -> Message:
    """A message; Wrong where it is none that a simulator says."""
    head = frames[0] if frames else b""
    try:
        kind, values = wire.unpack(head)
    except Malformed as error:
        raise Wrong(
            f"a message that is not as agreed: {error}",
            expected="one msgpack array: the kind, then its values",
            came=hexed(head),
        ) from None
    message = Message(route, kind, values, list(frames[1:]))
    if kind not in SAYS:
        raise Wrong(f"a simulator does not say {kind!r}", expected=", ".join(SAYS), came=message)
    if message.frames and kind != "stand":
        raise Wrong("frames stand behind a stand only", expected=f"{kind} alone", came=message)
    return message


def hexed(raw: bytes) -> str:
    """Bytes as the protocol's page shows them, cut where they are many."""
    more = f" ... ({len(raw)} bytes)" if len(raw) > _SHOWN else ""
    return (raw[:_SHOWN].hex(" ") + more) or "nothing"


def same(found: object, expected: object, sentence: str) -> None:
    """Equal, and of one type where both are plain."""
    if found != expected or isinstance(found, bool) != isinstance(expected, bool):
        raise Wrong(sentence, expected=repr(expected), came=repr(found))
