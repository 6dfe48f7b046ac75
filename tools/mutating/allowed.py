"""Mutants that may survive, each with its reason: most compute what the original computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .operators import Mutant

Change = tuple[str, str, str]
"""Module, and the text of the statement before and after: no line number, which would move."""


@dataclass
class Allowed:
    """The list, and which of its entries were met."""

    reasons: dict[Change, str]
    met: set[Change] = field(default_factory=set)

    @staticmethod
    def read(path: Path) -> Allowed:
        """Read blocks of four lines: the module, `- before`, `+ after`, and the reason."""
        reasons = {}
        for number, block in enumerate(path.read_text(encoding="utf-8").split("\n\n"), 1):
            lines = [line for line in block.splitlines() if line and not line.startswith("#")]
            if not lines:
                continue
            if len(lines) != 4 or not (lines[1].startswith("- ") and lines[2].startswith("+ ")):
                raise ValueError(f"{path.name}: block {number} is not module, -, +, reason")
            reasons[lines[0], lines[1][2:], lines[2][2:]] = lines[3]
        return Allowed(reasons)

    def covers(self, module: str, mutant: Mutant) -> bool:
        """Return whether the mutant is listed, and note that it was met."""
        change = module, mutant.before, mutant.after
        self.met.add(change)
        return change in self.reasons

    def stale(self, modules: Iterable[str]) -> list[Change]:
        """Return the entries of these modules that no mutation makes any more."""
        return [each for each in self.reasons if each[0] in set(modules) and each not in self.met]
