"""Which environments there are, which of them this machine can run, and their options."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import hts_envs
from hts.soundness.render import WIDTH
from hts_envs.errors import BadName, MissingPackages, install_command
from hts_envs.options import describe
from hts_envs.registry import Family, family, missing


def families() -> list[dict[str, Any]]:
    """Every family: what it is, and what it lacks here."""
    return [_family(family(name)) for name in hts_envs.FAMILIES]


def _family(found: Family) -> dict[str, Any]:
    absent = missing(found)
    return {
        "name": found.name,
        "summary": found.summary,
        "usable": not absent,
        "missing": absent,
        "install": install_command(found.extra) if absent and found.extra else None,
    }


def environments(name: str) -> dict[str, Any]:
    """One family: its environments, grouped by the options that they have in common."""
    found = family(name)
    groups: dict[type[Any] | None, list[str]] = {}
    for environment in found.names():
        groups.setdefault(_options(found, environment), []).append(environment)
    return {
        **_family(found),
        "open_ended": found.open_ended,
        "environments": [
            {
                "names": names,
                "options": [
                    {"name": o.name, "type": o.kind, "default": o.default, "help": o.text}
                    for o in (describe(record) if record else [])
                ],
            }
            for record, names in groups.items()
        ],
    }


def _options(found: Family, environment: str) -> type[Any] | None:
    """None where only the environment's own packages could tell."""
    try:
        return found.options(found.resolve(environment))
    except (BadName, MissingPackages):
        return None


def render_families(listed: list[dict[str, Any]]) -> str:
    """A line or two for each family."""
    lines = []
    for one in listed:
        state = "usable" if one["usable"] else "missing"
        lines += _hanging(f"  {one['name']:<10} {state:<8} ", one["summary"])
        if not one["usable"]:
            needs = f"needs {', '.join(one['missing'])}"
            lines += _hanging(" " * 22, f"{needs}; {one['install']}" if one["install"] else needs)
    lines += ["", "  hts-check --list FAMILY shows the environments and options of one of them."]
    return "\n".join(lines)


def render_environments(one: dict[str, Any]) -> str:
    """The names, and a line for each option."""
    lines = [*_hanging(f"{one['name']}: ", one["summary"])]
    if not one["usable"]:
        lines.append(f"  missing here: {', '.join(one['missing'])}; {one['install'] or ''}")
    shared = _shared(one["environments"])
    for group in one["environments"]:
        own = [option for option in group["options"] if option not in shared]
        lines += ["", *_names(one["name"], group["names"], one["open_ended"])]
        lines += [line for option in own for line in _option(option)]
    if shared:
        lines += ["", "  options of all of them" if len(one["environments"]) > 1 else "  options"]
        lines += [line for option in shared for line in _option(option)]
    name = "" if one["environments"][0]["names"] == [""] else "NAME"
    lines += ["", f"  options are written {one['name']}:{name}?option=value&option=value"]
    return "\n".join(lines)


def _names(prefix: str, names: list[str], open_ended: bool) -> list[str]:
    if names == [""]:
        return [f"  {prefix}: is one environment, which takes no name"]
    listed = textwrap.wrap(", ".join(names), WIDTH - 4)
    heading = f"  {prefix}: with one of these names" + (", and others" if open_ended else "")
    return [heading, *(f"    {line}" for line in listed)]


def _shared(groups: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The options that every group has, in the order of the first."""
    first, *others = [group["options"] for group in groups]
    return [option for option in first if all(option in other for other in others)]


def _option(option: dict[str, str]) -> Iterator[str]:
    default = f", default {option['default']}" if option["default"] else ""
    about = f"{option['help']} ({option['type']}{default})"
    yield from _hanging(f"    {option['name']:<18} ", about)


def _hanging(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=label, subsequent_indent=" " * len(label)) or [
        label.rstrip()
    ]
