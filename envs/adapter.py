"""A Gymnasium environment as a `World`.

Nothing of the environment's is handed out: every observation is copied into an array of its own.
Every reset gives the environment the episode's seed, and the samplers of its spaces are never
used. What the environment raises comes out as `BrokenSimulator` with its own error as the cause.

The adapter counts the steps itself where it is given a limit, because a wrapper that does it
costs more than the count that is kept here anyway. An end by that count is truncated, and when
the environment ends at the very same step, both flags are set, as in Gymnasium.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from hts_envs import oldapi
from hts_envs.contract import Array, Observation, Spaces, Step, Tally, Traits, World
from hts_envs.errors import BrokenSimulator, MissingPackages
from hts_envs.spaces import Actions, Observations, kind_of

FACTS = ("score", "lives", "success", "is_success")
"""What an environment may say about an ended episode in its info, passed on under this name."""


class GymWorld(World):
    """One environment with Gymnasium's interface, or Gym's before it, as a world of one agent."""

    def __init__(self, env: Any, owner: str, limit: int | None = None) -> None:
        self._env = env
        self._owner = owner
        self._limit = limit
        self._observations = Observations(env.observation_space, owner)
        self._actions = Actions(env.action_space, owner)
        self._reset = oldapi.resetter(env)
        self._bare_pairs = not oldapi.takes_seed(env) and kind_of(env.observation_space) == "Tuple"
        self._tally = Tally()
        self.frame_rate = float((getattr(env, "metadata", None) or {}).get("render_fps") or 30.0)
        self.spaces = Spaces(self._observations.spaces, self._actions.space)
        self.description = self._observations.note
        self.traits = Traits(
            time_limit=limit or declared_limit(env), reseeds=oldapi.can_reseed(env)
        )

    def reset(self, seed: int) -> Observation:
        seed = int(seed)
        try:
            result = self._reset(seed)
        except Exception as error:
            raise raised(self._owner, f"reset with seed {seed}", error) from error
        self._tally.start()
        first = oldapi.first_observation(result, bare_pairs=self._bare_pairs)
        return self._observations.read(first)

    def step(self, action: Array) -> Step:
        chosen = self._actions.single(action)
        try:
            result = self._env.step(chosen)
        except Exception as error:
            raise raised(self._owner, "step", error) from error
        if type(result) is not tuple or len(result) != 5:
            result = oldapi.told_apart(result, self._owner)
        observation, given, terminated, truncated, info = result
        reward = self._number(given)
        tally = self._tally
        tally.add(reward)
        terminated = bool(terminated)
        truncated = bool(truncated) or tally.length == self._limit
        return Step(
            self._observations.read(observation),
            np.array((reward,), np.float32),
            terminated,
            truncated,
            self._facts(info) if terminated or truncated else {},
        )

    def frame(self) -> Array | None:
        if getattr(self._env, "render_mode", None) != "rgb_array":
            return None
        try:
            picture = self._env.render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise MissingPackages(f"{self._owner}: its pictures are not here: {error}") from error
        except Exception as error:
            raise raised(self._owner, "render", error) from error
        return None if picture is None else np.array(picture, np.uint8)

    def close(self) -> None:
        self._env.close()

    def _number(self, reward: Any) -> float:
        try:
            return float(reward.item() if isinstance(reward, np.ndarray) else reward)
        except (TypeError, ValueError) as error:
            raise BrokenSimulator(
                f"{self._owner}: the reward of a step must be one number, got {reward!r}"
            ) from error

    def _facts(self, info: Mapping[str, Any] | None) -> dict[str, float]:
        told = {
            name: float(info[name])
            for name in FACTS
            if info and isinstance(info.get(name), (bool, int, float, np.bool_, np.number))
        }
        return told | self._tally.facts()


def raised(owner: str, doing: str, error: Exception) -> BrokenSimulator:
    """The error to raise `from` the simulator's own."""
    return BrokenSimulator(f"{owner} raised {type(error).__name__} in {doing}: {error}")


def declared_limit(env: Any) -> int | None:
    """After how many steps the environment says that it truncates an episode."""
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    return None if limit is None else int(limit)
