"""The `sleeper:` family: a world whose only property is how long a step takes.

A step's duration is drawn from a gamma distribution of a chosen mean and shape (shape 1 is the
exponential one; a larger shape is steadier), as a function of the episode's seed and the step.
The time passes asleep, like an external engine's, or burns the processor, like a game engine's.
With a mean of 0 the step is instant: a few microseconds, for measuring everything around it.

Observations are a function of (seed, step, last action): a fixed pattern, shifted by a word mixed
from these three. Their first element is the clue: 0 for the first action and the largest value
for the last, others evenly between. Reward is 1 for the action that the clue asks for, else 0.
With `control=number` an action is a number in [-1, 1], for algorithms that need one.

One world and one row of the batched form with the same seed and actions see the same bytes. A
step of the batched form takes the longest of its rows' durations asleep, and their sum burning.
"""

from __future__ import annotations

import math
import struct
import time
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from hts_envs.contract import (
    Array,
    BatchedStep,
    BatchedTally,
    BatchedWorld,
    Box,
    Discrete,
    Observation,
    Place,
    Spaces,
    Step,
    Tally,
    Traits,
    World,
)
from hts_envs.options import Range, option
from hts_envs.randomness import fold, fold_rows, normal, uniform
from hts_envs.registry import Spec, Unnamed

# Purposes under which an episode's seed is folded.
_WORDS, _LENGTH, _DURATION, _PATTERN = 1, 2, 3, 4

_MASK = (1 << 64) - 1
_PER_STEP = 0x9E3779B97F4A7C15
_PER_ACTION = 0xC2B2AE3D27D4EB4F
_MIX = 0xD6E8FEB86659FD93

_AHEAD = 64  # durations are drawn for so many steps at once: a draw of one costs as much
_STATE = struct.Struct("<QQqd")


@dataclass(frozen=True)
class SleeperOptions:
    """How long a step takes, what is seen, and how long an episode is."""

    mean: Annotated[float, Range(0)] = option(5.0, "mean duration of a step, in milliseconds")
    shape: Annotated[float, Range(above=0)] = option(1.0, "shape of the gamma distribution")
    work: Literal["sleep", "burn"] = option("sleep", "how the time passes: asleep, or burning CPU")
    observation: tuple[Annotated[int, Range(1)], ...] = option((4,), "shape, such as 84x84x4")
    dtype: Literal["float32", "uint8"] = option("float32", "dtype of the observation")
    length: Annotated[int, Range(1)] = option(100, "mean length of an episode, in steps")
    lengths: Literal["geometric", "uniform", "fixed"] = option(
        "geometric", "distribution of the lengths"
    )
    actions: Annotated[int, Range(2)] = option(2, "how many actions there are")
    control: Literal["choice", "number"] = option(
        "choice", "what says which: a choice, or a number in [-1, 1], cut into as many equal parts"
    )
    batch: bool = option(False, "step all replicas behind one call", changes_result=False)


class Sleeper(Unnamed):
    """One environment, all options."""

    name = "sleeper"
    summary = "a step that takes a random time, for measuring the machine"

    def options(self, name: str) -> type[Any]:
        return SleeperOptions

    def make(self, spec: Spec, place: Place) -> World | BatchedWorld:
        if spec.options.batch:
            return BatchedSleeperWorld(spec.options, place.replicas)
        return SleeperWorld(spec.options)


FAMILY = Sleeper()


class SleeperWorld(World):
    """One replica; `step` is kept short because its own cost is what the instant world measures."""

    def __init__(self, options: SleeperOptions) -> None:
        self.spaces = _spaces(options)
        self.traits = Traits(snapshots=True)
        self._options = options
        self._pattern = pattern(options)
        self._clue = (0,) * self._pattern.ndim
        self._clues = _clues(options)
        self._waits = options.mean > 0
        self._is_number = options.control == "number"
        self._durations: list[float] = []
        self._tally = Tally()
        self._asked = 0
        self._begin(0)

    def reset(self, seed: int) -> Observation:
        self._begin(seed)
        return self._observe()

    def step(self, action: Array) -> Step:
        until = self._until() if self._waits else 0.0
        played = action.item()
        if self._is_number:
            played = int(_parts(np.float64(played), self._options.actions))
        assert 0 <= played < self._options.actions, f"action {played} is not in the action space"
        reward = 1.0 if played == self._asked else 0.0
        self._tally.add(reward)
        self._played = played
        ended = self._tally.length == self._length
        observation = self._observe()
        facts = self._tally.facts() if ended else {}
        if self._waits:
            _pass_time(self._options.work, until)
        return Step(observation, np.array((reward,), np.float32), ended, False, facts)

    def snapshot(self) -> bytes:
        return _STATE.pack(self._seed, self._tally.length, self._played, self._tally.total)

    def restore(self, state: bytes) -> Observation:
        seed, length, played, total = _STATE.unpack(state)
        self._begin(seed)
        self._tally = Tally(total, length)
        self._played = played
        if self._waits:
            self._draw(length - length % _AHEAD)
        return self._observe()

    def _begin(self, seed: int) -> None:
        self._seed = seed
        self._base = fold(seed, _WORDS)
        self._length = int(episode_lengths(self._options, np.array([seed], np.uint64))[0])
        self._played = -1
        self._tally.start()

    def _observe(self) -> Observation:
        step = self._tally.length
        word = (self._base + step * _PER_STEP + (self._played + 1) * _PER_ACTION) & _MASK
        word = ((word ^ (word >> 32)) * _MIX) & _MASK
        word ^= word >> 32
        self._asked = word % self._options.actions
        shift = (word >> 40) & 0xFF
        if self._options.dtype == "uint8":
            seen = self._pattern ^ shift
        else:
            seen = self._pattern + shift / 512.0
        seen[self._clue] = self._clues[self._asked]
        return {"observation": seen}

    def _until(self) -> float:
        """When this step must be over, by the clock of its kind of work."""
        now = time.perf_counter() if self._options.work == "sleep" else time.thread_time()
        step = self._tally.length
        if step % _AHEAD == 0:
            self._draw(step)
        return now + self._durations[step % _AHEAD]

    def _draw(self, first: int) -> None:
        steps = np.arange(first, first + _AHEAD)
        self._durations = durations(self._options, self._seed, steps).tolist()


class BatchedSleeperWorld(BatchedWorld):
    """The same for many replicas; row by row equal to `SleeperWorld`."""

    def __init__(self, options: SleeperOptions, replicas: int) -> None:
        self.spaces = _spaces(options)
        self.traits = Traits()
        self.replicas = replicas
        self._options = options
        self._pattern = pattern(options)[None]
        self._clues = np.array(_clues(options), options.dtype)
        self._seeds = np.zeros(replicas, np.uint64)
        self._bases = np.zeros(replicas, np.uint64)
        self._lengths = np.zeros(replicas, np.int64)
        self._asked = np.zeros(replicas, np.int64)
        self._tally = BatchedTally(replicas)

    def reset(self, rows: Array, seeds: Array) -> Observation:
        seeds = np.asarray(seeds, np.uint64)
        self._seeds[rows] = seeds
        self._bases[rows] = fold_rows(seeds, _WORDS)
        self._lengths[rows] = episode_lengths(self._options, seeds)
        self._tally.start(rows)
        nothing = np.full(len(rows), -1, np.int64)
        words = _words(self._bases[rows], self._tally.length[rows], nothing)
        self._asked[rows] = words % np.uint64(self._options.actions)
        return self._observe(words, self._asked[rows])

    def step(self, action: Array) -> BatchedStep:
        sleeping = self._options.work == "sleep"
        begun = time.perf_counter() if sleeping else time.thread_time()
        until = begun + self._duration() if self._options.mean > 0 else 0.0
        played = action.reshape(self.replicas)
        if self._options.control == "number":
            played = _parts(played.astype(np.float64), self._options.actions)
        assert ((played >= 0) & (played < self._options.actions)).all(), "an impossible action"
        reward = (played == self._asked).astype(np.float32)
        self._tally.add(reward)
        words = _words(self._bases, self._tally.length, played)
        self._asked = (words % np.uint64(self._options.actions)).astype(np.int64)
        ended = self._tally.length == self._lengths
        observation = self._observe(words, self._asked)
        if until:
            _pass_time(self._options.work, until)
        never = np.zeros(self.replicas, np.bool_)
        return BatchedStep(observation, reward[:, None], ended, never, self._tally.facts())

    def _duration(self) -> float:
        each = durations(self._options, self._seeds, self._tally.length)
        return float(each.max() if self._options.work == "sleep" else each.sum())

    def _observe(self, words: Array, asked: Array) -> Observation:
        shift = ((words >> np.uint64(40)) & np.uint64(0xFF)).astype(self._pattern.dtype)
        shift = shift.reshape(-1, *(1,) * (self._pattern.ndim - 1))
        if self._options.dtype == "uint8":
            seen = self._pattern ^ shift
        else:
            seen = self._pattern + shift / np.float32(512.0)
        seen.reshape(len(words), -1)[:, 0] = self._clues[asked]
        return {"observation": seen}


def pattern(options: SleeperOptions) -> Array:
    """What every observation is made from: (1, *shape), multiples of 1/512 in [0, 1/2) or bytes."""
    count = math.prod(options.observation)
    values = uniform(np.array([fold(_PATTERN)], np.uint64), count)
    levels = np.floor(values * 256.0).reshape(1, *options.observation)
    if options.dtype == "uint8":
        return levels.astype(np.uint8)
    return (levels / 512.0).astype(np.float32)


def episode_lengths(options: SleeperOptions, seeds: Array) -> Array:
    """Length of the episode of each seed, at least 1, with the mean that the options ask for."""
    mean = options.length
    drawn = uniform(fold_rows(seeds, _LENGTH), 1)[:, 0]
    if options.lengths == "fixed" or mean == 1:
        return np.full(len(seeds), mean, np.int64)
    if options.lengths == "uniform":
        return 1 + (drawn * (2 * mean - 1)).astype(np.int64)
    return 1 + np.floor(np.log1p(-drawn) / math.log1p(-1.0 / mean)).astype(np.int64)


def durations(options: SleeperOptions, seeds: Array | int, steps: Array) -> Array:
    """Seconds that each of these steps takes in the episode of its seed."""
    scale = options.mean / 1000.0 / options.shape
    return gamma(fold_rows(seeds, _DURATION, steps), options.shape) * scale


def gamma(keys: Array, shape: float) -> Array:
    """One draw for each key from the gamma distribution of this shape and scale 1.

    Marsaglia and Tsang's method: a normal number, squeezed and accepted or drawn again from the
    key of the next round. Below shape 1, a draw of shape + 1 times u^(1 / shape).
    """
    if shape < 1.0:
        lift = (1.0 - uniform(fold_rows(keys, -1), 1)[:, 0]) ** (1.0 / shape)
        return np.asarray(gamma(keys, shape + 1.0) * lift)
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    drawn = np.zeros(len(keys))
    waiting = np.arange(len(keys))
    attempt = 0
    while len(waiting):
        now = fold_rows(keys[waiting], attempt)
        x = normal(fold_rows(now, 0), 1)[:, 0]
        u = 1.0 - uniform(fold_rows(now, 1), 1)[:, 0]  # in (0, 1]
        v = (1.0 + c * x) ** 3
        log_v = np.log(np.where(v > 0.0, v, 1.0))
        taken = (v > 0.0) & (np.log(u) < 0.5 * x * x + d - d * v + d * log_v)
        drawn[waiting[taken]] = d * v[taken]
        waiting = waiting[~taken]
        attempt += 1
    return drawn


def _words(bases: Array, steps: Array, played: Array) -> Array:
    """`SleeperWorld._observe`'s word, for rows."""
    step, action = steps.astype(np.uint64), (played + 1).astype(np.uint64)
    words = bases + step * np.uint64(_PER_STEP) + action * np.uint64(_PER_ACTION)
    words = (words ^ (words >> np.uint64(32))) * np.uint64(_MIX)
    return np.asarray(words ^ (words >> np.uint64(32)))


def _parts(numbers: Any, actions: int) -> Any:
    """Which of so many equal parts of [-1, 1] these lie in; the last one has its upper end."""
    assert (abs(numbers) <= 1.0).all(), "an impossible action"
    return np.minimum(np.floor((numbers + 1.0) * 0.5 * actions), actions - 1).astype(np.int64)


def _clues(options: SleeperOptions) -> list[float]:
    last = options.actions - 1
    if options.dtype == "uint8":
        return [255 * action // last for action in range(options.actions)]
    return [action / last for action in range(options.actions)]


def _spaces(options: SleeperOptions) -> Spaces:
    high = 255.0 if options.dtype == "uint8" else 1.0
    seen = Box(options.observation, options.dtype, 0.0, high)
    number = Box((1,), "float32", -1.0, 1.0)
    action = number if options.control == "number" else Discrete(options.actions)
    return Spaces({"observation": seen}, action)


def _pass_time(work: str, until: float) -> None:
    if work == "sleep":
        time.sleep(max(0.0, until - time.perf_counter()))
        return
    while time.thread_time() < until:
        pass
