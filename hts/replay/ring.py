"""The replay: the latest windows of all replicas, in memory that outlives whoever writes it.

Time is the first axis, replicas are the second: a window is written in one piece, into the place
that its number gives it. So writing it again, as a successor does, changes nothing; and what is
read follows from numbers of windows alone, whoever else is writing at the time.

Each step stands there with the observation behind it as it was before any reset, its images
compressed. No step of a replica is read across the end of its episode or of what is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hts.replay.images import BEHIND_AT, SEEN_AT, Images, ends
from hts.replay.nstep import Returns, Steps, returns
from hts_envs.contract import Array, Observation

SEEN, BEHIND = "seen.", "behind."
_IMAGES, _AT = "images.", "at."


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


@dataclass(frozen=True)
class Asked:
    """The fields of the observation that are looked at: of what is seen, and of what is behind."""

    seen: Iterable[str]
    behind: Iterable[str]


class Ring:
    """The arrays of the replay, (steps, replicas, ...), in which windows follow each other."""

    def __init__(self, arrays: Mapping[str, Array], window: int) -> None:
        self.window = window
        self.arrays = arrays
        self.steps, self.replicas = arrays["reward"].shape
        assert self.steps % window == 0, "it holds whole windows"
        self.windows = self.steps // window
        self._images = {
            name.removeprefix(_IMAGES): Images(room, arrays[_at(name)], window)
            for name, room in arrays.items()
            if name.startswith(_IMAGES)
        }
        self._plain = {n: a for n, a in arrays.items() if not n.startswith((_IMAGES, _AT))}
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in self._plain.items()}
        self._flat = flat
        seen = [name.removeprefix(SEEN) for name in flat if name.startswith(SEEN)]
        self.names = (*self._images, *seen)
        """The fields of the observation that it holds."""

    def write(self, window: int, columns: Mapping[str, Array]) -> None:
        """This window, in the place of the oldest: columns are (steps, replicas, ...)."""
        place = self.place(window)
        for name, array in self._plain.items():
            array[place] = columns[name]
        for name, images in self._images.items():
            seen, behind = columns[f"{SEEN}{name}"], columns[f"{BEHIND}{name}"]
            images.write(window % self.windows, seen, behind)

    def place(self, window: int) -> slice:
        """Where this window stands, as long as it does."""
        first = window % self.windows * self.window
        return slice(first, first + self.window)

    def span(self, windows: int, *, spared: int = 0) -> Span:
        """The steps of the latest windows when so many are written; the oldest may be spared, for
        they are about to be written over."""
        oldest = max(0, windows - self.windows + spared)
        return Span(oldest * self.window, windows * self.window)

    def grows(self, windows: int) -> int:
        """Bytes of memory that images will still take, if all are as those of the last window."""
        last = (windows - 1) % self.windows
        each = sum(images.used(last) for images in self._images.values())
        return int(max(0, self.windows - windows) * each)

    def seen(self, places: Places, names: Iterable[str]) -> Observation:
        """What was seen in these places, of these fields."""
        return self._shown(self._at(places.steps, places.replicas), SEEN, names)

    def transitions(
        self, places: Places, end: int, n: int, gamma: float, names: Asked
    ) -> Transitions:
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
            self._shown(first, SEEN, names.seen),
            self._flat["action"].take(first, 0),
            found,
            self._shown(last, BEHIND, names.behind),
        )

    def copy(self, windows: Sequence[int]) -> dict[str, Array]:
        """These windows as plain arrays, one behind the other."""
        found = {
            name: np.stack([array[self.place(window)] for window in windows])
            for name, array in self.arrays.items()
            if not name.startswith(_IMAGES)
        }
        for name, images in self._images.items():
            each = [images.packed(window % self.windows) for window in windows]
            found[f"{_IMAGES}{name}"] = np.concatenate(each)
        return found

    def form(
        self, windows: int, copied: Mapping[str, Array]
    ) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and type of each array of such a copy; how long images are, it says itself."""
        found: dict[str, tuple[tuple[int, ...], Any]] = {
            name: ((windows, self.window, *array.shape[1:]), array.dtype)
            for name, array in self.arrays.items()
        }
        for name in self._images:
            at = copied.get(f"{_AT}{name}")
            size = 0 if at is None else sum(map(ends, at))
            found[f"{_IMAGES}{name}"] = (size,), np.dtype(np.uint8)
        return found

    def paste(self, windows: Sequence[int], copied: Mapping[str, Array]) -> None:
        """Have these windows hold what a copy of theirs does."""
        for place, window in enumerate(windows):
            for name, array in self.arrays.items():
                if not name.startswith(_IMAGES):
                    array[self.place(window)] = copied[name][place]
        for name, images in self._images.items():
            behind = np.cumsum([ends(at) for at in copied[f"{_AT}{name}"]])
            each = np.split(copied[f"{_IMAGES}{name}"], behind[:-1])
            for window, packed in zip(windows, each, strict=True):
                images.unpack(window % self.windows, packed)

    def _shown(self, at: Array, when: str, names: Iterable[str]) -> Observation:
        which = SEEN_AT if when == SEEN else BEHIND_AT
        return {
            name: self._images[name].take(at, which)
            if name in self._images
            else self._flat[f"{when}{name}"].take(at, 0)
            for name in names
        }

    def _at(self, steps: Array, replicas: Array) -> Array:
        return np.asarray(steps % self.steps * self.replicas + replicas)


def _at(name: str) -> str:
    """Which array says where the images in this one are."""
    return f"{_AT}{name.removeprefix(_IMAGES)}"
