"""Tables of messages: which of them a run or a simulator accepts, and which it refuses.

The fuzzers show that every message is one or the other; these show which.
"""

from __future__ import annotations

import math
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import pytest

from hts.remote import wire
from hts.remote.hello import Hello
from hts.remote.wire import HEAD_LIMIT, PROTOCOL, Format, Malformed
from hts_envs.contract import Box, Discrete, MultiDiscrete, Spaces

SPACES = Spaces(
    {"place": Box((2,)), "card": Discrete(3), "pixel": Box((), "uint8", 0, 255)}, Discrete(4)
)
ROWS = 2
FORMAT = Format(SPACES, ROWS)
PLACE, CARD, PIXEL = bytes(16), bytes(16), bytes(2)
SHOWN = [PLACE, CARD, PIXEL]
LAST = [bytes(8), bytes(8), bytes(1)]  # of one row
FACTS = {"return": 1.0, "length": 2}
NAN, INF = math.nan, math.inf


def float32(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


def int64(*numbers: int) -> bytes:
    return np.array(numbers, "<i8").tobytes()


def ends(first: int, second: int) -> bytes:
    return bytes((first, second))


REWARD, GOES_ON = float32(0, 0), ends(0, 0)

STANDS_ACCEPTED: dict[str, tuple[dict[Any, Any], list[bytes]]] = {
    "no end": ({}, [REWARD, GOES_ON, *SHOWN]),
    "any finite reward": ({}, [float32(-3e38, 1e-40), GOES_ON, *SHOWN]),
    "the last choice": ({}, [REWARD, GOES_ON, PLACE, int64(2, 0), PIXEL]),
    "outside the bounds of a box": ({}, [REWARD, GOES_ON, float32(-9, 9, 1e30, 0), CARD, PIXEL]),
    "terminated": ({0: FACTS}, [REWARD, ends(1, 0), *SHOWN]),
    "truncated": ({1: FACTS}, [REWARD, ends(0, 2), *SHOWN, *LAST]),
    "both": ({0: FACTS}, [REWARD, ends(3, 0), *SHOWN]),
    "truncated and both": ({0: FACTS, 1: FACTS}, [REWARD, ends(2, 3), *SHOWN, *LAST]),
    "two truncated": ({0: FACTS, 1: FACTS}, [REWARD, ends(2, 2), *[2 * each for each in LAST * 2]]),
    "more facts": ({0: FACTS | {"score": -1}}, [REWARD, ends(1, 0), *SHOWN]),
    "64 facts": (
        {0: FACTS | {f"f{number}": 0 for number in range(62)}},
        [REWARD, ends(1, 0), *SHOWN],
    ),
}

STANDS_REFUSED: dict[str, tuple[dict[Any, Any], list[bytes]]] = {
    "a reward that is no number": ({}, [float32(0, NAN), GOES_ON, *SHOWN]),
    "an infinite reward": ({}, [float32(INF, 0), GOES_ON, *SHOWN]),
    "a negative infinite reward": ({}, [float32(0, -INF), GOES_ON, *SHOWN]),
    "no number at an end": ({0: FACTS}, [float32(NAN, 0), ends(1, 0), *SHOWN]),
    "a place that is no number": ({}, [REWARD, GOES_ON, float32(0, 0, 0, NAN), CARD, PIXEL]),
    "an infinite place": ({}, [REWARD, GOES_ON, float32(INF, 0, 0, 0), CARD, PIXEL]),
    "a choice too high": ({}, [REWARD, GOES_ON, PLACE, int64(0, 3), PIXEL]),
    "a choice below 0": ({}, [REWARD, GOES_ON, PLACE, int64(-1, 0), PIXEL]),
    "one reward": ({}, [float32(0), GOES_ON, *SHOWN]),
    "three rewards": ({}, [float32(0, 0, 0), GOES_ON, *SHOWN]),
    "one end": ({}, [REWARD, bytes(1), *SHOWN]),
    "three ends": ({}, [REWARD, bytes(3), *SHOWN]),
    "an end that there is not": ({0: FACTS}, [REWARD, ends(4, 0), *SHOWN]),
    "a field too short": ({}, [REWARD, GOES_ON, PLACE[1:], CARD, PIXEL]),
    "a field too long": ({}, [REWARD, GOES_ON, PLACE, CARD, PIXEL + b"\0"]),
    "fields in another order": ({}, [REWARD, GOES_ON, PLACE, PIXEL, CARD]),
    "a field less": ({}, [REWARD, GOES_ON, PLACE, CARD]),
    "a field more": ({}, [REWARD, GOES_ON, *SHOWN, PIXEL]),
    "no frames": ({}, []),
    "last ones without an end": ({}, [REWARD, GOES_ON, *SHOWN, *LAST]),
    "empty last ones without an end": ({}, [REWARD, GOES_ON, *SHOWN, b"", b"", b""]),
    "last ones of a termination": ({0: FACTS}, [REWARD, ends(1, 0), *SHOWN, *LAST]),
    "empty last ones of a termination": ({0: FACTS}, [REWARD, ends(1, 0), *SHOWN, b"", b"", b""]),
    "last ones of both": ({0: FACTS}, [REWARD, ends(3, 0), *SHOWN, *LAST]),
    "no last ones": ({0: FACTS}, [REWARD, ends(2, 0), *SHOWN]),
    "last ones of too many rows": ({0: FACTS}, [REWARD, ends(2, 0), *SHOWN, *SHOWN]),
    "a last one that is no number": (
        {0: FACTS},
        [REWARD, ends(2, 0), *SHOWN, float32(0, NAN), *LAST[1:]],
    ),
    "a last choice too high": (
        {0: FACTS},
        [REWARD, ends(2, 0), *SHOWN, LAST[0], int64(3), LAST[2]],
    ),
    "facts without an end": ({0: FACTS}, [REWARD, GOES_ON, *SHOWN]),
    "an end without facts": ({}, [REWARD, ends(1, 0), *SHOWN]),
    "facts of the other row": ({1: FACTS}, [REWARD, ends(1, 0), *SHOWN]),
    "facts of a row too many": ({0: FACTS, 1: FACTS}, [REWARD, ends(1, 0), *SHOWN]),
    "facts of rows as text": ({"0": FACTS}, [REWARD, ends(1, 0), *SHOWN]),
    "facts as a list": ({0: [1.0, 2]}, [REWARD, ends(1, 0), *SHOWN]),
    "65 facts": (
        {0: FACTS | {f"f{number}": 0 for number in range(63)}},
        [REWARD, ends(1, 0), *SHOWN],
    ),
    **{
        f"the facts {facts}": ({0: facts}, [REWARD, ends(1, 0), *SHOWN])
        for facts in (
            {"return": 1.0},
            {"length": 2},
            FACTS | {"": 1},
            FACTS | {"x" * 65: 1},
            FACTS | {"\x1b": 1},
            FACTS | {1: 1},
            FACTS | {"score": NAN},
            FACTS | {"score": -INF},
            FACTS | {"score": "1"},
            FACTS | {"score": True},
            FACTS | {"score": None},
        )
    },
}

SEEDS = bytes(16)
ACTS_ACCEPTED: dict[str, tuple[list[Any], list[bytes]]] = {
    "actions": ([], [int64(0, 3), SEEDS]),
    "actions and a row that begins": ([1], [int64(0, 3), SEEDS]),
    "actions and all rows begin": ([1, 0], [int64(0, 3), SEEDS]),
    "a row twice": ([1, 1], [int64(0, 3), SEEDS]),
    "all rows begin": ([0, 1], [b"", SEEDS]),
    "all rows begin, in another order": ([1, 0], [b"", SEEDS]),
}
ACTS_REFUSED: dict[str, tuple[list[Any], list[bytes]]] = {
    "no row begins": ([], [b"", SEEDS]),
    "the first row begins": ([0], [b"", SEEDS]),
    "the second row begins": ([1], [b"", SEEDS]),
    "one row begins twice": ([0, 0], [b"", SEEDS]),
    "a row too many": ([0, 1, 2], [b"", SEEDS]),
    "a row below 0": ([-1], [int64(0, 3), SEEDS]),
    "a row that there is not": ([2], [int64(0, 3), SEEDS]),
    "a row as text": (["0"], [int64(0, 3), SEEDS]),
    "a row as a float": ([0.0], [int64(0, 3), SEEDS]),
    "a row as a bool": ([False], [int64(0, 3), SEEDS]),
    "an action too high": ([], [int64(0, 4), SEEDS]),
    "an action below 0": ([], [int64(-1, 0), SEEDS]),
    "one action": ([], [int64(0), SEEDS]),
    "three actions": ([], [int64(0, 0, 0), SEEDS]),
    "one seed": ([], [int64(0, 3), bytes(8)]),
    "no seeds": ([], [int64(0, 3), b""]),
    "a frame less": ([], [int64(0, 3)]),
    "a frame more": ([], [int64(0, 3), SEEDS, b""]),
}

PLAIN = wire.spaces_to_plain(SPACES)
HELLO: dict[str, Any] = {
    "protocol": PROTOCOL,
    "name": "c++",
    "session": bytes(16),
    "run": "3f2a",
    "seats": 1,
    "rows": 1,
    "replayable": True,
    "spaces": PLAIN,
    "held": [[0, 5]],
}
HELLOS_ACCEPTED: dict[str, list[Any]] = {
    "name": ["x", "x" * 64, "ü"],
    "session": [b"0123456789abcdef"],
    "run": ["", "x" * 64],
    "seats": [1 << 16],
    "rows": [1 << 16],
    "replayable": [False],
    "held": [[], [[0, -1], [1, 1 << 40]]],
    "protocol": [2, 0, -1, 1 << 63],  # to be refused with a sentence
}
HELLOS_REFUSED: dict[str, list[Any]] = {
    "protocol": ["1", 1.0, None, True, [1], b"1"],
    "name": ["", "x" * 65, "\x1b[2J", "a\nb", b"x", 1, None],
    "session": ["0123456789abcdef", bytes(15), bytes(17), b"", None],
    "run": ["x" * 65, "\x07", b"3f2a", 1, None],
    "seats": [0, -1, (1 << 16) + 1, 1.0, True, "1", None],
    "rows": [0, -1, (1 << 16) + 1, 1.0, True, "1", None],
    "replayable": [1, 0, "true", None],
    "spaces": [None, [], {}, {**PLAIN, "more": 1}],
    "held": [None, {}, [0], [[0]], [[0, 1, 2]], [["0", 1]], [[0, 1.0]], [[-1, 0]], [[True, 1]]],
}

SPACE_LISTS_ACCEPTED: list[list[Any]] = [
    ["discrete", 1],
    ["discrete", 1 << 31],
    ["multidiscrete", [1, 1 << 31]],
    ["box", [], "float32", -INF, INF],
    ["box", [1] * 8, "bool", 0, 1],
    ["box", [2], "uint8", [0, 1], [254, 255]],
    ["box", [1 << 28], "float16", -1.0, 1],
]
SPACE_LISTS_REFUSED: list[Any] = [
    [],
    "discrete",
    ["discrete"],
    ["discrete", 0],
    ["discrete", (1 << 31) + 1],
    ["discrete", 2.0],
    ["discrete", True],
    ["discrete", 2, 2],
    ["multidiscrete", []],
    ["multidiscrete", 2],
    ["multidiscrete", [2, 0]],
    ["sphere", 2],
    ["box", [2], "float32", 0.0],
    ["box", [2], "float32", 0.0, 1.0, 1.0],
    ["box", 2, "float32", 0.0, 1.0],
    ["box", [0], "float32", 0.0, 1.0],
    ["box", [-1], "float32", 0.0, 1.0],
    ["box", [1] * 9, "float32", 0.0, 1.0],
    ["box", [(1 << 28) + 1], "uint8", 0, 1],
    ["box", [1 << 15, 1 << 14], "uint8", 0, 1],
    ["box", [2], "float8", 0.0, 1.0],
    ["box", [2], "object", 0.0, 1.0],
    ["box", [2], "complex64", 0.0, 1.0],
    ["box", [2], None, 0.0, 1.0],
    ["box", [2], "float32", "0", 1.0],
    ["box", [2], "float32", [0.0], 1.0],
    ["box", [2], "float32", [0.0, 0.0, 0.0], 1.0],
    ["box", [2], "float32", 0.0, [[1.0, 1.0]]],
    ["box", [2], "float32", True, 1.0],
]

HEADS_ACCEPTED: list[list[Any]] = [
    ["hello", {}],
    ["stand", 0, -1, {}],
    ["ping", []],
    ["fail", 0, ""],
    ["bye"],
    ["welcome", {}],
    ["take", 0, 0, 1, bytes(8)],
    ["act", 0, 1, []],
    ["again", 0, 1],
    ["drop", 0],
    ["who"],
    ["here"],
    ["refused", ""],
    ["over"],
]
HEADS_REFUSED: list[Any] = [
    [],
    {},
    "bye",
    None,
    [b"bye"],
    [1],
    ["Bye"],
    ["bye", 1],
    ["stand", 0, 1],
    ["stand", 0, 1, []],
    ["stand", 0, 1.0, {}],
    ["stand", True, 1, {}],
    ["ping", {}],
    ["fail", 0, b"why"],
    ["take", 0, 0, 1, "12345678"],
    ["drop", None],
]


@pytest.mark.parametrize("name", STANDS_ACCEPTED)
def test_a_run_takes_a_stand(name: str) -> None:
    """As it was sent."""
    facts, frames = STANDS_ACCEPTED[name]
    stand = FORMAT.read_stand(facts, frames)
    told = [stand.reward, stand.ends, *stand.observation.values(), *stand.final.values()]
    assert [array.tobytes() for array in told] == frames
    assert stand.facts == facts
    assert stand.goes_on is not bool(facts)


@pytest.mark.parametrize("name", STANDS_REFUSED)
def test_a_run_refuses_a_stand(name: str) -> None:
    with pytest.raises(Malformed):
        FORMAT.read_stand(*STANDS_REFUSED[name])


@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize("number", [NAN, INF, -INF])
def test_a_run_refuses_rewards_that_are_not_finite(number: float, count: int) -> None:
    """Few and many rows are looked at in different ways."""
    spaces = Spaces({"card": Discrete(3)}, Discrete(2))
    frames = [float32(*[0.0] * (count - 1), number), bytes(count), bytes(8 * count)]
    with pytest.raises(Malformed):
        Format(spaces, count).read_stand({}, frames)
    frames[0] = bytes(4 * count)
    Format(spaces, count).read_stand({}, frames)


@pytest.mark.parametrize("name", ACTS_ACCEPTED)
def test_a_simulator_takes_an_act(name: str) -> None:
    """None where there is no action."""
    begins, frames = ACTS_ACCEPTED[name]
    action, seeds = FORMAT.read_act(begins, frames)
    assert (b"" if action is None else action.tobytes(), seeds.tobytes()) == tuple(frames)
    assert (action is None) is (frames[0] == b"")


@pytest.mark.parametrize("name", ACTS_REFUSED)
def test_a_simulator_refuses_an_act(name: str) -> None:
    with pytest.raises(Malformed):
        FORMAT.read_act(*ACTS_REFUSED[name])


@pytest.mark.parametrize("field", HELLOS_ACCEPTED)
def test_a_run_takes_a_hello(field: str) -> None:
    """What it says stands in it."""
    assert vars(Hello.read(HELLO)) == HELLO | {"spaces": SPACES, "held": {0: 5}}
    for value in HELLOS_ACCEPTED[field]:
        found = getattr(Hello.read(HELLO | {field: value}), field)
        assert found == (dict(value) if field == "held" else value)


@pytest.mark.parametrize("field", HELLOS_REFUSED)
def test_a_run_refuses_a_hello(field: str) -> None:
    """With this value, without the field, and with one more."""
    less = {name: value for name, value in HELLO.items() if name != field}
    for facts in (less, HELLO | {"more": 1}, {}):
        with pytest.raises(Malformed):
            Hello.read(facts)
    for value in HELLOS_REFUSED[field]:
        with pytest.raises(Malformed):
            Hello.read(HELLO | {field: value})


def test_spaces_of_a_hello() -> None:
    """Taken as they are, or refused: spaces of actions and of fields, their names, and agents."""
    for space in SPACE_LISTS_ACCEPTED:
        found = wire.spaces_from_plain(PLAIN | {"action": space})
        assert wire.spaces_to_plain(found)["action"] == space
    for space in SPACE_LISTS_REFUSED:
        for spaces in ({"action": space}, {"observation": [["x", space]]}):
            with pytest.raises(Malformed):
                wire.spaces_from_plain(PLAIN | spaces)
    plain = ["discrete", 2]
    fields: list[Any] = [[], None, {"x": plain}, [["x"]], [[1, plain]], [["x", plain]] * 2]
    fields += [[[f"f{number}", plain] for number in range(65)]]
    for given in fields:
        with pytest.raises(Malformed):
            wire.spaces_from_plain(PLAIN | {"observation": given})
    for agents in (0, -1, (1 << 16) + 1, 1.0, True, None):
        with pytest.raises(Malformed):
            wire.spaces_from_plain(PLAIN | {"agents": agents})
    assert wire.spaces_from_plain(PLAIN | {"agents": 1 << 16}).agents == 1 << 16


def test_heads() -> None:
    """Of every kind that there is with values of its types, and of no other."""
    assert {values[0] for values in HEADS_ACCEPTED} == set(wire.KINDS)
    for values in HEADS_ACCEPTED:
        assert wire.unpack(msgpack.packb(values)) == (values[0], values[1:])
    raw = [msgpack.packb(values) for values in HEADS_REFUSED]
    bye = msgpack.packb(["bye"])
    raw += [b"", b"\xc1", bye[:-1], bye + b"\0", msgpack.packb(["fail", 0, "x" * HEAD_LIMIT])]
    raw += [msgpack.packb(["drop", msgpack.ExtType(1, b"x")]), msgpack.packb(["fail", 0, "x"])[:-1]]
    for head in raw:
        with pytest.raises(Malformed):
            wire.unpack(head)


def test_a_misfit_is_told_with_both_sides() -> None:
    """The first difference between the spaces, and another number of rows."""
    hello = Hello.read(HELLO)
    assert hello.misfit(SPACES, 1) is None
    differences = {
        "it steps 1 replicas together in each seat": (SPACES, 2),
        "its observation has the fields place, card, pixel; this run's has place": (
            Spaces({"place": Box((2,))}, Discrete(4)),
            1,
        ),
        "its observation 'card' is ": (
            Spaces({**SPACES.observation, "card": Discrete(2)}, Discrete(4)),
            1,
        ),
        "its action is ": (Spaces(SPACES.observation, MultiDiscrete((4,))), 1),
        "it has 1 agents; this run has 2": (Spaces(SPACES.observation, Discrete(4), 2), 1),
    }
    for sentence, (spaces, rows) in differences.items():
        assert (hello.misfit(spaces, rows) or "").startswith(sentence)
