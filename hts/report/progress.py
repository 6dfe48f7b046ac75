"""Progress for a person: plain lines, a few in a minute, and a summary at the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hts.config import Experiment
from hts.report.say import mention
from hts.roles.blocks import Episode

_EVERY_SECONDS = 5.0
_TOLD = ("return", "score")
_LEARNING = ("entropy", "critic_loss", "value")  # as far as the algorithm has them
_RECENT = 100
_LATELY = 1.0


@dataclass
class Progress:
    """Counts episodes and steps; says so now and then. Nothing here reaches a digest."""

    experiment: Experiment
    started: float = field(default_factory=time.perf_counter)
    updates: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    scores: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    lengths: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    shaped: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    episodes: int = 0
    spent: float = 0.0  # seconds before this run went on
    _lag: float | None = None  # of the latest update, as the learner has seen it
    _told: float = 0.0
    _first: int = 0
    _lately: deque[tuple[float, int]] = field(default_factory=deque)  # seconds and steps

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
            "shaped": list(self.shaped),
            "spent": self.seconds,
        }

    def take(self, state: Mapping[str, Any]) -> None:
        """Go on counting from there."""
        self.updates, self.episodes = state["updates"], state["episodes"]
        self.spent = state["spent"]
        for name in ("returns", "scores", "lengths", "shaped"):
            getattr(self, name).extend(state.get(name, ()))

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
        self._lag = told.get("train/lag", self._lag)
        metrics = {"update": self.updates, "steps": self.steps, **told}
        for name, seen in self._recent().items():
            metrics[f"episode/{name}"] = seen
        metrics["episode/count"] = self.episodes
        seconds = self.seconds
        metrics["time/seconds"] = round(seconds, 3)
        metrics["time/steps_per_second"] = round(self._speed_now(seconds), 1)
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
        if "shaped_return" in facts:
            self.shaped.append(facts["shaped_return"])

    def tell(self, metrics: Mapping[str, float], chain: str, *, last: bool = False) -> None:
        """A line on the terminal, when the last one is some seconds old."""
        if not last and self.seconds - self._told < _EVERY_SECONDS:
            return
        self._told = self.seconds
        learning = [name for name in _LEARNING if f"train/{name}" in metrics]
        parts = [
            f"{self.steps:>11,} of {self.experiment.steps:,} steps",
            f"{self._speed:>7,.0f}/s",
            *(f"{name} {mean:.3g}" for name, mean in self._recent().items() if name in _TOLD),
            *(f"{name.replace('_', ' ')} {metrics[f'train/{name}']:.3g}" for name in learning),
            f"digest {chain[:8]}",
        ]
        mention("  ".join(parts))

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
            "lag": self._lag,
        }

    @property
    def _speed(self) -> float:
        """Steps in a second, since the clock was started."""
        steps = (self.updates - self._first) * self.experiment.rows
        return steps / max(self.seconds - self.spent, 1e-9)

    def _speed_now(self, seconds: float) -> float:
        """Steps in a second, over the latest second or longer."""
        if not self._lately:
            self._lately.append((self.spent, self._first * self.experiment.rows))
        self._lately.append((seconds, self.steps))
        while len(self._lately) > 2 and seconds - self._lately[1][0] >= _LATELY:
            self._lately.popleft()
        since, steps = self._lately[0]
        return (self.steps - steps) / max(seconds - since, 1e-9)

    def _recent(self) -> dict[str, float]:
        """Means over the latest episodes that ended."""
        seen = {
            "return": self.returns,
            "shaped_return": self.shaped,
            "score": self.scores,
            "length": self.lengths,
        }
        return {name: float(np.mean(values)) for name, values in seen.items() if values}
