"""One face for the two kinds of world: every array has the replicas as its first axis.

Nothing is copied or mended on the way, so that what a world really returns can be examined. What
cannot even be looked at (an observation that is no dict of arrays, say) is a `Broken`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import hts_envs
from hts.soundness.findings import Broken, last_lines
from hts.tracebacks import simulator_sentence
from hts_envs.contract import Array, BatchedWorld, Box, Discrete, Place, Space, Spaces, World
from hts_envs.errors import BadName, BadOption, MissingPackages
from hts_envs.randomness import uniform

BATCHED_REPLICAS = 4
"""Enough rows to see that they differ and end at different times."""


@dataclass(frozen=True)
class Moment:
    """What one call returned for some rows; `reward` and the rest are None after a reset."""

    observation: Mapping[str, Array]
    reward: Array | None = None
    terminated: Array | None = None
    truncated: Array | None = None
    facts: Mapping[str, Array] | None = None
    real_bools: bool = True

    def fields(self) -> dict[str, Array]:
        """Every array by the name that people see."""
        named = {observation_name(name): array for name, array in self.observation.items()}
        if self.reward is not None:
            assert self.terminated is not None, "a step has flags"
            assert self.truncated is not None, "a step has flags"
            named["reward"] = self.reward
            named["terminated"] = self.terminated
            named["truncated"] = self.truncated
        return named


def observation_name(name: str) -> str:
    return name if name == "observation" else f"observation.{name}"


Policy: TypeAlias = Callable[[Array], Array]


class Subject(ABC):
    """A world that is being examined."""

    replicas: int
    spaces: Spaces
    traits: hts_envs.Traits
    world: World | BatchedWorld
    policy: Policy | None = None

    def __init__(self, world: World | BatchedWorld) -> None:
        self.world = world
        self.spaces, self.traits = world.spaces, world.traits
        self._standing: dict[int, Array] = {}

    def reset(self, rows: Array, seeds: Array) -> Moment:
        return self._seen(rows, self._reset(rows, seeds))

    def step(self, action: Array) -> Moment:
        return self._seen(np.arange(self.replicas), self._step(action))

    def choose(self, keys: Array) -> Array:
        """The actions that these keys name, or the only ones that the world takes."""
        if self.policy is None:
            return actions(self.spaces, keys)
        return self.policy(np.stack([self._standing[row] for row in range(self.replicas)]))

    def close(self) -> None:
        try:
            self.world.close()
        except Exception as error:
            text = f"close raised {type(error).__name__}: {error}"
            raise Broken("raises", text, last_lines(error)) from error

    @abstractmethod
    def _reset(self, rows: Array, seeds: Array) -> Moment: ...

    @abstractmethod
    def _step(self, action: Array) -> Moment: ...

    def _seen(self, rows: Array, moment: Moment) -> Moment:
        if self.policy is not None:
            for row, observed in zip(rows, moment.observation["observation"], strict=True):
                self._standing[int(row)] = observed.copy()
        return moment


class Single(Subject):
    """An ordinary world: one row."""

    world: World
    replicas = 1

    def _reset(self, rows: Array, seeds: Array) -> Moment:
        return Moment(_as_rows(self.world.reset(int(seeds[0])), "reset", lift=True))

    def _step(self, action: Array) -> Moment:
        step = _parts(self.world.step(action[0]))
        flags = (step[2], step[3])
        return Moment(
            observation=_as_rows(step[0], "step", lift=True),
            reward=_array(step[1], "reward")[None],
            terminated=np.array([bool(flags[0])]),
            truncated=np.array([bool(flags[1])]),
            facts={name: np.array([value]) for name, value in dict(step[4]).items()},
            real_bools=all(type(flag) is bool for flag in flags),
        )

    def restore(self, state: bytes) -> Moment:
        moment = Moment(_as_rows(self.world.restore(state), "restore", lift=True))
        return self._seen(np.arange(1), moment)


class Batch(Subject):
    """A batched world: a few rows of it."""

    world: BatchedWorld

    def __init__(self, world: BatchedWorld) -> None:
        super().__init__(world)
        self.replicas = world.replicas

    def _reset(self, rows: Array, seeds: Array) -> Moment:
        return Moment(_as_rows(self.world.reset(rows, seeds), "reset", lift=False))

    def _step(self, action: Array) -> Moment:
        step = _parts(self.world.step(action))
        flags = [_array(step[place], name) for place, name in ((2, "terminated"), (3, "truncated"))]
        for flag, name in zip(flags, ("terminated", "truncated"), strict=True):
            if flag.shape != (self.replicas,):
                raise Broken(
                    "contract", f"{name} has shape {flag.shape}, expected one for each replica"
                )
        return Moment(
            observation=_as_rows(step[0], "step", lift=False),
            reward=_array(step[1], "reward"),
            terminated=flags[0].astype(bool),
            truncated=flags[1].astype(bool),
            facts={name: np.asarray(value) for name, value in dict(step[4]).items()},
            real_bools=all(flag.dtype == bool for flag in flags),
        )


def build(environment: str, seed: int, replica: int = 0) -> Subject:
    """Make the world of this name; what the user mistyped passes through unchanged."""
    spec = hts_envs.parse(environment)
    replicas = BATCHED_REPLICAS if spec.batched else 1
    try:
        world = hts_envs.make(spec, Place(replica, replicas, seed))
    except (BadName, BadOption, MissingPackages):
        raise
    except Exception as error:
        text = f"it cannot be built: {simulator_sentence(error)}"
        raise Broken("raises", text, last_lines(error)) from error
    subject = Batch(world) if isinstance(world, BatchedWorld) else Single(world)
    subject.policy = _only_policy(spec)
    return subject


def _only_policy(spec: hts_envs.Spec) -> Policy | None:
    """The counting world takes one right action, which it shows; every other takes any."""
    if spec.family.name != "counting":
        return None
    from hts_envs.counting import expected_action

    return expected_action


def actions(spaces: Spaces, keys: Array) -> Array:
    """An action of every agent for each key, uniform over what the space allows."""
    space = spaces.action
    size = int(np.prod(space.shape, dtype=np.int64))
    drawn = uniform(keys, spaces.agents * size).reshape(len(keys), spaces.agents, *space.shape)
    return _stretch(space, drawn)


def _stretch(space: Space, drawn: Array) -> Array:
    """Numbers in [0, 1) as actions; unbounded sides of a box are taken at -1 and 1."""
    if isinstance(space, Box):
        low, high = (np.asarray(side, np.float64) for side in (space.low, space.high))
        low = np.where(np.isfinite(low), low, np.minimum(-1.0, high - 2.0))
        high = np.where(np.isfinite(high), high, np.maximum(1.0, low + 2.0))
        if np.dtype(space.dtype).kind in "iu":
            return np.asarray(np.floor(low + drawn * (high - low + 1)).astype(space.dtype))
        exact = (low + drawn * (high - low)).astype(space.dtype)
        bounded = np.clip(exact, low.astype(space.dtype), high.astype(space.dtype))
        return np.asarray(bounded)
    counts = space.n if isinstance(space, Discrete) else np.asarray(space.nvec)
    return np.asarray(np.floor(drawn * counts).astype(np.int64))


def _parts(step: Any) -> tuple[Any, ...]:
    if not isinstance(step, tuple) or len(step) != 5:
        what = f"{len(step)} values" if isinstance(step, tuple) else f"a {type(step).__name__}"
        raise Broken(
            "contract",
            f"step returns {what} instead of observation, reward, terminated, truncated and facts",
        )
    return step


def _as_rows(observation: Any, call: str, *, lift: bool) -> dict[str, Array]:
    if not isinstance(observation, dict):
        kind = type(observation).__name__
        text = f"{call} returns {kind} as observation instead of a dict of arrays"
        raise Broken("contract", text)
    arrays = {name: _array(value, f"observation {name!r}") for name, value in observation.items()}
    return {name: array[None] for name, array in arrays.items()} if lift else arrays


def _array(value: Any, name: str) -> Array:
    if not isinstance(value, np.ndarray):
        raise Broken("contract", f"{name} is {type(value).__name__} instead of a numpy array")
    if value.dtype.hasobject:
        raise Broken("contract", f"{name} is an array of Python objects instead of numbers")
    return value
