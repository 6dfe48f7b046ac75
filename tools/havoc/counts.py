"""What rounds went through, and the figures at the end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass
class Counts:
    """Of one round, or of all of them together."""

    kills: int = 0
    replaced: int = 0
    stops: int = 0
    resumed: int = 0
    begun_again: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    recovered: list[float] = field(default_factory=list)  # seconds from a kill on
    returned: list[float] = field(default_factory=list)  # seconds from a --resume on

    def add(self, other: Counts) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def lines(self) -> Iterator[str]:
        """The figures, in words."""
        ends = ", ".join(f"{count} {name}" for name, count in sorted(self.ends.items()))
        yield f"kills survived: {self.kills}; successors started: {self.replaced}"
        yield f"stops: {self.stops}"
        yield (
            f"whole runs ended: {self.ends.total()} ({ends or 'none'}); gone on with from "
            f"{self.resumed} checkpoints, begun again {self.begun_again} times"
        )
        yield (
            f"time to recover: {percentiles(self.recovered)}, from a kill to the second update in "
            "the record after it (the first may have been under way), both updates included"
        )
        yield (
            f"time to return: {percentiles(self.returned)}, from the start of hts-train --resume "
            "to the first update in the record, start-up included"
        )


def percentiles(seconds: Sequence[float]) -> str:
    if not seconds:
        return "not measured"
    ordered = sorted(seconds)
    p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.99))
    return f"p50 {p50:.2f} s, p99 {p99:.2f} s of {len(ordered)}"
