"""Environments written against Gym before 0.26: what they do differently, made like the rest.

    old                                       here
    env.seed(s); observation = env.reset()    reset with a seed, before every episode
    observation, reward, done, info           terminated and truncated, told apart

A `done` says that the episode is over but not why. Gym's own time limit left the reason in
info["TimeLimit.truncated"], which is believed; without it `done` counts as terminated, and one
warning says so.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from hts_envs.errors import BrokenSimulator
from hts_envs.randomness import fold

REASON = "TimeLimit.truncated"


class OldInterface(UserWarning):
    """A simulator cannot say what the contract asks for, and something had to be assumed."""


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(text, OldInterface, stacklevel=2)


def takes_seed(env: Any) -> bool:
    """Can every layer of the environment be reset with `seed=`?"""
    return all(_accepts_seed(layer.reset) for layer in _layers(env))


def can_reseed(env: Any) -> bool:
    """Is there any way to give an episode its seed?"""
    return takes_seed(env) or callable(getattr(env, "seed", None))


def resetter(env: Any) -> Callable[[int], Any]:
    """The function that begins an episode of this seed and returns what `env.reset` returned.

    Old environments seed 32-bit generators, so they get 31 bits mixed from all of the seed's.
    """
    if takes_seed(env):
        return lambda seed: env.reset(seed=seed)
    if not can_reseed(env):
        return lambda _: env.reset()

    def reset(seed: int) -> Any:
        env.seed(fold(seed) >> 33)
        return env.reset()

    return reset


def first_observation(result: Any, *, bare_pairs: bool) -> Any:
    """The observation out of what `reset` returned: (observation, info), or it alone.

    `bare_pairs`: the environment's observations may themselves be pairs that end in a dict, and
    it is too old to return any info beside them.
    """
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result if bare_pairs else result[0]
    return result


def told_apart(result: Any, owner: str) -> tuple[Any, ...]:
    """What a step returned, as the five values of today, where it was four."""
    if not isinstance(result, tuple) or len(result) not in (4, 5):
        size = f"{len(result)} values" if isinstance(result, tuple) else repr(type(result).__name__)
        raise BrokenSimulator(
            f"{owner}: a step returns observation, reward, terminated, truncated and info, "
            f"but this one returned {size}"
        )
    if len(result) == 5:
        return result
    observation, reward, done, info = result
    info = info or {}
    truncated = bool(done) and bool(info.get(REASON, False))
    if done and REASON not in info:
        _warn_once(
            f"{owner} ends its episodes with a bare `done`, which counts as terminated: where it "
            f"is a time limit, say so with info[{REASON!r}] or by returning five values"
        )
    return observation, reward, bool(done) and not truncated, truncated, info


def _layers(env: Any) -> Iterator[Any]:
    layer = env
    while layer is not None:
        yield layer
        layer = getattr(layer, "__dict__", {}).get("env")


def _accepts_seed(reset: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(reset).parameters.values()
    except (TypeError, ValueError):  # compiled code has no signature to read
        return True
    return any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in parameters)
