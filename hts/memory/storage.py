"""One rollout in memory: written in place by executors and actors, read in place by the learner.

Observations are single frames. What a policy sees is gathered from them when it is read: the
latest `frame_stack` frames of the running episode, the first one repeated where the episode is
younger than that. `age` (steps since the episode began) is what stops a stack at a reset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hts.machine import SharedArray, Sizes, storage_arrays
from hts_envs.contract import Array, Observation, Spaces
from hts_envs.errors import BrokenSimulator

_PAIRED = 4
"""Bytes up to which two words are joined by arithmetic."""


class Rows:
    """Observations to be answered: of which replicas, at which steps; or of a whole block, which
    stands at one step, or of all its replicas at each of some steps.

    A `final` row asks for the value of the observation behind a truncation, not for an action.
    `place` is where they stand in arrays of (replica, step), in the form that is fastest.
    """

    def __init__(
        self, replicas: Array | range, steps: Array | range | int, *, final: bool = False
    ) -> None:
        self.count = len(replicas)
        self.final = final
        self.place: tuple[Any, Any] = replicas, steps
        self.is_block = isinstance(replicas, range) and isinstance(steps, int)
        self._asked = replicas, steps
        if isinstance(replicas, range):
            self.place = slice(replicas.start, replicas.stop), steps
            if isinstance(steps, range):
                self.place = self.place[0], slice(steps.start, steps.stop)
                self.count *= len(steps)
        else:
            assert replicas.shape == np.shape(steps), "one step for each replica"

    @property
    def replicas(self) -> Array:
        """Of each row."""
        replicas, steps = self._asked
        if not isinstance(replicas, range):
            return replicas
        numbers = np.arange(replicas.start, replicas.stop)
        return np.repeat(numbers, len(steps)) if isinstance(steps, range) else numbers

    @property
    def steps(self) -> Array:
        """Of each row."""
        replicas, steps = self._asked
        if not isinstance(replicas, range):
            return np.asarray(steps)
        if not isinstance(steps, range):
            return np.full(len(replicas), steps)
        return np.tile(np.arange(steps.start, steps.stop), len(replicas))


def as_declared(name: str, shown: Array, shape: tuple[int, ...]) -> Array:
    """What a simulator shows, in the shape that it declares: another one could be spread over its
    place."""
    if shown.shape != shape:
        raise BrokenSimulator(f"{name} has the shape {shown.shape}; declared is {shape}")
    return shown


class Storage:
    """The arrays of one rollout, and the version that it is made with."""

    def __init__(
        self, sizes: Sizes, spaces: Spaces, arrays: Mapping[str, Array] | None = None
    ) -> None:
        self.sizes = sizes
        self.fields = tuple(spaces.observation)
        self.declared: tuple[SharedArray, ...] = storage_arrays(sizes, spaces)
        self.arrays: Mapping[str, Array] = (
            arrays
            if arrays is not None
            else {array.name: np.zeros(array.shape, array.dtype) for array in self.declared}
        )
        self.__dict__.update(self.arrays)  # found at once; `__getattr__` tells what is misspelt
        self.hashed = [self._bytes(array.name) for array in self.declared if array.hashed]
        self.version = -1  # of this process's view: what it is filling or learning from

    def _bytes(self, name: str) -> tuple[Array, slice]:
        """An array as bytes, a row for each replica, and which of them are of this rollout."""
        array, history = self.arrays[name], self.sizes.history
        assert array.flags.c_contiguous, "what is hashed lies there in one piece"
        step = array.nbytes // (array.shape[0] * array.shape[1])
        first = history * step if name.startswith("frames.") else 0
        mine = slice(first, first + self.sizes.steps * step)
        return array.reshape(len(array), -1).view(np.uint8), mine

    def __getattr__(self, name: str) -> Array:
        try:
            return self.__dict__["arrays"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(f"a storage has no array {name!r}") from None

    def write_frame(self, replicas: Any, step: int, observation: Observation) -> None:
        """The observation on which `step` will be decided."""
        place = self.sizes.history + step
        for name in self.fields:
            self.arrays[f"frames.{name}"][replicas, place] = observation[name]

    def frames(self, replicas: slice, step: int) -> Observation:
        """Where they stand on which consecutive replicas decide their `step`."""
        place = self.sizes.history + step
        return {name: self.arrays[f"frames.{name}"][replicas, place] for name in self.fields}

    def write_final(self, replicas: Any, step: int, observation: Observation) -> None:
        """The observation behind a truncation in this step: seen by nobody but the value
        function."""
        for name in self.fields:
            self.arrays[f"finals.{name}"][replicas, step % self.sizes.finals] = observation[name]

    def _finals(self, name: str, rows: Rows) -> Array:
        finals = self.arrays[f"finals.{name}"]
        return np.asarray(finals[rows.replicas, rows.steps % self.sizes.finals])

    def take_over(self, older: Storage, replicas: Any) -> None:
        """Begin where `older` ended: its last frames are the first stack's history."""
        t, h = self.sizes.steps, self.sizes.history
        for name in self.fields:
            frames = f"frames.{name}"
            self.arrays[frames][replicas, : h + 1] = older.arrays[frames][replicas, t : t + h + 1]
        self.no_ends(replicas, 0)
        self.age[replicas, 0] = older.age[replicas, t]
        self.episode[replicas, 0] = older.episode[replicas, t]
        if self.sizes.state:
            self.state[replicas, 0] = older.state[replicas, t]

    def no_ends(self, replicas: Any, step: int) -> None:
        """From this step on nothing has ended: whoever steps writes down what ends, and no more."""
        self.terminated[replicas, step:] = False
        self.truncated[replicas, step:] = False
        self.bootstrap[replicas, step:] = 0.0

    def state_before(self, rows: Rows) -> Array | None:
        """The recurrent state that these rows find: nothing where their episode begins.

        Behind a truncation it is the state after the step, whatever began there since.
        """
        if not self.sizes.state:
            return None
        place = rows.steps + int(rows.final)
        state = self.state[rows.replicas, place]
        if not rows.final:
            state[self.age[rows.replicas, place] == 0] = 0.0
        return np.asarray(state)

    def gather(self, rows: Rows) -> Observation:
        """What the policy sees in these rows: frames stacked on the last axis, oldest first."""
        if self.sizes.history == 0:  # a frame's place is its step
            return {name: self._newest(name, rows) for name in self.fields}
        return {name: self._stack(name, rows) for name in self.fields}

    def _newest(self, name: str, rows: Rows) -> Array:
        if rows.final:
            return self._finals(name, rows)
        frames = self.arrays[f"frames.{name}"]
        return np.array(frames[rows.place]).reshape(rows.count, *frames.shape[2:])

    def _stack(self, name: str, rows: Rows) -> Array:
        frames, history = self.arrays[f"frames.{name}"], self.sizes.history
        ages = self.age[rows.place].reshape(-1) + int(rows.final)
        if rows.is_block and ages.min() >= history:  # no frame is repeated
            replicas, step = rows.place
            parts = [frames[replicas, step + older] for older in range(history + 1)]
        else:
            replicas, newest = rows.replicas, history + rows.steps + int(rows.final)
            parts = [
                frames[replicas, newest - np.minimum(back, ages)]
                for back in range(history, int(rows.final) - 1, -1)
            ]
        if rows.final:
            parts.append(self._finals(name, rows))
        if parts[0].ndim <= 2:  # (rows, agents): a number for each agent becomes a vector
            return np.stack(parts, axis=-1)
        return _side_by_side(parts)


def _side_by_side(parts: list[Array]) -> Array:
    """Frames joined on the last axis.

    That axis is short, often one byte or four planes of one: as numbers of so many bytes frames are
    moved ten times as fast as by `np.concatenate`. Small ones are joined in pairs first, arithmetic
    being faster than strides.
    """
    first = parts[0]
    width = first.shape[-1] * first.itemsize
    if width not in (1, 2, 4, 8):
        return np.concatenate(parts, axis=-1)
    words = [part.view(f"<u{width}")[..., 0] for part in parts]
    while width < _PAIRED and len(words) % 2 == 0:
        words = [_pair(low, high, width) for low, high in zip(words[::2], words[1::2], strict=True)]
        width *= 2
    if len(words) == 1:
        return words[0][..., None].view(first.dtype)
    joined = np.empty((*first.shape[:-1], len(words)), f"<u{width}")
    for place, word in enumerate(words):
        joined[..., place] = word
    return joined.view(first.dtype)


def _pair(low: Array, high: Array, width: int) -> Array:
    """Words of twice the width, the low one first in memory."""
    words = high.astype(f"<u{2 * width}")
    words <<= 8 * width
    words |= low
    return words
