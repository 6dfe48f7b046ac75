"""EnvPool's tasks, stepped by its own threads: `envpool:Pong-v5`, `envpool:HalfCheetah-v5`.

Synchronous mode only: each call steps every replica. EnvPool would reset an ended row by itself
when it is stepped again; here the caller resets ended rows first (EnvPool takes a list of rows),
so no dead row is ever seen. Its seeds are taken when the pool is built, one for each replica out
of `Place.seed` and the replica's number; episodes then follow one another, and the seeds given to
`reset` change nothing (`traits.reseeds` is False).

Where a simulator clocks an episode, EnvPool calls its last step truncated even if it also ended
for another reason; only its Atari games say which, and there an end that is real wins.

Football (`envpool:gfootball/academy_3_vs_1_with_keeper-v1` and 17 more) needs no compiler, but
against the family `gfootball` it lacks: the checkpoint reward, more than one player, every
representation but the extracted planes, seeds that the caller gives (each episode has a fresh one
that follows from the pool's), and snapshots. Its clock lets one step more pass than its limit.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np

from hts_envs.contract import (
    Array,
    BatchedStep,
    BatchedTally,
    BatchedWorld,
    Box,
    Discrete,
    MultiDiscrete,
    Observation,
    Place,
    Space,
    Spaces,
    Traits,
    World,
)
from hts_envs.errors import BadName, BadOption, BrokenSimulator
from hts_envs.options import Range, option
from hts_envs.randomness import fold
from hts_envs.registry import Family, Spec
from hts_envs.spelling import hint

DEFAULT = "CartPole-v1"
EXAMPLES = (
    DEFAULT,
    "Pendulum-v1",
    "Breakout-v5",
    "HalfCheetah-v5",
    "gfootball/academy_3_vs_1_with_keeper-v1",
)
"""What is listed where EnvPool is not installed to list its own."""

_ROUTING = ("env_id", "players.env_id")
_OPEN = {float(np.finfo(kind).tiny): -np.inf for kind in (np.float32, np.float64)} | {
    float(np.finfo(kind).max): np.inf for kind in (np.float32, np.float64)
}
"""Where a task declares no bounds, EnvPool writes C++'s smallest and largest numbers."""

_NEVER = 2**31 - 1  # what a task without a clock gives as its limit
_COUNTABLE = 2**20  # a whole number with more values than this is a measurement, not a choice


@dataclass(frozen=True)
class Options:
    """What is passed on to EnvPool; a task that lacks a setting refuses it."""

    threads: Annotated[int, Range(0)] = option(
        0, "threads that step the pool; 0: one for each core"
    )
    max_episode_steps: Annotated[int | None, Range(1)] = option(None, "steps that end an episode")
    frame_skip: Annotated[int | None, Range(1)] = option(None, "simulator frames in a step")
    repeat_action_probability: Annotated[float | None, Range(0, 1)] = option(
        None, "Atari: probability that a frame repeats the action before"
    )
    noop_max: Annotated[int | None, Range(1)] = option(None, "Atari: no-ops at a start, at most")
    full_action_space: bool | None = option(None, "Atari: all 18 actions")


class EnvPool(Family):
    """Everything EnvPool registers for one player."""

    name = "envpool"
    summary = "any task of EnvPool, stepped in batches by its own threads"
    packages = ("envpool",)
    extra = "envpool"
    open_ended = True

    def names(self) -> Sequence[str]:
        return _registered() or EXAMPLES

    def resolve(self, name: str) -> str:
        name, known = name or DEFAULT, _registered()
        if not known or name in known:
            return name
        same = [task for task in known if task.lower() == name.lower()]
        if not same:
            raise BadName(f"envpool has no task {name!r}{hint(name, known)}")
        return same[0]

    def options(self, name: str) -> type[Any]:
        return Options

    def batched(self, spec: Spec) -> bool:
        return True

    def make(self, spec: Spec, place: Place) -> World | BatchedWorld:
        return EnvPoolWorld(spec.name, spec.options, place)


class EnvPoolWorld(BatchedWorld):
    """A pool of replicas of one task."""

    def __init__(self, name: str, options: Options, place: Place) -> None:
        self.replicas = place.replicas
        self._pool = _build(name, options, place)
        config = self._pool.config
        limit = config["max_episode_steps"] + name.startswith("gfootball/")
        observations = _observations(self._pool.spec.state_array_spec)
        self._action_dtype, action = _action(name, self._pool.spec.action_array_spec)
        self._shapes = {key: array.shape for key, array in observations.items()}
        self._turned = {key for key, array in observations.items() if _channel_first(array)}
        self.spaces = Spaces({key: _space(array) for key, array in observations.items()}, action)
        self.traits = Traits(
            time_limit=limit if limit < _NEVER else None,
            frame_skip=config.get("frame_skip", 1),
            reseeds=False,
        )
        self._tally = BatchedTally(self.replicas)
        self._live = np.zeros(self.replicas, bool)

    def reset(self, rows: Array, seeds: Array) -> Observation:
        observation, info = self._pool.reset(np.asarray(rows, np.int32))
        assert np.array_equal(info["env_id"], rows), "the pool answers in the order it was asked"
        self._tally.start(rows)
        self._live[rows] = True
        return self._observation(observation, len(rows))

    def step(self, action: Array) -> BatchedStep:
        assert self._live.all(), "ended rows are reset before the pool is stepped"
        chosen = np.ascontiguousarray(action[:, 0], self._action_dtype)
        observation, reward, terminated, truncated, info = self._pool.step(chosen)
        if "terminated" in info:  # the game itself is over, whatever the clock says
            truncated = truncated & (info["terminated"] == 0)
            terminated = terminated | (info["terminated"] != 0)
        self._tally.add(reward)
        self._live = ~(terminated | truncated)
        facts = self._tally.facts()
        if "lives" in info:
            facts["lives"] = info["lives"].astype(np.float64)
        if "score" in info:
            facts["score"] = (info["score"][:, 0] - info["score"][:, 1]).astype(np.float64)
        return BatchedStep(
            self._observation(observation, self.replicas),
            np.asarray(reward, np.float32)[:, None],
            terminated,
            truncated,
            facts,
        )

    def close(self) -> None:
        self._pool.close()

    def _observation(self, given: Any, rows: int) -> Observation:
        """One agent's axis behind the rows, pictures channel last; EnvPool reuses no array."""
        arrays = _flat(given)
        assert arrays.keys() == self._shapes.keys(), "the pool sends what its spec declares"
        found = {}
        for name, shape in self._shapes.items():
            array = arrays[name].reshape(rows, 1, *shape)
            if name in self._turned:
                array = np.ascontiguousarray(np.moveaxis(array, 2, -1))
            found[name] = array.astype(self.spaces.observation[name].dtype, copy=False)
        return found


@dataclass(frozen=True)
class _Declared:
    """One array as EnvPool declares it, without the axis of players."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: Array
    high: Array

    @property
    def whole(self) -> bool:
        return bool(np.issubdtype(self.dtype, np.integer))


@cache
def _registered() -> tuple[str, ...]:
    """The tasks of the installed EnvPool; none where it is not installed."""
    if importlib.util.find_spec("envpool") is None:
        return ()
    import envpool

    return tuple(envpool.list_all_envs())


def _build(name: str, options: Options, place: Place) -> Any:
    import envpool

    settings = {
        key: value for key, value in vars(options).items() if key != "threads" and value is not None
    }
    try:
        known = set(envpool.make_spec(name).config._fields)
    except Exception as error:
        raise BrokenSimulator(f"envpool cannot make {name}: {_sentence(error)}") from error
    for key in settings.keys() - known:
        raise BadOption(f"envpool:{name} has no setting {key!r}")
    settings |= {"stack_num": 1} if "stack_num" in known else {}  # the machine stacks
    seeds = [fold(place.seed, place.replica + row) >> 33 for row in range(place.replicas)]
    try:
        pool = envpool.make(
            name,
            env_type="gymnasium",
            num_envs=place.replicas,
            num_threads=options.threads,
            seed=seeds,
            **settings,
        )
        with warnings.catch_warnings():
            # Gymnasium warns of bounds that EnvPool gives as float64; they are cached from here on.
            warnings.simplefilter("ignore", UserWarning)
            assert pool.observation_space is not None, "a pool declares what it sends"
    except Exception as error:
        raise BrokenSimulator(f"envpool cannot make {name}: {_sentence(error)}") from error
    if pool.config["max_num_players"] != 1:
        raise BadName(f"envpool:{name} is for several players, which this family does not play")
    return pool


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _observations(spec: dict[str, Any]) -> dict[str, _Declared]:
    found = {}
    for key, array in spec.items():
        if key == "obs" or key.startswith("obs:"):
            found[key[4:].replace(":", ".") or "observation"] = _declared(array)
    return dict(sorted(found.items())) if len(found) > 1 else {"observation": found.popitem()[1]}


def _declared(spec: Any) -> _Declared:
    shape = tuple(int(size) for size in spec.shape if size != -1)
    dtype = np.dtype(spec.dtype)
    return _Declared(shape, dtype, np.asarray(spec.minimum), np.asarray(spec.maximum))


def _channel_first(array: _Declared) -> bool:
    """A picture with its few channels before its many rows."""
    return array.dtype == np.uint8 and len(array.shape) == 3 and array.shape[0] < array.shape[2]


def _space(array: _Declared) -> Space:
    """Booleans become 0 and 1, small whole numbers choices, all else a box."""
    if array.dtype == np.bool_:
        return Box(array.shape, "int8", 0, 1)
    if array.whole and not array.shape and array.low == 0 and array.high < _COUNTABLE:
        return Discrete(int(array.high) + 1)
    shape = (*array.shape[1:], array.shape[0]) if _channel_first(array) else array.shape
    return Box(shape, array.dtype.name, _bound(array.low), _bound(array.high))


def _bound(bound: Array) -> float | tuple[Any, ...]:
    values = {_number(value) for value in bound.ravel().tolist()}
    return values.pop() if len(values) == 1 else tuple(_nested(row) for row in bound.tolist())


def _nested(values: Any) -> Any:
    if isinstance(values, list):
        return tuple(_nested(value) for value in values)
    return _number(values)


def _number(value: float) -> float:
    return _OPEN.get(float(value), float(value))


def _action(name: str, spec: dict[str, Any]) -> tuple[np.dtype[Any], Space]:
    parts = [_declared(array) for key, array in spec.items() if key not in _ROUTING]
    array = parts[0]
    if len(parts) > 1 or (array.whole and (array.low != 0).any()) or len(array.shape) > 1:
        raise BadName(f"envpool:{name} has actions of a kind that this family does not play")
    if not array.whole:
        return array.dtype, Box(array.shape, "float32", _bound(array.low), _bound(array.high))
    if not array.shape:
        return array.dtype, Discrete(int(array.high) + 1)
    counts = np.broadcast_to(array.high + 1, array.shape)
    return array.dtype, MultiDiscrete(tuple(int(count) for count in counts))


def _flat(given: Any) -> dict[str, Array]:
    """Nested dicts of arrays to dotted names."""
    if not isinstance(given, dict):
        return {"observation": given}
    found: dict[str, Array] = {}
    for key, value in given.items():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": array for inner, array in _flat(value).items()}
        else:
            found[key] = value
    return found


FAMILY = EnvPool()
