"""The replay: the latest windows of all replicas, in memory that outlives whoever writes it.

Time is the first axis, replicas are the second: a window is written in one piece, into the place
that its number gives it. So writing it again, as a successor does, changes nothing; and what is
read follows from numbers of windows alone, whoever else is writing at the time.

Each step stands there with the observation behind it as it was before any reset. No step of a
replica is read across the end of its episode or of what is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hts.replay.nstep import Returns, Steps, returns
from hts_envs.contract import Array, Observation

SEEN, BEHIND = "seen.", "behind."


@dataclass(frozen=True)
class Span:
    """Steps of every replica, counted from the begin of the run: from `first`, before `end`."""

    first: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.first)


@dataclass(frozen=True)
class Places:
    """Steps of replicas, drawn at random."""

    steps: Array
    replicas: Array

    @staticmethod
    def drawn(uniforms: Array, span: Span, replicas: int) -> Places:
        """One for each number in [0, 1): all steps of all replicas are equally likely."""
        assert len(span), "there is something to draw from"
        at = np.floor(uniforms * (len(span) * replicas)).astype(np.int64)
        return Places(span.first + at // replicas, at % replicas)


@dataclass(frozen=True)
class Transitions:
    """What was seen and done in some places, and what came of it."""

    seen: Observation
    action: Array
    returns: Returns
    behind: Observation


class Ring:
    """The arrays of the replay, (steps, replicas, ...), in which windows follow each other."""

    def __init__(self, arrays: Mapping[str, Array], window: int) -> None:
        self.window = window
        self.arrays = arrays
        self.steps, self.replicas = arrays["reward"].shape
        assert self.steps % window == 0, "it holds whole windows"
        self.windows = self.steps // window
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
        self._flat = flat
        self._seen = {n.removeprefix(SEEN): a for n, a in flat.items() if n.startswith(SEEN)}
        self._behind = {n.removeprefix(BEHIND): a for n, a in flat.items() if n.startswith(BEHIND)}

    @property
    def names(self) -> tuple[str, ...]:
        """The fields of the observation that it holds."""
        return tuple(self._seen)

    def write(self, window: int, columns: Mapping[str, Array]) -> None:
        """This window, in the place of the oldest: columns are (steps, replicas, ...)."""
        place = self.place(window)
        for name, array in self.arrays.items():
            array[place] = columns[name]

    def place(self, window: int) -> slice:
        """Where this window stands, as long as it does."""
        first = window % self.windows * self.window
        return slice(first, first + self.window)

    def span(self, windows: int, *, spared: int = 0) -> Span:
        """The steps of the latest windows when so many are written; the oldest may be spared, for
        they are about to be written over."""
        oldest = max(0, windows - self.windows + spared)
        return Span(oldest * self.window, windows * self.window)

    def seen(self, places: Places, names: tuple[str, ...]) -> Observation:
        """What was seen in these places, of these fields."""
        at = self._at(places.steps, places.replicas)
        return {name: self._seen[name].take(at, 0) for name in names}

    def transitions(self, places: Places, end: int, n: int, gamma: float) -> Transitions:
        """What happened there, looking ahead so many steps but not to `end`."""
        ahead = places.steps[:, None] + np.arange(n)
        at = self._at(ahead, places.replicas[:, None])
        reward, terminated, truncated = (
            self._flat[name].take(at) for name in ("reward", "terminated", "truncated")
        )
        look = Steps(reward, terminated, truncated, ahead < end)
        found = returns(look, gamma)
        first, last = at[:, 0], at[np.arange(len(at)), found.last]
        return Transitions(
            {name: array.take(first, 0) for name, array in self._seen.items()},
            self._flat["action"].take(first, 0),
            found,
            {name: array.take(last, 0) for name, array in self._behind.items()},
        )

    def _at(self, steps: Array, replicas: Array) -> Array:
        return np.asarray(steps % self.steps * self.replicas + replicas)
