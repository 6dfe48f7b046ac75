"""A run's side of the conversation, without a socket, with hostile messages between all others."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hts.remote import wire
from hts.remote.wire import Format, Frames, Malformed
from hts_envs.contract import Spaces
from hts_envs.reference import ReferenceWorld
from tests.remote.growth import Growth, Held
from tests.remote.hostile import Words
from tests.remote.schedules import Schedule, Shape, Stage, local

TROUBLES = ("cut", "die", "double", "leave", "replace", "fail")
ROUTES = 12
_WARM = 3  # schedules, behind which memory does not grow
_MOST, _SCHEDULES = 200, 5_000  # messages at each point, at the most; a count has so many points
_STAYS = 0.995  # of them that are still there for the next message


class Besieged(Schedule):
    """Honest simulators go on beside others, who are never honest when they are given a seat."""

    def __init__(
        self,
        seed: int,
        shape: Shape,
        troubles: Sequence[str],
        each: int,
        words: Callable[[int, Spaces], Words] = Words,
    ) -> None:
        self._each = each
        self._draw = random.Random(seed)
        self._hostile: list[bytes] = []
        self._taken: dict[bytes, set[int]] = {}
        super().__init__(seed, shape, troubles)
        self.words = words(seed, self.stage.spaces)

    def run(self) -> Stage:
        found = super().run()
        self.heard = self.words.counts.total()
        return found

    def _point(self) -> None:
        for _ in range(self._each):
            self._harm()
        super()._point()

    def _harm(self) -> None:
        if len(self._hostile) < ROUTES:
            self._hostile.append(b"hostile" + self._route())
        route = self._draw.choice(self._hostile)
        if self._draw.random() > _STAYS:
            self._leaves(route)
        elif self._taken.get(route):
            self._gives_back(route, next(iter(self._taken[route])))
        else:
            self._seating.hear(route, self.words.next())

    def _leaves(self, route: bytes) -> None:
        self._hostile.remove(route)
        self._taken.pop(route, None)
        self._seating.lost(route)

    def _gives_back(self, route: bytes, seat: int) -> None:
        """In any way but a step that could be believed."""
        words, turn = self.words, self._draw.randrange(30)
        ways: list[Frames] = [
            [wire.pack("bye")],
            [wire.pack("fail", seat, "\x1b[2J" * 900)],
            [words.fitting()],
            *(words.unfit(seat, turn) for _ in range(3)),
        ]
        way = self._draw.choice(ways)
        if way[0] == wire.pack("bye") or way[0][1:7] == b"\xa5hello":
            self._taken.pop(route)
        self._seating.hear(route, way)

    def _send(self, route: bytes, frames: Frames) -> None:
        if route not in self._hostile:
            super()._send(route, frames)
            return
        kind, values = wire.unpack(frames[0])
        if kind == "take":
            self._taken.setdefault(route, set()).add(values[0])
        elif kind == "drop":
            self._taken.get(route, set()).discard(values[0])


@dataclass(frozen=True)
class Siege:
    """What came of many schedules."""

    kinds: Counter[str]
    schedules: int
    seconds: float
    held: bool  # the rollouts are those of an undisturbed run
    growth: Growth


def besiege(seed: int, count: int, words: Callable[[int, Spaces], Words] = Words) -> Siege:
    """Schedule after schedule, and half of the messages to the decoding layer alone."""
    expected, kinds, since = local(Shape()), Counter[str](), time.monotonic()
    schedules, held, each = 0, True, max(1, min(_MOST, count // _SCHEDULES))
    before, warm = Held(), 0
    while kinds.total() < count or schedules <= _WARM:
        siege = Besieged(seed + schedules, Shape(), TROUBLES, each, words)
        found = siege.run()
        held &= (found.hashes, found.ended, found.lost) == (expected.hashes, expected.ended, [])
        decode(siege.words, siege.words.counts.total())
        kinds += siege.words.counts
        schedules += 1
        if schedules == _WARM:
            del siege, found
            before, warm = Held(), kinds.total()
    del siege, found
    growth = Held().since(before, kinds.total() - warm)
    return Siege(kinds, schedules, time.monotonic() - since, held, growth)


def decode(words: Words, count: int) -> int:
    """So many messages to the layer that makes arrays of them; how many it took for honest ones.

    Whatever else it raises than `Malformed` is for the caller to see.
    """
    spaces = ReferenceWorld(1).spaces
    format_, taken = Format(spaces, 1), 0
    for _ in range(count):
        frames = words.next()
        try:
            kind, values = wire.unpack(frames[0])
            facts = values[-1] if kind == "stand" else {}
            format_.read_stand(facts, frames[1:])
            taken += 1
        except Malformed:
            pass
        with suppress(Malformed):
            format_.read_act([0], frames[-2:])
            taken += 1
    return taken
