"""From layers of given values to one frozen `Config`, every value with its origin.

Later layers win: defaults, then configuration files, then `--set`, then named flags. A value that
chooses another variant (another algorithm or model) drops what earlier layers said about the
variant that was chosen before. Every problem of every layer is reported at once.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hts.config.check import check
from hts.config.extended import is_absent
from hts.config.records import Algorithm, Config, Experiment, Machine, Model, variants
from hts.config.sources import Given
from hts.errors import BadConfig
from hts_envs.options import coerce
from hts_envs.spelling import hint

SECTIONS: Mapping[str, type[Any]] = {"experiment": Experiment, "machine": Machine}
TAGGED: Mapping[str, Mapping[str, type[Any]]] = {
    "experiment.algo": variants(Algorithm),
    "experiment.model": variants(Model),
}
DEFAULT = "default"

_KINDS = {"experiment.algo": "algorithm", "experiment.model": "model"}
"""Words for what the variants of a tagged field are."""


@dataclass(frozen=True)
class Resolved:
    """A configuration and where each of its values (by dotted path) was given."""

    config: Config
    origins: Mapping[str, str]


def resolve(layers: Iterable[Sequence[Given]]) -> Resolved:
    """The configuration that these layers make, the last one winning; BadConfig if they do not."""
    problems: list[str] = []
    chosen = _last_wins(layers, problems)
    sections = {name: _record(record, name, chosen, problems) for name, record in SECTIONS.items()}
    if problems:
        raise BadConfig(problems)
    config = Config(**sections)
    origins = {path: given.origin for path, given in chosen.items()}
    violations = [_placed(text, origins) for text in check(config)]
    if violations:
        raise BadConfig(violations)
    return Resolved(config, origins)


@functools.cache
def all_paths() -> tuple[str, ...]:
    """Every dotted path that any variant has."""
    return tuple(path for section, record in SECTIONS.items() for path in _paths(section, record))


def _paths(prefix: str, record: type[Any]) -> Iterator[str]:
    hints = typing.get_type_hints(record)
    for field in dataclasses.fields(record):
        path = f"{prefix}.{field.name}"
        if path in TAGGED:
            variants_of = TAGGED[path].values()
            names = dict.fromkeys(f.name for m in variants_of for f in dataclasses.fields(m))
            yield from (f"{path}.{name}" for name in names)
        elif dataclasses.is_dataclass(hints[field.name]):
            yield from _paths(path, hints[field.name])
        else:
            yield path


def full_path(path: str) -> str:
    """The full dotted path for a short one; KeyError says in a sentence why there is none."""
    path = f"{path}.name" if path in TAGGED else path
    known = all_paths()
    if path in known:
        return path
    matches = [full for full in known if full.endswith(f".{path}")]
    if path in (tag.rpartition(".")[2] for tag in TAGGED):
        matches = [full for full in known if full.endswith(f".{path}.name")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise KeyError(f"{path!r} could be {' or '.join(matches)}; write more of the name")
    endings = [full.rpartition(".")[2] for full in known]
    if "." in path:
        raise KeyError(f"there is no setting {path!r}{hint(path, known)}")
    raise KeyError(f"there is no setting {path!r}{hint(path, endings)}")


def _last_wins(layers: Iterable[Sequence[Given]], problems: list[str]) -> dict[str, Given]:
    """The value that holds for each full path; a new variant drops what earlier layers said."""
    chosen: dict[str, Given] = {}
    for layer in layers:
        own: dict[str, Given] = {}
        for given in layer:
            try:
                own[full_path(given.path)] = given
            except KeyError as error:
                problems.append(f"{given.origin}: {error.args[0]}")
        for tag in TAGGED:
            path = f"{tag}.name"
            before = chosen[path].value if path in chosen else _default_variant(tag)
            if path in own and own[path].value != before:
                chosen = {p: g for p, g in chosen.items() if not p.startswith(f"{tag}.")}
        chosen.update(own)
    return chosen


def _record(
    record: type[Any], prefix: str, chosen: Mapping[str, Given], problems: list[str]
) -> Any:
    """The record below `prefix` with the chosen values; what cannot be used becomes a problem."""
    hints = typing.get_type_hints(record, include_extras=True)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        path = f"{prefix}.{field.name}"
        if path in TAGGED:
            values[field.name] = _variant(path, chosen, problems)
        elif dataclasses.is_dataclass(hints[field.name]):
            values[field.name] = _record(hints[field.name], path, chosen, problems)
        elif path in chosen:
            given = chosen[path]
            try:
                values[field.name] = coerce(given.value, hints[field.name])
            except ValueError as error:
                problems.append(_at(given.origin, path, str(error)))
    return record(**values)


def _variant(path: str, chosen: Mapping[str, Given], problems: list[str]) -> Any:
    """The record of the variant that is chosen at `path`."""
    members = TAGGED[path]
    tag = chosen.get(f"{path}.name")
    default = _default_variant(path)
    name = str(tag.value) if tag else default
    if name not in members:
        assert tag is not None, "the default variant is one of the members"
        problems.append(f"{tag.origin}: there is no {_KINDS[path]} {name!r}{hint(name, members)}")
        return members[default]()
    record = members[name]
    for given_path, given in chosen.items():
        owner, _, field = given_path.rpartition(".")
        if owner == path and field not in record.__dataclass_fields__:
            having = [n for n, member in members.items() if field in member.__dataclass_fields__]
            problems.append(
                f"{given.origin}: {name} has no setting {field!r}; {' and '.join(having)} "
                f"{'has' if len(having) == 1 else 'have'} one"
            )
    return _record(record, path, chosen, problems)


def _default_variant(path: str) -> str:
    section, _, name = path.partition(".")
    factory = SECTIONS[section].__dataclass_fields__[name].default_factory
    return str(factory.__dataclass_fields__["name"].default)


def _placed(violation: str, origins: Mapping[str, str]) -> str:
    """The violation, and where the value that it speaks of was given."""
    path, _, problem = violation.partition(": ")
    origin = origins.get(path, DEFAULT)
    return violation if origin == DEFAULT else _at(origin, f"{path}:", problem)


def _at(origin: str, path: str, problem: str) -> str:
    """Return a problem and where its value was given; a flag names the value well enough."""
    return f"{origin}: {problem}" if origin.startswith("--") else f"{origin}: {path} {problem}"


def flatten(config: Config) -> dict[str, Any]:
    """Every value by its dotted path, in the order of the records; without those that say nothing
    yet (`is_absent`)."""
    found: dict[str, Any] = {}

    def walk(record: Any, prefix: str) -> None:
        for field in dataclasses.fields(record):
            value, path = getattr(record, field.name), f"{prefix}{field.name}"
            if is_absent(record, field):
                continue
            if dataclasses.is_dataclass(value):
                walk(value, f"{path}.")
            else:
                found[path] = value

    walk(config, "")
    return found


def values_of(sources: Sequence[Given], path: str) -> list[str]:
    """What these sources say about one path, in their order; unknown names are left for later."""
    said = []
    for given in sources:
        try:
            found = full_path(given.path)
        except KeyError:
            continue
        if found == path:
            said.append(str(given.value))
    return said
