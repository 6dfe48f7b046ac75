"""What `python:` can be pointed at: factories good and bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from hts_envs.contract import (
    Array,
    BatchedStep,
    BatchedWorld,
    Discrete,
    Observation,
    Spaces,
    Step,
    Traits,
    World,
)
from hts_envs.errors import BadOption
from hts_envs.options import Range
from tests.fakes.gym_worlds import Counter, Old, Spaced

if TYPE_CHECKING:
    from somewhere_for_checkers_only import Unknown

NUMBER = 3
INFINITY = float("inf")


class Told(Counter):
    """Keeps what it was built with."""

    def __init__(self, **told: Any) -> None:
        super().__init__()
        self.told = told


def typed(
    x: int = 1,
    rate: float = 0.5,
    fast: bool = False,
    label: str = "plain",
    mode: Literal["easy", "hard"] = "easy",
    sizes: tuple[int, ...] = (8, 8),
    names: list[str] | None = None,
    limit: Annotated[int, Range(1)] | None = None,
) -> gymnasium.Env[Any, Any]:
    told = {"x": x, "rate": rate, "fast": fast, "label": label, "mode": mode}
    return Told(**told, sizes=sizes, names=names, limit=limit)


ODDITY = object()
TABLE = {"a": 1}


def untyped(port, host="here", count=2, table=TABLE, weird=ODDITY, odd=INFINITY):  # type: ignore[no-untyped-def]
    assert weird is ODDITY
    return Told(port=port, host=host, count=count, table=table, odd=odd)


def unreadable(x: float = 1, later: Unknown = None) -> Unknown:
    return Told(x=x, later=later)


def placed(seed: int, replica: int, replicas: int, x: int = 1) -> Any:
    return Told(seed=seed, replica=replica, replicas=replicas, x=x)


def anything(x: int = 1, **further: Any) -> Any:
    return Told(x=x, **further)


def camera(channels: int = 3, size: int = 20) -> Any:
    """Images with their channels first, beside a vector."""
    image = gymnasium.spaces.Box(0, 255, (channels, size, size), np.uint8)
    speed = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    space = gymnasium.spaces.Dict({"camera": image, "speed": speed})
    return Spaced(space, gymnasium.spaces.Discrete(2))


def old() -> Any:
    return Old()


def failing(x: int = 1) -> Any:
    raise ConnectionError(f"port {x} is closed")


def refusing() -> Any:
    raise BadOption("two is too many")


def something() -> Any:
    return 42


class Plain(World):
    """A world of the contract's own."""

    def __init__(self, x: int = 1) -> None:
        self.x = x
        self.spaces = Spaces({"observation": Discrete(2)}, Discrete(2))
        self.traits = Traits()

    def reset(self, seed: int) -> Observation:
        return {"observation": np.zeros(1, np.int64)}

    def step(self, action: Array) -> Step:
        raise RuntimeError("a world's own error")


class Many(BatchedWorld):
    """A batched world of the contract's own."""

    def __init__(self, replicas: int, x: int = 1) -> None:
        self.replicas = replicas
        self.x = x
        self.spaces = Spaces({"observation": Discrete(2)}, Discrete(2))
        self.traits = Traits()

    def reset(self, rows: Array, seeds: Array) -> Observation:
        return {"observation": np.zeros((len(rows), 1), np.int64)}

    def step(self, action: Array) -> BatchedStep:
        raise NotImplementedError


def many(replicas: int) -> BatchedWorld:
    return Many(replicas)


def always_two() -> BatchedWorld:
    return Many(2)


def not_many() -> BatchedWorld:
    return Plain()  # type: ignore[return-value]


def secretly_many(replicas: int) -> Any:
    return Many(replicas)


def secretly_two() -> Any:
    return two_vectors()


def secretly_vector(replicas: int) -> Any:
    return vector(replicas)


def nothing() -> Any:
    Many(1)


def vector(replicas: int, mode: str = "Disabled") -> VectorEnv[Any, Any, Any]:
    return SyncVectorEnv([Counter] * replicas, copy=False, autoreset_mode=AutoresetMode(mode))


def two_vectors() -> SyncVectorEnv:
    return SyncVectorEnv([Counter] * 2, autoreset_mode=AutoresetMode.DISABLED)


def cartpoles(replicas: int) -> VectorEnv[Any, Any, Any]:
    def make() -> Any:
        return gymnasium.make("CartPole-v1", max_episode_steps=20)

    return SyncVectorEnv([make] * replicas, autoreset_mode=AutoresetMode.DISABLED)
