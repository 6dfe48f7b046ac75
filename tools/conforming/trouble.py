"""Cases: messages that are not as agreed, and the many ways to write one that is."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hts.remote import wire

from .case import case
from .command import Wishes
from .reference import Order
from .said import Wrong
from .side import Client, Trial, shown

_TURNS = 3
_MIB = 1 << 20


@case("invalid")
def invalid(trial: Trial) -> None:
    """Drops what is not as agreed (heads, types, frames, actions), changes nothing, and goes on."""
    with trial.client() as client:
        _drops(client, lambda order: [*_heads(order), *_frames(order)])


@case("invalid-rows")
def invalid_rows(trial: Trial) -> None:
    """Drops an act without actions in which not every row begins, or that has frames of fewer."""
    with trial.client(Wishes(rows=2)) as client:
        _drops(client, _halves)


def _drops(client: Client, invalid: Callable[[Order], list[list[bytes]]]) -> None:
    (seat,) = client.enter()
    client.play(seat.begin(0), seat.step())
    order = seat.step()
    for frames in invalid(order):
        _dropped(client, frames)
    client.play(order, *(seat.step() for _ in range(_TURNS)))


def _dropped(client: Client, frames: Sequence[bytes]) -> None:
    """This is heard, and it is as if it had not been."""
    try:
        client.send(frames)
        facts = client.quiet("an invalid message is dropped")
        held = facts["held"]
    except Exception as error:
        error.add_note(f"behind this message of the run: {shown(frames)}")
        raise
    if held != [[0, 1]]:
        raise Wrong(f"behind {shown(frames)}", expected="held [[0, 1]]", came=f"held {held}")


def _heads(order: Order) -> Iterator[list[bytes]]:
    """Heads that are none, and heads that hold something else than their kind does."""
    act = order.frames
    raw = [
        b"",
        b"\xc1",
        b"\x00",
        b"\x80",
        b"\x90",
        b"\x91\x00",
        b"hello",
        act[0][:-1],
        act[0] + b"\x00",
    ]
    raw += [b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x91" * 100_000, bytes(_MIB)]
    raw += [b"\x92\xa4drop\xd4\x01\x00", b"\x92\xa7refused\xc4\x01a"]
    raw += [wire.pack("welcome", {"protocol": 1, "run": "another", "more": "a" * _MIB})]
    for head in raw:
        yield [head, *order.frames[1:]] if head[1:5] == b"\xa3act" else [head]
    acts: list[list[Any]] = [
        ["Act", 0, 2, []],
        ["act", 0, 2],
        ["act", "0", 2, []],
        ["act", 0, 2.5, []],
        ["act", 0, 2, {}],
        ["act", 0, 2, [1]],
        ["act", 0, 2, [-1]],
        ["act", 0, 2, ["0"]],
        ["act", 0, 2, [], 0],
        ["act", -1, 2, []],
    ]
    for values in acts:
        yield [wire.pack(*values), *act[1:]]
    others: list[list[Any]] = [
        ["stand", 0, 1, {}],
        ["nothing"],
        ["take", 1],
        ["take", 1, 1, 2, bytes(8)],
        ["take", 1, 1, 1, 7],
        ["take", 1, 1, 1, bytes(7)],
        ["take", -1, 0, 1, bytes(8)],
        ["drop"],
        ["drop", "0"],
        ["drop", None],
        ["again", 0],
        ["again", 0, [1]],
        ["welcome", "another"],
        ["over", 1],
        ["refused"],
        ["refused", 1],
    ]
    for values in others:
        yield [wire.pack(*values)]


def _frames(order: Order) -> Iterator[list[bytes]]:
    """The right head, and frames of another number or size."""
    head, action, seeds = order.frames
    begin = wire.pack("act", 0, 5, [0])
    yield [head]
    yield [head, action]
    yield [head, action, seeds, b""]
    yield [head, action, *[seeds] * 100]
    yield [head, action[:-1], seeds]
    yield [head, action + b"\x00", seeds]
    yield [head, action * 2, seeds]
    yield [head, action, seeds * 2]
    yield [head, action, b""]
    for choice in (-1, 3, 1 << 40):
        yield [head, choice.to_bytes(8, "little", signed=True), seeds]
    yield [head, b"", seeds]  # without actions every row begins, and this head lists none
    yield [begin, b"", seeds + bytes(8)]
    yield [begin, b"", b""]
    yield [wire.pack("act", 0, -5, [0]), b"", seeds]


def _halves(order: Order) -> list[list[bytes]]:
    """Messages that are meant for one row of two."""
    head, action, seeds = order.frames
    acts = [[wire.pack("act", 0, 5, begins), b"", seeds] for begins in ([0], [1], [0, 0], [0, 2])]
    return [*acts, [head, action[:8], seeds], [head, action, seeds[:8]]]


@case("widths")
def widths(trial: Trial) -> None:
    """Reads msgpack in every width: a seat may come in nine bytes, a text with a long length."""
    with trial.client() as client:
        (seat,) = client.enter()
        client.play(seat.begin(0))
        for write in (_uint64, _int64, _int16, _uint32):
            order = seat.step()
            turn, kind = write(order.turn), b"\xdb" + struct.pack(">I", 3) + b"act"
            head = b"\xdd" + struct.pack(">I", 4) + kind + write(0) + turn + b"\xdc\x00\x00"
            client.send([head, *order.frames[1:]])
            order.check(client.hear(f"stand of {order}, asked with the head {head.hex(' ')}"))


def _uint64(value: int) -> bytes:
    return b"\xcf" + struct.pack(">Q", value)


def _int64(value: int) -> bytes:
    return b"\xd3" + struct.pack(">q", value)


def _int16(value: int) -> bytes:
    return b"\xd1" + struct.pack(">h", value)


def _uint32(value: int) -> bytes:
    return b"\xce" + struct.pack(">I", value)
