"""The keyword parameters of a callable as options that a person can type.

A parameter's type is its annotation's where that can be typed, else its default's. What neither
tells is read as JSON where it is JSON (`true`, `3`, `{"a": 1}`) and as plain text where it is not.
A parameter whose default cannot be written down as text is left out: it keeps its default.

Where options are *spread*, a value in square brackets gives each replica its own: replica r takes
entry r modulo the length, so `port=[5001,5002]` alternates. A parameter that is itself a list is
the same for every replica.

`seed`, `replica` and `replicas` are never options: they are told where the world is built.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from hts_envs.contract import Place
from hts_envs.errors import BadOption
from hts_envs.isolation import Isolation
from hts_envs.options import coerce, option

PLACED = ("seed", "replica", "replicas")
KEYWORDS = "keywords"
_SCALARS = (bool, int, float, str)
_SEQUENCES = (tuple, list, collections.abc.Sequence)
_WORDS = {"true": True, "false": False, "none": None}


class _Needed:
    """The default of a parameter that has none."""

    def __str__(self) -> str:
        return "(needed)"


NEEDED: Any = _Needed()


@dataclass(frozen=True)
class Parameter:
    """One parameter: `kind` and `default` as the record of options has them."""

    name: str
    kind: Any
    default: Any
    read: Callable[[Any], Any]
    spread: bool = False

    def argument(self, value: Any, replica: int) -> Any:
        """What the callable gets for the record's `value` in this replica."""
        if self.spread:
            value = self._own(value, replica)
        return self.read(value)

    def _own(self, value: Any, replica: int) -> Any:
        if isinstance(value, tuple):
            return value[replica % len(value)] if value else value
        if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
            entries = [part.strip() for part in value[1:-1].split(",")]
            return coerce(entries[replica % len(entries)], _single(self.kind))
        return value


@dataclass(frozen=True)
class Signature:
    """What a callable can be given: options, the facts of its place, and whatever else."""

    owner: str
    parameters: tuple[Parameter, ...]
    placed: tuple[str, ...]
    takes_any: bool

    def record(self, *, isolates: bool = False) -> type[Any]:
        """The frozen dataclass of the options; it refuses to be made without a needed one.

        Where generators can be isolated, there is an option for it, unless the callable has a
        parameter of that name.
        """
        fields = [
            (p.name, p.kind, option(p.default, f"argument of {self.owner}"))
            for p in self.parameters
        ]
        if self.takes_any:
            fields.append((KEYWORDS, str, option("", "further arguments, as a JSON object")))
        isolates = isolates and all(p.name != "isolate" for p in self.parameters)
        return dataclasses.make_dataclass(
            "Options",
            fields,
            bases=(Isolation,) if isolates else (),
            frozen=True,
            namespace={"__post_init__": lambda made: self._check(made)},
        )

    def arguments(self, options: Any, place: Place) -> dict[str, Any]:
        """The keyword arguments at this place; defaults are left to the callable."""
        given = {name: getattr(place, name) for name in self.placed}
        for parameter in self.parameters:
            value = getattr(options, parameter.name)
            if type(value) is type(parameter.default) and value == parameter.default:
                continue
            given[parameter.name] = parameter.argument(value, place.replica)
        return given | self._further(options)

    def _check(self, options: Any) -> None:
        absent = [p.name for p in self.parameters if getattr(options, p.name) is NEEDED]
        if absent:
            plural = "s" if len(absent) > 1 else ""
            raise BadOption(f"{self.owner} needs the option{plural} {', '.join(absent)}")
        self._further(options)

    def _further(self, options: Any) -> dict[str, Any]:
        text = getattr(options, KEYWORDS, "") if self.takes_any else ""
        if not text:
            return {}
        try:
            further = json.loads(text)
        except ValueError:
            further = None
        if not isinstance(further, dict):
            raise BadOption(
                f"{self.owner}: option {KEYWORDS} must be a JSON object such as "
                f'{{"name": 1}}, got {text!r}'
            )
        taken = {*PLACED, *(p.name for p in self.parameters)} & set(further)
        if taken:
            raise BadOption(
                f"{self.owner}: option {KEYWORDS} cannot give {', '.join(sorted(taken))}"
            )
        return further


def signature_of(
    called: Callable[..., Any],
    owner: str,
    *,
    spread: bool = False,
    without: tuple[str, ...] = (),
    defaults: Mapping[str, Any] | None = None,
) -> Signature:
    """What `called` takes; `defaults` stand before its own, and `without` is never offered."""
    try:
        found = list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):  # compiled code has no signature to read
        return Signature(owner, (), (), takes_any=True)
    hints = hints_of(called)
    named = [p for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    offered = []
    for parameter in named:
        if parameter.name in (*PLACED, *without):
            continue
        default = (defaults or {}).get(parameter.name, parameter.default)
        made = _parameter(parameter.name, hints.get(parameter.name), default, spread)
        if made is not None:
            offered.append(made)
    placed = tuple(p.name for p in named if p.name in PLACED)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in found)
    return Signature(owner, tuple(offered), placed, takes_any)


def hints_of(called: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a callable, of a class those of its constructor.

    Each is read on its own: one may name what is imported for type checkers only.
    """
    function: Any = called.__init__ if isinstance(called, type) else called  # type: ignore[misc]
    if not inspect.isroutine(function):
        function = type(called).__call__
    names = getattr(inspect.unwrap(function), "__globals__", {})
    found: dict[str, Any] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        alone: Any = types.SimpleNamespace(__annotations__={name: annotation})
        with contextlib.suppress(Exception):
            found |= typing.get_type_hints(alone, names, include_extras=True)
    return found


def _parameter(name: str, hint: Any, default: Any, spread: bool) -> Parameter | None:
    missing = default is inspect.Parameter.empty
    start = NEEDED if missing else default
    if _typed(hint) and (missing or _fits(default)):
        kind = hint if default is not None or _optional(hint) else hint | None
        return _scalar(name, kind, start, spread)
    entries = _entries(hint, default)
    if entries is not None and (missing or default is None or _fits_all(default)):
        return _list(name, entries, start, list if _is_list(hint, default) else tuple)
    if not missing and default is not None and type(default) in _SCALARS and _fits(default):
        return _scalar(name, type(default), start, spread)
    if missing:
        return Parameter(name, str, NEEDED, literal, spread)
    try:
        return Parameter(name, str, json.dumps(default), literal, spread and default is None)
    except (TypeError, ValueError):
        return None


def _scalar(name: str, kind: Any, default: Any, spread: bool) -> Parameter:
    if not spread or _holds_text(kind):
        return Parameter(name, kind, default, _same, spread)
    return Parameter(name, kind | tuple[kind, ...], default, _same, spread)


def _list(name: str, entry: Any, default: Any, container: type) -> Parameter:
    kind: Any = tuple[entry, ...]
    if default is None:
        return Parameter(name, kind | None, None, lambda v: v if v is None else container(v))
    return Parameter(name, kind, tuple(default) if default is not NEEDED else default, container)


def _same(value: Any) -> Any:
    return value


def literal(text: str) -> Any:
    """Text as JSON where it is JSON, true, false and none in any case, and text otherwise."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _typed(hint: Any) -> bool:
    """Can a person type a value of this annotation?"""
    if hint in _SCALARS:
        return True
    if get_origin(hint) is Literal:
        return True
    if get_origin(hint) is typing.Annotated:
        return _typed(get_args(hint)[0])
    if get_origin(hint) in (typing.Union, types.UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        return all(_typed(part) for part in parts)
    return False


def _optional(hint: Any) -> bool:
    return type(None) in get_args(hint)


def _holds_text(kind: Any) -> bool:
    return kind is str or any(_holds_text(part) for part in get_args(kind) if part is not kind)


def _single(kind: Any) -> Any:
    """A spread kind without its list."""
    parts = [part for part in get_args(kind) if get_origin(part) is not tuple]
    if get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    return typing.Union[tuple(parts)]  # noqa: UP007


def _fits(default: Any) -> bool:
    """Can the default be written down and read again?"""
    if isinstance(default, float):
        return math.isfinite(default)
    return default is None or type(default) in _SCALARS


def _fits_all(default: Any) -> bool:
    return isinstance(default, (tuple, list)) and all(_fits(part) for part in default)


def _entries(hint: Any, default: Any) -> Any:
    """The type of a list's entries where all are of the same scalar type."""
    hint = _present(hint)
    if get_origin(hint) in _SEQUENCES:
        kinds = {part for part in get_args(hint) if part is not Ellipsis}
    elif isinstance(default, (tuple, list)):
        kinds = {type(part) for part in default}
    else:
        return None
    if kinds == {int, float}:
        return float
    return kinds.pop() if len(kinds) == 1 and kinds <= set(_SCALARS) else None


def _is_list(hint: Any, default: Any) -> bool:
    return isinstance(default, list) or get_origin(_present(hint)) is list


def _present(hint: Any) -> Any:
    """What an optional annotation holds when it is not None; any other as it is."""
    parts = [part for part in get_args(hint) if part is not type(None)]
    return parts[0] if _optional(hint) and len(parts) == 1 else hint
