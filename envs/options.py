"""Typed records from text: the options of a world, and every other value a person types.

A record is a frozen dataclass whose fields are declared with `option(default, "what it does")`.
Text becomes a field's type or a sentence says why it cannot: bool, int, float, str, Literal,
optional values, tuples, each with an optional `Range`.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
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

    def check(self, value: float) -> None:
        if self.low is not None and value < self.low:
            raise ValueError(f"must be at least {self.low:g}, got {value:g}")
        if self.high is not None and value > self.high:
            raise ValueError(f"must be at most {self.high:g}, got {value:g}")
        if self.above is not None and value <= self.above:
            raise ValueError(f"must be greater than {self.above:g}, got {value:g}")


def option(default: Any, text: str, *, changes_result: bool = True) -> Any:
    """A field of an options record: its default and what it does.

    What cannot change a result (a number of threads) is no part of an experiment's identity.
    """
    return dataclasses.field(
        default=default, metadata={"help": text, "changes_result": changes_result}
    )


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


def coerce(value: Any, kind: Any) -> Any:
    """`value` (text, or what YAML made of it) as `kind`; ValueError says why not."""
    origin = get_origin(kind)
    if origin is typing.Annotated:
        base, *bounds = get_args(kind)
        made = coerce(value, base)
        for bound in bounds:
            if made is not None and isinstance(bound, Range) and not isinstance(made, str):
                bound.check(made)
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
    listed = ", ".join(str(choice) for choice in choices)
    close = hint(str(value), [str(choice) for choice in choices]) if len(choices) > 8 else ""
    raise ValueError(f"must be one of {listed}, got {value!r}{close}")


def _union(value: Any, kinds: tuple[Any, ...]) -> Any:
    if type(None) in kinds and (value is None or str(value).lower() in _NONE):
        return None
    refusals = []
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return coerce(value, kind)
        except ValueError as error:
            refusals.append(str(error))
    raise ValueError(" or ".join(dict.fromkeys(refusals)))


def _tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        bare = re.sub(r"(?<=\d)x(?=\d)", ",", value.strip("[]()"))  # 84x84 is 84,84
        value = [part.strip() for part in bare.split(",") if part.strip()]
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"must be a list, got {value!r}")
    return tuple(coerce(part, kind) for part in value)


def _scalar(value: Any, kind: type) -> Any:
    if kind is bool:
        return _bool(value)
    if kind is int:
        return _int(value)
    if kind is float:
        return _float(value)
    if kind is str:
        if not isinstance(value, (str, int, float)):
            raise ValueError(f"must be text, got {value!r}")
        return str(value)
    raise TypeError(f"options of type {kind!r} are not supported")


def _bool(value: Any) -> bool:
    text = str(value).lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"must be true or false, got {value!r}")


def _int(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError(f"must be a whole number, got {value!r}")
    try:
        return int(str(value))
    except ValueError:
        pass
    try:
        number = float(str(value))  # 5e6 is a whole number too
    except ValueError:
        raise ValueError(f"must be a whole number, got {value!r}") from None
    if not math.isfinite(number) or number != int(number):
        raise ValueError(f"must be a whole number, got {value!r}")
    return int(number)


def _float(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(f"must be a number, got {value!r}")
    try:
        number = float(str(value))
    except ValueError:
        raise ValueError(f"must be a number, got {value!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"must be a finite number, got {value!r}")
    return number


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
