"""The `counting:` family: a world that proves that nothing was lost, torn or reordered.

An observation is `width` int64 for each agent. Its head says where it stands:

    0 seed_low   1 seed_high   2 agent      3 step
    4 length     5 actions     6 previous   7 checksum

`previous` is the action that the world received before this observation (-1 at the start of an
episode), `checksum` is folded from the seed, the agent and every (step, action) so far. What
follows is the payload: element 8 + i repeats head element i mod 8, mixed with the checksum, so a
half-written observation contradicts itself, and the first contradiction can be named.

Everything that should happen next is a function of the observation: which action is right
(anything else and the world raises), which reward it earns, and whether the episode goes on,
terminates or is truncated. A policy plays `expected_action`; a learner holds what it has read to
`verify`, `follows`, `expected_reward` and `expected_end`. All of them are pure, and take a single
observation (width,) or any number of leading axes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

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
    Traits,
    World,
)
from hts_envs.errors import BrokenSimulator
from hts_envs.options import Range, option
from hts_envs.randomness import fold_rows, uniform
from hts_envs.registry import Spec, Unnamed

FIELDS = ("seed_low", "seed_high", "agent", "step", "length", "actions", "previous", "checksum")
HEAD = len(FIELDS)
_LOW, _HIGH, _AGENT, _STEP, _LENGTH, _ACTIONS, _PREVIOUS, _CHECKSUM = range(HEAD)

# Purposes under which numbers are folded.
_FIRST, _NEXT, _RIGHT, _EPISODE, _CLOCK = 11, 12, 13, 14, 15

_MAX_REWARD = 1 << 16  # whole numbers below it are exact in float32


@dataclass(frozen=True)
class CountingOptions:
    """How much is in an observation, and how many play."""

    width: Annotated[int, Range(16)] = option(16, "numbers in an observation")
    agents: Annotated[int, Range(1)] = option(1, "agents in a replica, each with its own counters")
    actions: Annotated[int, Range(2)] = option(19, "how many actions there are")
    length: Annotated[int, Range(1)] = option(50, "mean length of an episode, in steps")
    batch: bool = option(False, "step all replicas behind one call", changes_result=False)


class Counting(Unnamed):
    """One environment, all options."""

    name = "counting"
    summary = "observations that prove that nothing was lost, torn or reordered"
    untrainable = (
        "counting: takes one right action for each observation and refuses every other, so it "
        "checks a machine and trains nothing; use sleeper: or another family"
    )

    def options(self, name: str) -> type[Any]:
        return CountingOptions

    def make(self, spec: Spec, place: Place) -> World | BatchedWorld:
        if spec.options.batch:
            return BatchedCountingWorld(spec.options, place.replicas)
        return CountingWorld(spec.options)


FAMILY = Counting()


def expected_action(observation: Array) -> Array:
    """The one action that the world takes as an answer to this observation (int64)."""
    drawn = fold_rows(observation[..., _CHECKSUM], _RIGHT)
    actions = observation[..., _ACTIONS].astype(np.uint64)
    return _shaped(drawn % actions, observation)


def expected_reward(observation: Array) -> Array:
    """What the expected action earns (float32): a whole number below 2^16."""
    return (observation[..., _CHECKSUM] % _MAX_REWARD).astype(np.float32)


class End(NamedTuple):
    """Whether the step taken from an observation ends the episode, and how."""

    terminated: Array
    truncated: Array


def expected_end(observation: Array) -> End:
    """After the last step, an episode is terminated or truncated: by its seed, never both."""
    last = observation[..., _STEP] + 1 == observation[..., _LENGTH]
    seeds = fold_rows(observation[..., _LOW], observation[..., _HIGH], _CLOCK)
    clock = _shaped(seeds & np.uint64(1), observation) == 1
    return End(last & ~clock, last & clock)


def verify(observation: Array) -> None:
    """Raise, naming the first torn element, unless every observation agrees with itself."""
    rows = observation.reshape(-1, observation.shape[-1])
    payload = _payload(rows[:, :HEAD], rows.shape[-1])
    wrong = rows[:, HEAD:] != payload
    if wrong.any():
        row, i = (int(part) for part in np.argwhere(wrong)[0])
        raise BrokenSimulator(
            f"observation {row} is torn: element {HEAD + i} holds {rows[row, HEAD + i]}, but its "
            f"{FIELDS[i % HEAD]} {rows[row, i % HEAD]} and checksum {rows[row, _CHECKSUM]} "
            f"ask for {payload[row, i]}"
        )
    at_start = rows[:, _STEP] == 0
    fresh = (rows[:, _PREVIOUS] == -1) & (rows[:, _CHECKSUM] == _first_checksum(rows))
    _require(fresh | ~at_start, rows, "starts an episode with another one's counters")
    inside = (rows[:, _STEP] >= 0) & (rows[:, _STEP] <= rows[:, _LENGTH])
    _require(inside, rows, "stands outside its episode")


def follows(previous: Array, action: Array, following: Array) -> None:
    """Raise unless the world went from `previous` to `following` by this action, in one step."""
    before = previous.reshape(-1, previous.shape[-1])
    after = following.reshape(-1, following.shape[-1])
    played = np.asarray(action, np.int64).reshape(-1)
    for field in (_LOW, _HIGH, _AGENT, _LENGTH, _ACTIONS):
        same = before[:, field] == after[:, field]
        _require(same, after, f"does not follow: its {FIELDS[field]} is another")
    _require(after[:, _STEP] == before[:, _STEP] + 1, after, "does not follow: steps are missing")
    _require(after[:, _PREVIOUS] == played, after, "does not follow: it answers another action")
    folded = _next_checksum(before, played)
    _require(after[:, _CHECKSUM] == folded, after, "does not follow: its checksum is another")


def _require(holds: Array, rows: Array, sentence: str) -> None:
    if not holds.all():
        row = int(np.argmin(holds))
        head = ", ".join(f"{name} {rows[row, i]}" for i, name in enumerate(FIELDS))
        raise BrokenSimulator(f"observation {row} {sentence} ({head})")


def _shaped(keys: Array, observation: Array) -> Array:
    return keys.astype(np.int64).reshape(observation.shape[:-1])


def _positive(keys: Array) -> Array:
    return np.asarray((keys >> np.uint64(1)).astype(np.int64))


def _first_checksum(heads: Array) -> Array:
    parts = (heads[..., field] for field in (_LOW, _HIGH, _AGENT))
    return _positive(fold_rows(_FIRST, *parts))


def _next_checksum(heads: Array, played: Array) -> Array:
    return _positive(fold_rows(_NEXT, heads[..., _CHECKSUM], heads[..., _STEP], played))


def _payload(heads: Array, width: int) -> Array:
    """(..., width - HEAD): head elements in turn, mixed with the checksum and their place."""
    places = np.arange(HEAD, width)
    return _positive(fold_rows(heads[..., _CHECKSUM, None], heads[..., places % HEAD], places))


class _Counters:
    """The heads of every agent of every replica, (replicas, agents, HEAD), and their rules."""

    def __init__(self, options: CountingOptions, replicas: int) -> None:
        self.options = options
        self.spaces = Spaces(
            {"observation": Box((options.width,), "int64", -1.0, float(2**63 - 1))},
            Discrete(options.actions),
            options.agents,
        )
        self.heads = np.zeros((replicas, options.agents, HEAD), np.int64)
        self.heads[:, :, _ACTIONS] = options.actions
        self.heads[:, :, _AGENT] = np.arange(options.agents)

    def start(self, rows: Array, seeds: Array) -> Array:
        seeds = np.asarray(seeds, np.uint64)
        low, high = seeds & np.uint64(0xFFFFFFFF), seeds >> np.uint64(32)
        heads = self.heads[rows]
        heads[:, :, _LOW] = low.astype(np.int64)[:, None]
        heads[:, :, _HIGH] = high.astype(np.int64)[:, None]
        drawn = uniform(fold_rows(seeds, _EPISODE), 1)
        heads[:, :, _LENGTH] = 1 + (drawn * (2 * self.options.length - 1)).astype(np.int64)
        heads[:, :, _STEP] = 0
        heads[:, :, _PREVIOUS] = -1
        heads[:, :, _CHECKSUM] = _first_checksum(heads)
        self.heads[rows] = heads
        return self.observe(heads)

    def observe(self, heads: Array) -> Array:
        return np.concatenate((heads, _payload(heads, self.options.width)), axis=-1)

    def advance(self, action: Array) -> tuple[Array, End]:
        """Take (replicas, agents) actions; the rewards and ends of the step."""
        heads = self.heads
        over = heads[:, 0, _STEP] >= heads[:, 0, _LENGTH]
        if over.any():
            raise BrokenSimulator(f"counting: row {int(np.argmax(over))} is stepped after its end")
        right = expected_action(heads)
        if not np.array_equal(right, action):
            self._refuse(action, right)
        rewards, end = expected_reward(heads), expected_end(heads[:, 0])
        heads[:, :, _CHECKSUM] = _next_checksum(heads, action)
        heads[:, :, _PREVIOUS] = action
        heads[:, :, _STEP] += 1
        return rewards, end

    def _refuse(self, action: Array, right: Array) -> None:
        row, agent = (int(part) for part in np.argwhere(right != action)[0])
        head = self.heads[row, agent]
        raise BrokenSimulator(
            f"counting: step {head[_STEP]} of the episode with seed "
            f"{int(head[_HIGH]) << 32 | int(head[_LOW])}, agent {agent}: received action "
            f"{action[row, agent]}, but its observation asks for {right[row, agent]}"
        )


class CountingWorld(World):
    """One replica."""

    def __init__(self, options: CountingOptions) -> None:
        self._counters = _Counters(options, 1)
        self.spaces = self._counters.spaces
        self.traits = Traits(snapshots=True)
        self._total = 0.0

    def reset(self, seed: int) -> Observation:
        self._total = 0.0
        seen = self._counters.start(np.array([0]), np.array([seed], np.uint64))
        return {"observation": seen[0]}

    def step(self, action: Array) -> Step:
        rewards, end = self._counters.advance(np.asarray(action, np.int64)[None])
        self._total += float(rewards[0].mean())
        heads = self._counters.heads
        facts = {"return": self._total, "length": float(heads[0, 0, _STEP])}
        terminated, truncated = bool(end.terminated[0]), bool(end.truncated[0])
        observation = {"observation": self._counters.observe(heads)[0]}
        ended = terminated or truncated
        return Step(observation, rewards[0], terminated, truncated, facts if ended else {})

    def snapshot(self) -> bytes:
        return struct.pack("<d", self._total) + self._counters.heads.tobytes()

    def restore(self, state: bytes) -> Observation:
        (self._total,) = struct.unpack_from("<d", state)
        heads = self._counters.heads
        heads[:] = np.frombuffer(state, np.int64, offset=8).reshape(heads.shape)
        return {"observation": self._counters.observe(heads)[0]}


class BatchedCountingWorld(BatchedWorld):
    """Many replicas behind one call, each the same as a world of its own."""

    def __init__(self, options: CountingOptions, replicas: int) -> None:
        self._counters = _Counters(options, replicas)
        self.spaces = self._counters.spaces
        self.traits = Traits()
        self.replicas = replicas
        self._tally = BatchedTally(replicas)

    def reset(self, rows: Array, seeds: Array) -> Observation:
        self._tally.start(rows)
        return {"observation": self._counters.start(rows, seeds)}

    def step(self, action: Array) -> BatchedStep:
        rewards, end = self._counters.advance(np.asarray(action, np.int64))
        self._tally.add(rewards.mean(axis=1, dtype=np.float64))
        seen = {"observation": self._counters.observe(self._counters.heads)}
        return BatchedStep(seen, rewards, end.terminated, end.truncated, self._tally.facts())
