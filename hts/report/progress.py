"""Progress for a person: plain lines, a few in a minute, and a summary at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hts.config import Experiment
from hts.report.say import say
from hts.roles.blocks import Episode

_EVERY_SECONDS = 5.0
_RECENT = 100


@dataclass
class Progress:
    """Counts episodes and steps; says so now and then. Nothing here reaches a digest."""

    experiment: Experiment
    started: float = field(default_factory=time.perf_counter)
    updates: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    scores: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    lengths: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    episodes: int = 0
    spent: float = 0.0  # seconds before this run went on
    _told: float = 0.0
    _first: int = 0

    def start(self) -> None:
        """The clock runs from here: what came before was preparation."""
        self.started = time.perf_counter() - self.spent
        self._told = self.spent
        self._first = self.updates

    def state(self) -> dict[str, Any]:
        """What it takes to go on counting."""
        return {
            "updates": self.updates,
            "episodes": self.episodes,
            "returns": list(self.returns),
            "scores": list(self.scores),
            "lengths": list(self.lengths),
            "spent": self.seconds,
        }

    def take(self, state: Mapping[str, Any]) -> None:
        """Go on counting from there."""
        self.updates, self.episodes = state["updates"], state["episodes"]
        self.spent = state["spent"]
        for name in ("returns", "scores", "lengths"):
            getattr(self, name).extend(state[name])

    @property
    def steps(self) -> int:
        return self.updates * self.experiment.rows

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def update(self, told: Mapping[str, float], episodes: list[Episode]) -> dict[str, float]:
        """Take in one update; returns its line for `metrics.jsonl`."""
        self.updates += 1
        for episode in episodes:
            self._count(episode.facts)
        metrics = {"update": self.updates, "steps": self.steps, **told}
        for name, seen in self._recent().items():
            metrics[f"episode/{name}"] = seen
        metrics["episode/count"] = self.episodes
        metrics["time/seconds"] = round(self.seconds, 3)
        return metrics

    def _count(self, facts: Mapping[str, float]) -> None:
        """Report whole games: where an end for learning is not an end of the game, wait for it."""
        if not facts.get("game_over", 1.0):
            return
        self.episodes += 1
        self.returns.append(facts.get("game_return", facts["return"]))
        self.lengths.append(facts.get("game_length", facts["length"]))
        if "score" in facts:
            self.scores.append(facts["score"])

    def tell(self, metrics: Mapping[str, float], chain: str, *, last: bool = False) -> None:
        """A line on the terminal, when the last one is some seconds old."""
        if not last and self.seconds - self._told < _EVERY_SECONDS:
            return
        self._told = self.seconds
        parts = [
            f"{self.steps:>11,} of {self.experiment.steps:,} steps",
            f"{self._speed:>7,.0f}/s",
            *(f"{name} {mean:.3g}" for name, mean in self._recent().items() if name != "length"),
            f"entropy {metrics.get('train/entropy', 0.0):.3f}",
            f"digest {chain[:8]}",
        ]
        say("  ".join(parts))

    def result(self, status: str, digest: str) -> dict[str, object]:
        """The record of how it ended."""
        recent = self._recent()
        return {
            "status": status,
            "steps": self.steps,
            "updates": self.updates,
            "digest": digest,
            "sps": round(self._speed, 1),
            "seconds": round(self.seconds, 1),
            "episodes": self.episodes,
            "return_mean": recent.get("return"),
            "score_mean": recent.get("score"),
            "lag": 1 if self.experiment.schedule == "hts" else 0,
        }

    @property
    def _speed(self) -> float:
        """Steps in a second, since the clock was started."""
        steps = (self.updates - self._first) * self.experiment.rows
        return steps / max(self.seconds - self.spent, 1e-9)

    def _recent(self) -> dict[str, float]:
        """Means over the latest episodes that ended."""
        seen = {"return": self.returns, "score": self.scores, "length": self.lengths}
        return {name: float(np.mean(values)) for name, values in seen.items() if values}
