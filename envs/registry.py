"""Names of environments: `family:name?option=value&...` to a checked `Spec`, and to a world.

A family's module is imported when it is named, its simulator only when a world is made, so that
names and options can be checked on a machine that has none of the simulators.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote

from hts_envs.contract import BatchedWorld, Place, World
from hts_envs.errors import BadName, BadOption, MissingPackages, WorldError, install_command
from hts_envs.isolation import IsolatedWorld, Isolation
from hts_envs.options import build, written
from hts_envs.spelling import hint

FAMILIES = {
    "gfootball": "hts_envs.football",
    "atari": "hts_envs.atari",
    "gym": "hts_envs.gym",
    "python": "hts_envs.python",
    "batched": "hts_envs.batched",
    "envpool": "hts_envs.envpool",
    "sleeper": "hts_envs.sleeper",
    "counting": "hts_envs.counting",
    "reference": "hts_envs.reference",
    "remote": "hts_envs.remote",
}
"""Family to the module whose `FAMILY` describes it, in the order in which people are shown them."""


class Family(ABC):
    """One kind of world. `packages` are the modules it imports, `extra` what installs them."""

    name: str
    summary: str
    packages: tuple[str, ...] = ()
    extra: str = ""
    open_ended: bool = False  # more names exist than `names` can list
    guessed: bool = True  # a name without its family may be meant for this one
    untrainable: str = ""  # why no policy can learn here, and what to use instead

    @abstractmethod
    def names(self) -> Sequence[str]:
        """The environments of the family; examples where it is open-ended."""

    @abstractmethod
    def resolve(self, name: str) -> str:
        """The full name for a short, full or default ('') one; BadName otherwise."""

    @abstractmethod
    def options(self, name: str) -> type[Any]:
        """The frozen dataclass of this environment's options."""

    @abstractmethod
    def make(self, spec: Spec, place: Place) -> World | BatchedWorld:
        """Build it; called only when the packages are there."""

    def batched(self, spec: Spec) -> bool:
        """Does `make` return a batched world?"""
        return False

    def instead(self) -> str:
        """A sentence about what to use where the packages cannot be had."""
        return ""


class Unnamed(Family):
    """A family of one environment without a name, single or (option `batch`) batched."""

    def names(self) -> Sequence[str]:
        return ("",)

    def resolve(self, name: str) -> str:
        if name:
            raise BadName(
                f"{self.name}: is one environment without a name, got {name!r}: "
                f"write {self.name}: or {self.name}:?option=value"
            )
        return ""

    def batched(self, spec: Spec) -> bool:
        return bool(spec.options.batch)


@dataclass(frozen=True)
class Spec:
    """A checked name: which family, which environment, which options."""

    family: Family
    name: str
    options: Any

    @property
    def batched(self) -> bool:
        return self.family.batched(self)

    def canonical(self) -> str:
        """The name with every option that changes the world spelled out: equal for equal worlds."""
        pairs = [
            f"{field.name}={quote(written(getattr(self.options, field.name)), safe=',:/[]')}"
            for field in sorted(dataclasses.fields(self.options), key=lambda field: field.name)
            if self._is_spelled(field)
        ]
        return f"{self.family.name}:{self.name}" + ("?" + "&".join(pairs) if pairs else "")

    def _is_spelled(self, field: dataclasses.Field[Any]) -> bool:
        if not field.metadata.get("changes_result", True):
            return False
        is_default = getattr(self.options, field.name) == field.default
        return field.metadata.get("always_spelled", True) or not is_default

    @property
    def isolated(self) -> bool:
        """Does each replica have global random generators of its own?"""
        options = self.options
        return isinstance(options, Isolation) and options.isolate == "generators"


def family(name: str) -> Family:
    """The family of this name."""
    if name not in FAMILIES:
        raise BadName(f"there is no environment family {name!r}{hint(name, FAMILIES)}")
    found = importlib.import_module(FAMILIES[name]).FAMILY
    assert isinstance(found, Family), f"{FAMILIES[name]}.FAMILY is not a Family"
    assert found.name == name, f"{FAMILIES[name]} calls itself {found.name!r}"
    return found


def parse(text: str) -> Spec:
    """Check a name as typed, without importing its simulator."""
    head, _, query = text.strip().partition("?")
    prefix, colon, name = head.partition(":")
    if not colon and prefix not in FAMILIES:
        raise BadName(_unprefixed(text, prefix))
    found = family(prefix)
    full = found.resolve(name)
    return Spec(found, full, build(found.options(full), _pairs(text, query), head.rstrip(":")))


def missing(found: Family) -> list[str]:
    """The packages of the family that are not installed here."""
    return [package for package in found.packages if importlib.util.find_spec(package) is None]


def make(environment: str | Spec, place: Place = Place()) -> World | BatchedWorld:
    """Build the world of this name."""
    spec = parse(environment) if isinstance(environment, str) else environment
    require(spec.family)
    if spec.isolated:
        return IsolatedWorld(lambda: _single(spec, place), place.seed)
    return spec.family.make(spec, place)


def _single(spec: Spec, place: Place) -> World:
    world = spec.family.make(spec, place)
    assert isinstance(world, World), f"{spec.canonical()} is batched, and was isolated"
    return world


def require(found: Family) -> None:
    """Refuse, with the command that installs them, where the family's packages are missing."""
    absent = missing(found)
    if not absent:
        return
    instead = found.instead()
    raise MissingPackages(
        f"{found.name}: needs {', '.join(absent)}, which is not installed here. "
        f"Install it with: {install_command(found.extra)}" + (f". {instead}" if instead else "")
    )


def _unprefixed(text: str, prefix: str) -> str:
    for known in FAMILIES:
        if not family(known).guessed:
            continue
        try:
            full = family(known).resolve(prefix)
        except WorldError:
            continue
        if prefix:
            return f"{text!r} names no family (did you mean '{known}:{full}'?)"
    close = hint(prefix, FAMILIES)
    return f"{text!r} is not an environment: write family:name, such as gfootball:3v1{close}"


def _pairs(text: str, query: str) -> dict[str, str]:
    if not query:
        return {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise BadOption(f"{text!r}: write options as ?name=value&name=value") from None
    given = dict(pairs)
    if len(given) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadOption(f"{text!r}: option {twice} is given twice; write it once")
    return given
