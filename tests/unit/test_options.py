"""Typed records from text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hts_envs.errors import BadOption
from hts_envs.options import Range, build, coerce, describe, option, written


@dataclass(frozen=True)
class Engine:
    """Options of an imagined engine."""

    agents: Annotated[int, Range(1, 11)] = option(1, "controlled players")
    speed: Annotated[float, Range(above=0)] = option(1.0, "times real time")
    view: Literal["map", "pixels"] = option("map", "what is seen")
    limit: int | None = option(None, "steps; none: no limit")
    size: tuple[int, ...] = option((84, 84), "height and width")
    full: bool = option(False, "all actions")
    path: str = option("", "where")


def test_text_becomes_the_declared_type() -> None:
    """Every kind of option is read from what a person types."""
    given = {"agents": "3", "speed": "2e-1", "view": "pixels", "limit": "1e3", "size": "72x96"}
    made = build(Engine, given | {"full": "yes", "path": "a/b"}, "engine")
    assert made == Engine(3, 0.2, "pixels", 1000, (72, 96), True, "a/b")


def test_every_mistake_is_told_at_once() -> None:
    """Unknown names with the nearest one, wrong types and wrong ranges, in one error."""
    with pytest.raises(BadOption) as caught:
        build(Engine, {"agnets": "3", "agents": "12", "view": "radar", "speed": "fast"}, "engine")
    told = str(caught.value)
    assert "engine has no option 'agnets' (did you mean 'agents'?)" in told
    assert "option agents must be a whole number from 1 to 11, not 12" in told
    assert "option view must be map or pixels, not 'radar'" in told
    assert "option speed must be a number above 0, not 'fast'" in told


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("none", int | None, None),
        (None, int | None, None),
        ("5", int | None, 5),
        ("auto", Annotated[int, Range(1)] | Literal["auto"], "auto"),
        ("[1,2]", tuple[int, ...], (1, 2)),
        ([1, "2"], tuple[int, ...], (1, 2)),
        ("off", bool, False),
        (0.5, float, 0.5),
        (7, str, "7"),
    ],
)
def test_coerce_takes_what_yaml_and_shells_give(value: Any, kind: Any, expected: Any) -> None:
    """Text, numbers and lists arrive from different places and mean the same."""
    assert coerce(value, kind) == expected


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        (True, int, "whole number"),
        (True, float, "a number"),
        ("inf", float, "must be a number, not 'inf'"),
        ("inf", int, "whole number"),
        ("1.5", int, "whole number"),
        ("maybe", bool, "true or false"),
        ("x", int | None, "whole number"),
        (3, tuple[int, ...], "a list"),
        ([1], str, "text"),
        ("0", Annotated[int, Range(1)], "must be a whole number from 1, not 0"),
        ("0", Annotated[int, Range(1)] | Literal["auto"], "auto or a whole number from 1, not 0"),
        ("x", tuple[Annotated[int, Range(1)], ...], "must be a list of whole numbers from 1, not"),
        ("9", Annotated[float, Range(high=1)], "must be a number of at most 1, not 9"),
        ("x", int | tuple[int, ...], "must be a whole number, not 'x'"),
        ("x", tuple[Literal["a", "b"], ...] | None, "must be none or a list of a or b, not 'x'"),
    ],
)
def test_coerce_refuses_with_a_sentence(value: Any, kind: Any, sentence: str) -> None:
    """What cannot be meant is refused, and the sentence says what was expected."""
    with pytest.raises(ValueError, match=sentence):
        coerce(value, kind)


@given(
    st.builds(
        Engine,
        st.integers(1, 11),
        st.floats(1e-6, 1e6),
        st.sampled_from(["map", "pixels"]),
        st.none() | st.integers(0, 10**9),
        st.lists(st.integers(1, 999), min_size=1).map(tuple),
        st.booleans(),
        st.just("somewhere"),
    )
)
def test_what_is_written_reads_back(record: Engine) -> None:
    """`written` gives text that `build` turns into the same record."""
    text = {name: written(value) for name, value in vars(record).items()}
    assert build(Engine, text, "engine") == record


def test_describe_lists_what_a_person_needs() -> None:
    """Name, kind with its bounds, default and meaning, in the order of declaration."""
    first, second, third, *_ = describe(Engine)
    assert (first.name, first.kind, first.default) == ("agents", "whole number >= 1 and <= 11", "1")
    assert second.kind == "number > 0"
    assert (third.kind, third.text) == ("map|pixels", "what is seen")
    assert [d.kind for d in describe(Engine)][3:5] == [
        "whole number|none",
        "list of whole numbers",
    ]
