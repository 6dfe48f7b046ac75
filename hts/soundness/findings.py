"""What an examination finds, and the whole of it as one record."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hts.tracebacks import simulator_traceback


class Level(StrEnum):
    """How bad it is; only an error makes a simulator unsound."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One sentence about one check, and lines of detail where a sentence is too short."""

    level: Level
    check: str
    text: str
    detail: tuple[str, ...] = ()


@dataclass
class Report:
    """Everything that is known about one environment."""

    environment: str
    seed: int
    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    profile: dict[str, Any] = field(default_factory=dict)
    suggestion: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def sound(self) -> bool:
        return all(finding.level is not Level.ERROR for finding in self.findings)

    def add(self, level: Level, check: str, text: str, detail: tuple[str, ...] = ()) -> None:
        self.findings.append(Finding(level, check, text, detail))


class Broken(Exception):
    """The simulator raised, or returned something that cannot be examined any further."""

    def __init__(self, check: str, text: str, detail: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.check = check
        self.text = text
        self.detail = detail


def last_lines(error: BaseException, count: int = 4) -> tuple[str, ...]:
    """The end of a simulator's traceback: where it happened and what it says."""
    lines = simulator_traceback(error).strip().splitlines()
    return tuple(line.rstrip() for line in lines[-count:])


def plural(count: int, word: str) -> str:
    """`1 step`, `2,000 steps`."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")
