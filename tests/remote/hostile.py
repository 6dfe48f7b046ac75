"""What somebody who means harm may say, drawn from a seed: messages as frames, none of them honest.

Most are made from what an honest simulator says. `Words` draws them; the kinds say what was done.
"""

from __future__ import annotations

import math
import random
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np

from hts.remote import wire
from hts.remote.wire import HEAD_LIMIT, PROTOCOL, Frames
from hts_envs.contract import Spaces

SEATS, TURNS = 8, 40
FITS = 0.05
"""The share of those who say hello that a run takes: it gives them the seats that nobody holds."""
EDGES = (0, 1, -1, 7, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
NUMBERS = (*EDGES, -(1 << 63), 0.0, -0.0, 1.5, 1e308, math.nan, math.inf, -math.inf)
TEXTS = ("", "hello", "box", "\x1b[2J\x07\n", "\u202e", "x" * 5000, "return", "\ud7ff", "\0" * 9)
THINGS = (
    *NUMBERS,
    *TEXTS,
    None,
    True,
    False,
    b"",
    b"\0" * 16,
    [],
    {},
    [[[[]]]],
    [{}],
    {0: {}},
    {None: 1},
    {b"": []},
    msgpack.ExtType(5, b"1234"),
    msgpack.Timestamp(1),
)


def _nested(depth: int, inside: bytes = b"\xc0") -> bytes:
    return b"\x91" * depth + inside


def _bombs() -> list[bytes]:
    """Heads that are small, and claim or need to be large."""
    many = [struct.pack(">BI", kind, (1 << 32) - 1) for kind in (0xDD, 0xDF, 0xDB, 0xC6, 0xC9)]
    fits = struct.pack(">BI", 0xDD, 60_000)
    hello = b"\x92" + msgpack.packb("hello")
    return [
        *many,
        *(b"\x92\xa5hello" + each for each in many),
        _nested(500),
        _nested(5_000),
        _nested(100_000),
        b"\x81" * 5_000,
        hello + _nested(1_000),
        fits * 500 + b"\0" * 60_000,  # each list claims what would fit into the rest
        msgpack.packb([None] * 100_000),
        msgpack.packb(["hello", {each: each for each in range(50_000)}]),
        msgpack.packb(["ping", [[0, 0]] * 50_000]),
        msgpack.packb(["fail", 0, "\n".join("x" * 200_000)]),
        msgpack.packb(["hello", "x" * (HEAD_LIMIT - 20)]),
        b"\xc1" * HEAD_LIMIT,
        b"\x91" * HEAD_LIMIT,
        b"\0" * (HEAD_LIMIT + 1),
        b"\xc7\x00\xff",  # an extension of no bytes, said to be a time
        b"\x92\xa5hello\xc7\x00\x05",
        b"\xd4\xff\x00",
    ]


class Words:
    """Messages without end; `counts` says how many of each kind there were."""

    def __init__(self, seed: int, spaces: Spaces, run: str = "this run") -> None:
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._spaces = wire.spaces_to_plain(spaces)
        self._run = run
        self._bombs = _bombs()
        self._sizes = [
            4 * spaces.agents,
            1,
            *(
                np.zeros((spaces.agents, *space.shape), space.dtype).nbytes
                for space in spaces.observation.values()
            ),
        ]
        draw: dict[str, tuple[int, Callable[[], Frames]]] = {
            "bytes": (10, self._bytes),
            "flipped": (25, self._flipped),
            "cut": (10, self._cut),
            "retyped": (25, self._retyped),
            "frames": (10, self._frames),
            "others' seats": (10, self.plausible),
            "a run's words": (4, self._of_a_run),
            "hello": (4, self._hello),
            "many parts": (1, self._parts),
            "bombs": (1, self._bomb),
        }
        self._draws = draw
        self._weights = [weight for weight, _ in draw.values()]

    def next(self) -> Frames:
        """One more."""
        (kind,) = self._random.choices(list(self._draws), self._weights)
        self.counts[kind] += 1
        return self._draws[kind][1]()

    # --- what could be honest -----------------------------------------------------------------

    def hello(self, **changes: Any) -> bytes:
        """Of somebody new, who is refused for one reason only."""
        one = self._random
        held = [[one.randrange(SEATS), one.randrange(-1, TURNS)] for _ in range(one.randrange(3))]
        facts = {
            "protocol": PROTOCOL,
            "name": "x",
            "session": one.randbytes(16),
            "run": one.choice(("", self._run)),
            "seats": one.choice((1, 2, 1 << 16)),
            "rows": 1,
            "replayable": True,
            "spaces": self._spaces | {"agents": 9},
            "held": held,
        }
        return wire.pack("hello", facts | changes)

    def fitting(self) -> bytes:
        """Of somebody new, whom the run takes."""
        return self.hello(spaces=self._spaces)

    def stand(self, seat: int, turn: int) -> Frames:
        """Of the right form, and with an end or without one."""
        ends = self._random.choice((0, 0, 0, 1, 2, 3))
        facts = {0: {"return": 1.0, "length": 2}} if ends else {}
        frames = [bytes(size) for size in self._sizes]
        frames[1] = bytes([ends])
        final = frames[2:] if ends == wire.TRUNCATED else []
        return [wire.pack("stand", seat, turn, facts), *frames, *final]

    def plausible(self) -> Frames:
        """About somebody else's seat."""
        one = self._random
        seat, turn = one.randrange(SEATS), one.randrange(-1, TURNS)
        kind = one.choice(("stand", "stand", "stand", "ping", "fail", "bye"))
        if kind == "stand":
            return self.stand(seat, turn)
        if kind == "ping":
            return [wire.pack("ping", [[seat, turn], [seat + 1, turn]])]
        if kind == "fail":
            return [wire.pack("fail", seat, one.choice(TEXTS))]
        return [wire.pack("bye")]

    def _hello(self) -> Frames:
        return [self.fitting() if self._random.random() < FITS else self.hello()]

    def _honest(self) -> Frames:
        return [self.hello()] if self._random.random() < 0.4 else self.plausible()

    # --- what could not -----------------------------------------------------------------------

    def unfit(self, seat: int, turn: int) -> Frames:
        """A stand of a seat that the run must not take."""
        frames = self.stand(seat, turn)
        frames[1] = self._random.choice((b"", b"\0", struct.pack("<f", math.nan), b"\0" * 999))
        return frames

    def _bytes(self) -> Frames:
        one = self._random
        return [one.randbytes(one.choice((0, 1, 5, 60, 300))) for _ in range(one.randint(1, 4))]

    def _flipped(self) -> Frames:
        frames, one = self._honest(), self._random
        at = 0 if one.random() < 0.8 else one.randrange(len(frames))
        changed = bytearray(frames[at])
        for _ in range(one.randint(1, 3)):
            if changed:
                changed[one.randrange(len(changed))] = one.randrange(256)
        frames[at] = bytes(changed)
        return frames

    def _cut(self) -> Frames:
        """Shorter or longer than it was, or with a piece of it twice."""
        frames, one = self._honest(), self._random
        at = one.randrange(len(frames))
        frame = frames[at]
        first, last = sorted(one.choices(range(len(frame) + 1), k=2))
        frames[at] = one.choice(
            (frame[:first], frame[first:], frame[:first] + frame[last:], frame[:last] + frame)
        )
        return frames

    def _retyped(self) -> Frames:
        """One value anywhere in a head is another thing."""
        frames, one = self._honest(), self._random
        head = msgpack.unpackb(frames[0], strict_map_key=False)
        within, places = [head], []
        while within:
            each = within.pop()
            keys = list(each) if isinstance(each, dict) else range(len(each))
            places += [(each, key) for key in keys]
            within += [each[key] for key in keys if isinstance(each[key], (list, dict))]
        each, key = one.choice(places)
        if isinstance(each, dict) and one.random() < 0.3:
            each[one.choice(("x", 0, b"", None, -1))] = each.pop(key)
        else:
            each[key] = one.choice(THINGS)
        frames[0] = msgpack.packb(head)
        return frames

    def _frames(self) -> Frames:
        """The frames of a stand in another order, too few, too many, too large."""
        one = self._random
        frames = self.stand(one.randrange(SEATS), one.randrange(TURNS))
        what = one.randrange(4)
        if what == 0:
            one.shuffle(frames)
        elif what == 1:
            del frames[one.randrange(len(frames))]
        elif what == 2:
            frames.insert(one.randrange(len(frames) + 1), one.choice(frames))
        else:
            frames[one.randrange(len(frames))] *= 50
        return frames

    def _of_a_run(self) -> Frames:
        one = self._random
        values = {dict: {}, int: one.choice(EDGES), list: [0], bytes: b"", str: "x"}
        kind = one.choice(sorted(wire.KINDS))
        return [wire.pack(kind, *(values[each] for each in wire.KINDS[kind])), b"", b"\0" * 8]

    def _parts(self) -> Frames:
        return [self._random.choice((b"", self.hello(), b"x"))] * self._random.choice((20, 300))

    def _bomb(self) -> Frames:
        return [self._random.choice(self._bombs)]
