"""The messages between a run and the simulators that dial in: bytes out, checked values in.

A message is a head and, behind it, one raw frame for each array. The head is a msgpack array: the
kind of the message, then its values. Arrays are little-endian and in C order; their dtypes and
shapes follow from the agreed spaces, so that nothing on the wire says how large anything is.
Nothing is looked at that is not exactly as agreed. `PROTOCOL.md` beside this file says the same
for people who write a client in another language.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgpack  # type: ignore[import-untyped]
import numpy as np

from hts_envs.contract import Array, Box, Discrete, MultiDiscrete, Observation, Space, Spaces
from hts_envs.finite import are_finite

PROTOCOL = 1
HEAD_LIMIT = 1 << 20
"""Bytes of the largest head: a handshake whose spaces have a bound for each number of an image."""
TEXT_LIMIT = 4096
"""Characters of the longest sentence that one side tells the other."""
TERMINATED, TRUNCATED = 1, 2

Frames: TypeAlias = list[bytes]

_NAME_LIMIT = 64
_SHOWN = 200  # characters in the log: an image may have thousands of bounds
_SHORT = 128  # bytes of a head that can do no harm, whatever it says
_FACTS_LIMIT = 64
_NUMBERS_LIMIT = 1 << 28  # of one observation: a gigabyte of float32
_DTYPES = frozenset(
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)
) - {"float8"} | {"bool"}

KINDS: Mapping[str, tuple[type, ...]] = {
    # From a simulator:
    "hello": (dict,),  # who it is, what it offers, where its seats stand
    "stand": (int, int, dict),  # seat, turn, facts of ended episodes by row; arrays behind it
    "ping": (list,),  # (seat, turn) of everything that it waits for an answer to
    "fail": (int, str),  # this seat's simulator cannot go on, and why
    "bye": (),
    # From a run:
    "welcome": (dict,),
    "take": (int, int, int, bytes),  # seat, its first replica, how many, the seed to build with
    "act": (int, int, list),  # seat, turn of the answer, rows to begin; actions and seeds behind
    "again": (int, int),  # seat, turn: say that once more
    "drop": (int,),  # this seat is somebody else's now
    "who": (),  # hello, please
    "here": (),  # still here
    "refused": (str,),
    "over": (),  # the run needs no simulators any more
}


class Malformed(Exception):
    """A message that is not as agreed; the text says in what."""


def pack(kind: str, *values: Any) -> bytes:
    """A head."""
    return bytes(msgpack.packb((kind, *values)))


def unpack(head: bytes) -> tuple[str, list[Any]]:
    """Kind and values of a head, of the types that the kind has."""
    if len(head) > HEAD_LIMIT:
        raise Malformed("its head is too long")
    try:
        if len(head) > _SHORT:  # time and memory are taken for what lists say that they hold
            whole = msgpack.Unpacker(max_buffer_size=HEAD_LIMIT)
            whole.feed(head)
            whole.skip()
        found = msgpack.unpackb(head, strict_map_key=False, max_ext_len=0)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
        raise Malformed("its head is no msgpack") from None
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        raise Malformed("its head does not begin with its kind")
    kind, *values = found
    types = KINDS.get(kind)
    if types is None or len(values) != len(types):
        raise Malformed("its head is of no kind that there is")
    if tuple(map(type, values)) != types:
        raise Malformed(f"the head of its {kind!r} holds other values")
    return kind, values


def told(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return a text from the wire fit for a terminal: without control characters, and short."""
    cut = text if len(text) <= limit else f"{text[:limit]}..."
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in cut)


def shown(what: object) -> str:
    """Return anything from the wire as a part of one line of the log."""
    return told(str(what), _SHOWN).replace("\n", " ")


# --- spaces ---------------------------------------------------------------------------------------


def spaces_to_plain(spaces: Spaces) -> dict[str, Any]:
    """Spaces as lists and numbers; fields keep their order."""
    return {
        "observation": [[name, _to_plain(space)] for name, space in spaces.observation.items()],
        "action": _to_plain(spaces.action),
        "agents": spaces.agents,
    }


def spaces_from_plain(plain: Any) -> Spaces:
    """The same back; Malformed where it describes none."""
    if not isinstance(plain, dict) or set(plain) != {"observation", "action", "agents"}:
        raise Malformed("its spaces have an observation, an action and agents, and nothing else")
    fields = plain["observation"]
    if not isinstance(fields, list) or not 1 <= len(fields) <= _FACTS_LIMIT:
        raise Malformed("its observation is a list of named spaces")
    observation: dict[str, Space] = {}
    for each in fields:
        if not (isinstance(each, list) and len(each) == 2 and is_name(each[0])):
            raise Malformed("a field of its observation has a name and a space")
        observation[each[0]] = _from_plain(each[1])
    if len(observation) != len(fields):
        raise Malformed("two fields of its observation have one name")
    agents = _whole(plain["agents"], 1, 1 << 16, "agents")
    return Spaces(observation, _from_plain(plain["action"]), agents)


def _to_plain(space: Space) -> list[Any]:
    if isinstance(space, Discrete):
        return ["discrete", space.n]
    if isinstance(space, MultiDiscrete):
        return ["multidiscrete", list(space.nvec)]
    return ["box", list(space.shape), space.dtype, _listed(space.low), _listed(space.high)]


def _from_plain(plain: Any) -> Space:
    if not isinstance(plain, list) or not plain:
        raise Malformed("a space is a list that begins with its kind")
    kind, *values = plain
    if kind == "discrete" and len(values) == 1:
        return Discrete(_whole(values[0], 1, 1 << 31, "choices"))
    if kind == "multidiscrete" and len(values) == 1 and isinstance(values[0], list) and values[0]:
        return MultiDiscrete(tuple(_whole(n, 1, 1 << 31, "choices") for n in values[0]))
    if kind == "box" and len(values) == 4:
        return _box(*values)
    raise Malformed("a space is a box, discrete or multidiscrete")


def _box(shape: Any, dtype: Any, low: Any, high: Any) -> Box:
    if not isinstance(shape, list) or len(shape) > 8:
        raise Malformed("the shape of a box is a short list")
    sizes = tuple(_whole(size, 1, _NUMBERS_LIMIT, "size") for size in shape)
    if math.prod(sizes) > _NUMBERS_LIMIT:
        raise Malformed("a box is too large")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise Malformed("a box has one of numpy's dtypes of numbers, such as uint8 or float32")
    return Box(sizes, dtype, _bound(low, sizes), _bound(high, sizes))


def _bound(given: Any, shape: tuple[int, ...]) -> float | tuple[Any, ...]:
    """One number, or nested lists of the box's shape."""
    if type(given) in (int, float):
        return float(given)
    try:
        array = np.asarray(given, np.float64)
    except (ValueError, TypeError, OverflowError):
        array = np.empty(0)
    if not isinstance(given, list) or array.shape != shape:
        raise Malformed("a bound of a box is a number, or lists of numbers of its shape")
    nested = _nested(array.tolist())
    assert isinstance(nested, tuple), "a box with a list of bounds has a shape"
    return nested


def _nested(values: Any) -> Any:
    return tuple(_nested(value) for value in values) if isinstance(values, list) else values


def _listed(bound: Any) -> Any:
    return [_listed(each) for each in bound] if isinstance(bound, tuple) else float(bound)


def _whole(value: Any, least: int, most: int, what: str) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Malformed(f"{what}: a whole number from {least} to {most}")
    return value


def is_name(value: Any) -> bool:
    """A short text without control characters."""
    return isinstance(value, str) and 0 < len(value) <= _NAME_LIMIT and value.isprintable()


# --- what stands behind a head --------------------------------------------------------------------


class Stand(NamedTuple):
    """Where a seat stands behind a turn: what its next actions are decided on, and what led there.

    `final` holds the last observations of truncated episodes, in the order of their rows.
    """

    observation: Observation
    reward: Array
    ends: Array
    final: Observation
    facts: Mapping[int, Mapping[str, float]]

    @property
    def goes_on(self) -> bool:
        """No episode ends here."""
        return not self.facts

    @property
    def terminated(self) -> Array:
        return np.asarray(self.ends & TERMINATED != 0)

    @property
    def truncated(self) -> Array:
        return np.asarray(self.ends & TRUNCATED != 0)

    @property
    def cut(self) -> Array:
        """The rows that `final` belongs to: truncated, and not terminated as well."""
        return np.flatnonzero(self.ends == TRUNCATED)


class _Kind(NamedTuple):
    """What one row of a frame holds."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int  # in bytes

    @staticmethod
    def of(space: Space, agents: int) -> _Kind:
        dtype, shape = np.dtype(space.dtype).newbyteorder("<"), (agents, *space.shape)
        return _Kind(dtype, shape, dtype.itemsize * math.prod(shape))


def _limit(space: Space) -> Array | None:
    """What choices are below; None where there is nothing to choose from."""
    if isinstance(space, Box):
        return None
    return np.asarray(space.n if isinstance(space, Discrete) else space.nvec)


_END, _SEED = _Kind(np.dtype("u1"), (), 1), _Kind(np.dtype("<u8"), (), 8)


class Format:
    """The frames of one seat: how large each is, and what it means."""

    def __init__(self, spaces: Spaces, rows: int) -> None:
        self.rows = rows
        self.agents = spaces.agents
        self._fields = [
            (name, _Kind.of(space, spaces.agents), _limit(space))
            for name, space in spaces.observation.items()
        ]
        self._reward = _Kind(np.dtype("<f4"), (spaces.agents,), 4 * spaces.agents)
        self._action = _Kind.of(spaces.action, spaces.agents)
        self._choices = _limit(spaces.action)
        self._no_ends = bytes(rows)
        self._none = np.zeros(rows, np.uint8)
        self._none.flags.writeable = False

    @property
    def largest(self) -> int:
        """Bytes of the largest frame."""
        return max(HEAD_LIMIT, 8 * self.rows * self.agents, *self._largest())

    def _largest(self) -> list[int]:
        return [kind.size * self.rows for _, kind, _ in self._fields]

    def stand(self, seat: int, turn: int, stand: Stand) -> Frames:
        """A seat says where it stands."""
        arrays = [stand.reward, stand.ends, *stand.observation.values(), *stand.final.values()]
        facts = {row: dict(facts) for row, facts in stand.facts.items()} if stand.facts else {}
        return [pack("stand", seat, turn, facts), *[array.tobytes() for array in arrays]]

    def read_stand(self, facts: dict[Any, Any], frames: Sequence[bytes]) -> Stand:
        """What it said; Malformed where anything is not as agreed."""
        count = len(self._fields)
        if len(frames) not in (2 + count, 2 + 2 * count):
            raise Malformed("its stand has another number of frames")
        reward = _read(frames[0], self._reward, self.rows)
        if not are_finite(reward):
            raise Malformed("its rewards are finite")
        observation = self._observation(frames[2 : 2 + count], self.rows)
        if frames[1] == self._no_ends and len(frames) == 2 + count and not facts:
            return Stand(observation, reward, self._none, {}, {})
        ends = _read(frames[1], _END, self.rows)
        if ends.max() > TERMINATED + TRUNCATED:
            raise Malformed("its ends are 0, 1, 2 or 3")
        cut = int((ends == TRUNCATED).sum())
        if (cut > 0) != (len(frames) > 2 + count):
            raise Malformed("final observations stand behind a truncation, and only there")
        final = self._observation(frames[2 + count :], cut) if cut else {}
        return Stand(observation, reward, ends, final, _facts(facts, ends))

    def _observation(self, frames: Sequence[bytes], rows: int) -> Observation:
        found = {}
        for frame, (name, kind, limit) in zip(frames, self._fields, strict=True):
            array = _read(frame, kind, rows)
            if kind.dtype.kind == "f" and not are_finite(array):
                raise Malformed(f"a number of its observation {name!r} is not finite")
            if limit is not None and not _are_choices(array, limit):
                raise Malformed(f"a number of its observation {name!r} is none of its choices")
            found[name] = array
        return found

    def act(self, seat: int, turn: int, begins: list[int], action: bytes, seeds: bytes) -> Frames:
        """What a seat has to do next; without an action, every row begins an episode."""
        return [pack("act", seat, turn, begins), action, seeds]

    def read_act(self, begins: list[Any], frames: Sequence[bytes]) -> tuple[Array | None, Array]:
        """The action of every row (None: all begin an episode), and the seeds of the next ones."""
        if len(frames) != 2:
            raise Malformed("an answer is a head, actions and seeds")
        if begins and any(type(row) is not int or not 0 <= row < self.rows for row in begins):
            raise Malformed("the rows that begin are rows of the seat")
        action = self._read_action(frames[0]) if frames[0] else None
        if action is None and len(set(begins)) != self.rows:
            raise Malformed("without actions every row begins")
        return action, _read(frames[1], _SEED, self.rows)

    def _read_action(self, frame: bytes) -> Array:
        action = _read(frame, self._action, self.rows)
        if self._choices is not None and not _are_choices(action, self._choices):
            raise Malformed("an action is none of its choices")
        return action


def _read(frame: bytes, kind: _Kind, rows: int) -> Array:
    """A frame as the array that was agreed; it is of no other size."""
    if len(frame) != kind.size * rows:
        raise Malformed("a frame has another size than the agreed spaces give it")
    return np.ndarray((rows, *kind.shape), kind.dtype, frame)


def _are_choices(array: Array, limit: Array) -> bool:
    """Return whether these numbers count from 0 and are all below their limit."""
    if array.size == 1:
        return bool(0 <= array.item() < limit.item())
    return bool(((array >= 0) & (array < limit)).all())


def _facts(facts: dict[Any, Any], ends: Array) -> dict[int, dict[str, float]]:
    """The facts of each row that ended: at least its return and its length."""
    if len(facts) > len(ends) or set(facts) != set(np.flatnonzero(ends).tolist()):
        raise Malformed("the facts are those of the rows that ended")
    for told in facts.values():
        if not isinstance(told, dict) or len(told) > _FACTS_LIMIT:
            raise Malformed("the facts of an episode are a short map")
        if not {"return", "length"} <= set(told) or not all(map(is_name, told)):
            raise Malformed("the facts of an episode have names, return and length among them")
        if not all(type(fact) in (int, float) and math.isfinite(fact) for fact in told.values()):
            raise Malformed("the facts of an episode are finite numbers")
    return {row: {name: float(fact) for name, fact in told.items()} for row, told in facts.items()}
