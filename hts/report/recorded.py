"""Past runs, read back from their directories, and where two of them part.

Nothing is believed: every line of `digests.jsonl` must follow from those before it. Records are
read line by line, since a long run has hundreds of thousands.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hts.config import Config
from hts.config.resolve import resolve
from hts.config.sources import Given
from hts.determinism.digest import Digest, Link, marked
from hts.determinism.numerics import facts as numerics_facts
from hts.errors import WrongUsage


@dataclass(frozen=True)
class Recorded:
    """What was run, as its manifest says, and how it ended."""

    path: Path
    identity: str
    config: Mapping[str, Any]
    asked: Mapping[str, Any]  # of the machine, before anything was chosen for it
    facts: Mapping[str, str]
    result: Mapping[str, Any]
    identities: Mapping[int, str]  # of each stage, by the updates made before it
    outline: Mapping[str, str]  # of its network; empty where an older version wrote the manifest

    @property
    def status(self) -> str:
        """How it ended."""
        return str(self.result.get("status", "still running, or ended without a word"))

    def configuration(self) -> Config:
        """What it takes to run it again; BadConfig when this version cannot."""
        origin = str(self.path / "manifest.json")
        return resolve([[Given(path, value, origin) for path, value in self.config.items()]]).config


@dataclass(frozen=True)
class Line:
    """One update in the record."""

    link: Link
    replicas: str


@dataclass(frozen=True)
class Parted:
    """The first update in which two records differ."""

    ours: Line
    theirs: Line

    @property
    def rollouts_differ(self) -> bool:
        """Otherwise the parameters do that were made of equal rollouts."""
        return self.ours.link.rollout != self.theirs.link.rollout

    def replicas(self, count: int) -> list[range]:
        """Whose part of the rollout differs."""
        ours, theirs = self.ours.replicas.split(), self.theirs.replicas.split()
        groups = marked(count)
        if not len(ours) == len(theirs) == len(groups):
            return []
        pairs = zip(groups, ours, theirs, strict=True)
        return [group for group, here, there in pairs if here != there]


@dataclass(frozen=True)
class Comparison:
    """Two records, update by update: how many each has, and where they part."""

    ours: int
    theirs: int
    parted: Parted | None


def read(path: Path) -> Recorded:
    """What the run in this directory was; WrongUsage when there is none, or it is damaged."""
    if not path.is_dir():
        raise WrongUsage(f"{path}: there is no such directory")
    if not (path / "manifest.json").exists():
        raise WrongUsage(f"{path}: this is not the directory of a run: it has no manifest.json")
    manifest = _object(path / "manifest.json")
    parts = [manifest.get(name) for name in ("config", "numerics", "versions")]
    config, numerics, versions = (part if isinstance(part, dict) else None for part in parts)
    identity = manifest.get("experiment")
    if config is None or numerics is None or versions is None or not isinstance(identity, str):
        raise WrongUsage(
            f"{path / 'manifest.json'}: it is damaged: experiment, config, numerics or versions "
            "is missing"
        )
    facts = {**versions, **numerics_facts(numerics), "commit": manifest.get("commit") or "unknown"}
    identities = _identities(path, manifest, identity)
    return Recorded(
        path,
        identity,
        config,
        manifest.get("asked") or {},
        {name: str(value) for name, value in facts.items()},
        _result(path / "result.json", max(identities)),
        identities,
        manifest.get("network") or {},
    )


def _identities(path: Path, manifest: Mapping[str, Any], identity: str) -> dict[int, str]:
    """The identity of each stage of an extended run; of every other run, its own."""
    try:
        stages = {int(before): str(each) for before, each in manifest.get("stages", {}).items()}
    except (ValueError, AttributeError):
        stages = {-1: ""}
    stages = stages or {0: identity}
    if 0 not in stages or min(stages) < 0 or stages[max(stages)] != identity:
        raise WrongUsage(f"{path / 'manifest.json'}: it is damaged: its stages do not fit together")
    return stages


def _result(path: Path, extended: int) -> dict[str, Any]:
    """How the run ended. A run that was finished at the update where it is extended now has not
    ended: the extending process was killed before it removed the old result."""
    result = _object(path) if path.exists() else {}
    is_older = extended and result.get("status") == "done" and result.get("updates") == extended
    return {} if is_older else result


def compare(ours: Recorded, theirs: Recorded) -> Comparison:
    """Update by update; experiments with two names are compared by what they saw and learnt."""
    counts = [0, 0]
    parted = None
    for pair in itertools.zip_longest(lines(ours), lines(theirs)):
        counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        here, there = pair
        if parted is None and here is not None and there is not None and _differ(here, there):
            parted = Parted(here, there)
    for run, count in zip((ours, theirs), counts, strict=True):
        if not count:
            raise WrongUsage(f"{run.path}: this run has no update to compare ({run.status})")
    return Comparison(counts[0], counts[1], parted)


def lines(run: Recorded) -> Iterator[Line]:
    """Every update in the record, each checked against those before it.

    A last line without an end is what a run was writing when the machine stopped.
    """
    path = run.path / "digests.jsonl"
    digest = Digest(run.identities)
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if not text.endswith("\n"):
                    return
                yield _line(text, digest, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{path}: it cannot be read: {_why(error)}") from None


def link_of(run: Recorded, update: int) -> Link:
    """Return the link of this update, which is in the record."""
    return next(itertools.islice(lines(run), update - 1, None)).link


def _line(text: str, digest: Digest, where: str) -> Line:
    try:
        found = json.loads(text)
        written = Link(*(found[name] for name in ("update", "rollout", "parameters", "chain")))
        line = Line(written, str(found.get("replicas", "")))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise WrongUsage(f"{where}: this line is damaged") from None
    if digest.follow(written.rollout, written.parameters) != written:
        raise WrongUsage(f"{where}: this line does not follow from those before it: it is damaged")
    return line


def _differ(ours: Line, theirs: Line) -> bool:
    return (ours.link.rollout, ours.link.parameters) != (
        theirs.link.rollout,
        theirs.link.parameters,
    )


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongUsage(f"{path}: it cannot be read: {_why(error)}") from None
    except ValueError as error:
        raise WrongUsage(f"{path}: it is damaged: {error}") from None
    if not isinstance(found, dict):
        raise WrongUsage(f"{path}: it is damaged: it holds no names and values")
    return found


def _why(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror if isinstance(error, OSError) else str(error)) or str(error)
