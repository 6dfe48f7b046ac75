"""What somebody who means harm may say, as Hypothesis makes it: from the protocol's own grammar.

Every message has the form of one that there is, or nearly: values of the right types and of others,
frames of the right sizes and of others. Where one does harm, Hypothesis makes it smaller until
nothing can be left out. `hostile.Words` draws others, from a seed, and a thousand times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgpack  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from hts.remote import wire
from hts.remote.hello import Hello
from hts.remote.wire import PROTOCOL, Format, Frames, Malformed
from hts_envs.contract import Spaces
from hts_envs.reference import ReferenceWorld
from tests.remote.besieged import TROUBLES, Besieged
from tests.remote.hostile import EDGES, SEATS, TEXTS, TURNS, Words
from tests.remote.schedules import Shape, local

SPACES = ReferenceWorld(1).spaces
_EACH = 4  # messages before each thing that honest simulators do
_FEW, _MANY = 20, 60  # messages of one example
_SIZES = (0, 1, 4, 8, 16, 32, 64)  # of frames: those of the reference simulator's, and others

wholes = st.integers(0, SEATS) | st.sampled_from(EDGES) | st.integers(-(1 << 63), (1 << 64) - 1)
texts = st.sampled_from(TEXTS) | st.text(st.characters(codec="utf-8"), max_size=9)
leaves = st.none() | st.booleans() | wholes | st.floats() | texts | st.binary(max_size=20)
things = st.recursive(
    leaves,
    lambda each: st.lists(each, max_size=4) | st.dictionaries(leaves, each, max_size=4),
    max_leaves=9,
)
numbers = st.floats() | wholes
facts = st.dictionaries(
    st.integers(0, 1) | leaves,
    st.fixed_dictionaries({"return": numbers, "length": numbers}) | things,
    max_size=2,
)
_bounds = st.floats() | st.lists(st.floats() | things, max_size=3)
_shapes = st.lists(st.integers(0, 9) | wholes, max_size=3) | things
_dtypes = st.sampled_from(("uint8", "float32", "float8", "object", "bool")) | texts
_space = (
    st.tuples(st.just("box"), _shapes, _dtypes, _bounds, _bounds)
    | st.tuples(st.just("discrete"), wholes)
    | st.tuples(st.just("multidiscrete"), st.lists(wholes, max_size=3))
    | things
)
_plain = st.fixed_dictionaries(
    {
        "observation": st.lists(st.tuples(texts, _space), max_size=3) | things,
        "action": _space,
        "agents": wholes,
    }
)
_places = st.lists(st.tuples(wholes, st.integers(-1, TURNS) | wholes) | things, max_size=4)


def hellos(spaces: Spaces) -> st.SearchStrategy[dict[str, Any]]:
    """Handshakes; some are of simulators that fit.

    None of these says that it cannot begin an episode again: that would cost the one that runs
    where a seat is free, as the run then says.
    """
    return st.fixed_dictionaries(
        {
            "protocol": st.just(PROTOCOL) | wholes,
            "name": st.just("x") | texts,
            "session": st.binary(min_size=16, max_size=16) | st.binary(max_size=17),
            "run": texts,
            "seats": st.integers(1, 3) | wholes,
            "rows": st.just(1) | wholes,
            "replayable": st.just(True) | leaves.filter(lambda each: each is not False),
            "spaces": st.just(wire.spaces_to_plain(spaces)) | _plain | things,
            "held": _places | things,
        },
        optional={"more": things},
    )


def _values(kind: str) -> st.SearchStrategy[list[Any]]:
    """Of the right types, mostly."""
    by_type: dict[type, st.SearchStrategy[Any]] = {
        int: wholes,
        str: texts,
        bytes: st.binary(max_size=9),
        list: _places,
        dict: facts if kind == "stand" else hellos(SPACES),
    }
    right = st.tuples(*(by_type[each] for each in wire.KINDS[kind])).map(list)
    return right | st.lists(things, max_size=4)


kinds = st.sampled_from(sorted(wire.KINDS))
heads = kinds.flatmap(lambda kind: _values(kind).map(lambda values: [kind, *values])) | things
raw = st.sampled_from(_SIZES).map(bytes) | st.binary(max_size=70)


@st.composite
def messages(draw: st.DrawFn) -> Frames:
    """A head and its frames; the head may have been cut or written over."""
    head = b""
    with suppress(ValueError, OverflowError):  # what msgpack cannot say is not said
        head = bytes(msgpack.packb(draw(heads)))
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(head)))
        head = head[:at] + draw(st.binary(max_size=5)) + head[at + draw(st.integers(0, 5)) :]
    return [head, *draw(st.lists(raw, max_size=7))]


class Listed(Words):
    """Says these, one after the other, and then again."""

    def __init__(self, said: Sequence[Frames], seed: int, spaces: Spaces) -> None:
        super().__init__(seed, spaces)
        self._said = _again(said)

    def next(self) -> Frames:
        self.counts["generated"] += 1
        return next(self._said)


def _again(said: Sequence[Frames]) -> Iterator[Frames]:
    while True:
        yield from map(list, said)


def read(frames: Frames) -> str:
    """To the layers that read what comes: its kind, or nothing where it is malformed.

    Whatever else they raise, and whatever of another type they let through, is for the caller.
    """
    form = Format(SPACES, 1)
    with suppress(Malformed):
        form.read_act([0], frames[1:])
    try:
        kind, values = wire.unpack(frames[0])
        assert tuple(map(type, values)) == wire.KINDS[kind], "values are of the kind's types"
        if kind == "hello":
            Hello.read(*values).misfit(SPACES, 1)
        if kind == "stand":
            form.read_stand(values[-1], frames[1:])
    except Malformed:
        return ""
    return kind


def disturbs(said: Sequence[Frames], number: int) -> bool:
    """Said between the messages of honest simulators, these change what comes of them."""
    besieged = Besieged(number, Shape(), TROUBLES, _EACH, partial(Listed, said))
    found, expected = besieged.run(), local(Shape())
    return (found.hashes, found.ended, found.lost) != (expected.hashes, expected.ended, [])


def tried(examples: int, number: int) -> tuple[int, int]:
    """So many lists of messages, all of which disturb nobody: messages, and how many were heard."""
    count = well_formed = 0

    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(messages(), min_size=_FEW, max_size=_MANY), st.integers(0, 1 << 30))
    def holds(said: list[Frames], order: int) -> None:
        nonlocal count, well_formed
        count += len(said)
        well_formed += sum(bool(read(frames)) for frames in said)
        assert not disturbs(said, order)

    holds()
    return count, well_formed
