"""Typed records from text: the options of a world, and every other value a person types.

A record is a frozen dataclass whose fields are declared with `option(default, "what it does")`.
Text becomes a field's type or a sentence says why it cannot: bool, int, float, str, Literal,
optional values, tuples, each with an optional `Range`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin

from hts_envs.errors import BadOption
from hts_envs.spelling import hint

Record = TypeVar("Record")

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_NONE = ("none", "null", "")


@dataclass(frozen=True)
class Range:
    """Bounds of a number, for use in `Annotated[int, Range(1)]`; both ends belong to it."""

    low: float | None = None
    high: float | None = None
    above: float | None = None

    def holds(self, value: float) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
        )

    def __str__(self) -> str:
        """Return the bounds in words that follow `a number`."""
        parts = (("from", self.low), ("above", self.above), ("to", self.high))
        limits = [(word, limit) for word, limit in parts if limit is not None]
        if [word for word, _ in limits] == ["to"]:
            limits = [("of at most", limits[0][1])]
        return " ".join(f"{word} {_plain(limit)}" for word, limit in limits)


def _plain(limit: float) -> str:
    return str(int(limit)) if float(limit).is_integer() else f"{limit:g}"


def option(
    default: Any, text: str, *, changes_result: bool = True, always_spelled: bool = True
) -> Any:
    """A field of an options record: its default and what it does.

    What cannot change a result (a number of threads) is no part of an experiment's identity. Nor is
    the default of an option that is not `always_spelled`: one that came later than runs that have
    to keep their identity.
    """
    metadata = {"help": text, "changes_result": changes_result, "always_spelled": always_spelled}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Described:
    """One option as a person reads it."""

    name: str
    kind: str
    default: str
    text: str


def describe(record: type[Any]) -> list[Described]:
    """The options of a record, in the order in which they are declared."""
    hints = typing.get_type_hints(record, include_extras=True)
    return [
        Described(
            field.name,
            kind_of(hints[field.name]),
            written(field.default),
            str(field.metadata.get("help", "")),
        )
        for field in dataclasses.fields(record)
    ]


def build(record: type[Record], given: Mapping[str, str], owner: str) -> Record:
    """The record with these options; every violation is reported at once."""
    hints = typing.get_type_hints(record, include_extras=True)
    values: dict[str, Any] = {}
    problems = []
    for name, text in given.items():
        if name not in hints:
            problems.append(f"{owner} has no option {name!r}{hint(name, hints)}")
            continue
        try:
            values[name] = coerce(text, hints[name])
        except ValueError as error:
            problems.append(f"{owner}: option {name} {error}")
    if problems:
        raise BadOption("; ".join(problems))
    return record(**values)


class _Refused(Exception):
    """A value that is not of a kind; `coerce` says which kind was expected."""


def coerce(value: Any, kind: Any) -> Any:
    """`value` (text, or what YAML made of it) as `kind`; ValueError says what was expected."""
    try:
        return _read(value, kind)
    except _Refused:
        raise ValueError(
            f"must be {expected(kind)}, not {shown(value)}{_near(value, kind)}"
        ) from None


def shown(value: Any) -> str:
    """Return a value as a message names it: words in quotes, numbers plain."""
    text = str(value)
    return (
        text
        if isinstance(value, str) and re.fullmatch(r"[-+]?[\d.][\w.+-]*", text)
        else repr(value)
    )


def expected(kind: Any) -> str:
    """Return what a person may type for a type: `auto or a whole number from 1`."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        bounds = [str(bound) for bound in parts[1:] if isinstance(bound, Range)]
        return " ".join([expected(parts[0]), *bounds])
    if origin is Literal:
        return either([str(choice) for choice in parts])
    if origin in (typing.Union, types.UnionType):
        return either([expected(part) for part in _in_order(parts)])
    if origin is tuple:
        return "a list of " + re.sub(r"\ba ((whole )?number)", r"\1s", expected(parts[0]))
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return names.get(kind, "none")


def _in_order(parts: Sequence[Any]) -> list[Any]:
    """Return the alternatives of a type, words first, without a list of what may stand alone."""
    words = [part for part in parts if part is type(None) or get_origin(part) is Literal]
    others = [part for part in parts if part not in words]
    alone = [part for part in others if get_origin(part) is not tuple]
    choices = [part for part in words if part is not type(None)]
    return [*words, *(alone if alone or choices else others)]


def either(words: Sequence[str]) -> str:
    """Return words as alternatives: `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _near(value: Any, kind: Any) -> str:
    """Return a hint where there are too many choices to compare by eye."""
    choices = [str(choice) for choice in get_args(kind)] if get_origin(kind) is Literal else []
    return hint(str(value), choices) if len(choices) > 8 else ""


def _read(value: Any, kind: Any) -> Any:
    """`value` as `kind`; _Refused where it is not."""
    origin = get_origin(kind)
    if origin is typing.Annotated:
        base, *bounds = get_args(kind)
        made = _read(value, base)
        for bound in bounds:
            if isinstance(bound, Range) and isinstance(made, int | float) and not bound.holds(made):
                raise _Refused
        return made
    if origin is Literal:
        return _choice(value, get_args(kind))
    if origin in (typing.Union, types.UnionType):
        return _union(value, get_args(kind))
    if origin is tuple:
        return _tuple(value, get_args(kind)[0])
    return _scalar(value, kind)


def _choice(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if value == choice or str(value) == str(choice):
            return choice
    raise _Refused


def _union(value: Any, kinds: tuple[Any, ...]) -> Any:
    if type(None) in kinds and (value is None or str(value).lower() in _NONE):
        return None
    for kind in kinds:
        if kind is not type(None):
            with contextlib.suppress(_Refused):
                return _read(value, kind)
    raise _Refused


def _tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        bare = re.sub(r"(?<=\d)x(?=\d)", ",", value.strip("[]()"))  # 84x84 is 84,84
        value = [part.strip() for part in bare.split(",") if part.strip()]
    if not isinstance(value, (list, tuple)):
        raise _Refused
    return tuple(_read(part, kind) for part in value)


def _scalar(value: Any, kind: type) -> Any:
    if kind is bool:
        return _bool(value)
    if kind is int:
        return _int(value)
    if kind is float:
        return _float(value)
    if kind is str:
        if not isinstance(value, (str, int, float)):
            raise _Refused
        return str(value)
    raise TypeError(f"options of type {kind!r} are not supported")


def _bool(value: Any) -> bool:
    text = str(value).lower()
    if text not in (*_TRUE, *_FALSE):
        raise _Refused
    return text in _TRUE


def _int(value: Any) -> int:
    with contextlib.suppress(ValueError):
        return int(_number(value))
    number = _float(value)  # 5e6 is a whole number too
    if number != int(number):
        raise _Refused
    return int(number)


def _float(value: Any) -> float:
    try:
        number = float(_number(value))
    except ValueError:
        raise _Refused from None
    if not math.isfinite(number):
        raise _Refused
    return number


def _number(value: Any) -> str:
    if isinstance(value, bool):
        raise _Refused
    return str(value)


def kind_of(kind: Any) -> str:
    """A type as a person reads it: `whole number`, `a|b|c`, ..."""
    origin = get_origin(kind)
    if origin is typing.Annotated:
        base, *bounds = get_args(kind)
        return " ".join([kind_of(base), *(_bounds(b) for b in bounds if isinstance(b, Range))])
    if origin is Literal:
        return "|".join(str(choice) for choice in get_args(kind))
    if origin in (typing.Union, types.UnionType):
        return "|".join(kind_of(part) for part in get_args(kind))
    if origin is tuple:
        return f"list of {kind_of(get_args(kind)[0])}".replace("number", "numbers", 1)
    names = {bool: "true|false", int: "whole number", float: "number", str: "text"}
    return names.get(kind, "none")


def _bounds(bounds: Range) -> str:
    parts = [
        f"{sign} {limit:g}"
        for sign, limit in ((">=", bounds.low), (">", bounds.above), ("<=", bounds.high))
        if limit is not None
    ]
    return " and ".join(parts)


def written(value: Any) -> str:
    """A value as it can be typed again."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(written(part) for part in value)
    if value is dataclasses.MISSING:
        return ""
    return "none" if value is None else str(value)
