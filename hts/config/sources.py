"""Where values come from: YAML files with line numbers, and what was typed.

Every source becomes a list of `Given`: a dotted path, a value, and the place it was written at,
so that a mistake is told with file and line, or flag.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from hts.errors import BadConfig
from hts_envs.spelling import hint

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: all ready configurations are read at a start."""

_HEADER = ("base", "selected_for")
"""Keys at the top of a file that are no values: the latter is read by `hts.config.ready`."""


@dataclass(frozen=True)
class Given:
    """One value: `path` as written (dotted, maybe short), and where it was written."""

    path: str
    value: Any
    origin: str


def ready_configs() -> dict[str, Traversable]:
    """The configurations that come with the package, by name."""
    found = (entry for entry in files("hts_configs").iterdir() if entry.name.endswith(".yaml"))
    return {entry.name.removesuffix(".yaml"): entry for entry in sorted(found, key=str)}


def read_config(name: str) -> list[list[Given]]:
    """A ready configuration by name, or a file by path: one layer, after those it is based on."""
    return _read(name, ())


def header(name: str) -> dict[str, str]:
    """Return what a ready configuration says about itself: `base` and `selected_for`."""
    return {given.path: str(given.value) for given in _given(name, ()) if given.path in _HEADER}


def _read(name: str, above: tuple[str, ...]) -> list[list[Given]]:
    if name in above:
        raise BadConfig([f"--config {above[0]}: based on itself: {' > '.join((*above, name))}"])
    given = _given(name, above)
    bases = [item for item in given if item.path == "base"]
    own = [item for item in given if item.path not in _HEADER]
    below = [layer for base in bases for layer in _read(str(base.value), (*above, name))]
    return [*below, own]


def _given(name: str, above: tuple[str, ...]) -> list[Given]:
    """Return every value of one file, its header included."""
    text, shown = _text(name, above)
    try:
        node = yaml.compose(text, Loader=_LOADER)
        return list(_leaves(node, shown)) if node is not None else []
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        if "mapping values" in problem:
            problem += ' (a value with a colon at its end or before a space needs quotes: "a: b")'
        raise BadConfig([f"{shown}{line}: this is not YAML: {problem}"]) from None


def _text(name: str, above: tuple[str, ...]) -> tuple[str, str]:
    ready = ready_configs()
    if name in ready:
        return ready[name].read_text(encoding="utf-8"), f"configs/{name}.yaml"
    path = Path(name)
    try:
        return path.read_text(encoding="utf-8"), name
    except UnicodeDecodeError:
        raise BadConfig([f"--config {name}: this is not a text file"]) from None
    except OSError as error:
        where = f"{above[-1]}: base" if above else "--config"
        if isinstance(error, FileNotFoundError):
            why = "there is no such file or ready configuration" + hint(name, ready)
        else:
            why = f"cannot be read: {error.strerror}"
        raise BadConfig([f"{where} {name}: {why}"]) from None


def _leaves(node: yaml.Node, shown: str, path: str = "") -> Iterator[Given]:
    """Every leaf below a node of a YAML document, with its line."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            origin = f"{shown}:{key.start_mark.line + 1}"
            if name in seen:
                raise BadConfig([f"{origin}: {path}{name} is given twice in this file"])
            seen.add(name)
            yield from _leaves(value, shown, f"{path}{name}.")
        return
    origin = f"{shown}:{node.start_mark.line + 1}"
    if not path:
        raise BadConfig([f"{origin}: a configuration is a mapping of names to values"])
    many = isinstance(node, yaml.SequenceNode)
    read: Any = [item.value for item in node.value] if many else str(node.value)
    yield Given(path.rstrip("."), read, origin)


def from_sets(sets: Sequence[str]) -> list[Given]:
    """The values of `--set name=value`, given any number of times."""
    given, problems = [], []
    for text in sets:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            problems.append(f"--set {text}: write it as name=value")
        given.append(Given(path.strip(), value.strip(), f"--set {text}"))
    if problems:
        raise BadConfig(problems)
    return given
