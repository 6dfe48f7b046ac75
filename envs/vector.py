"""A `gymnasium.vector.VectorEnv` as a `BatchedWorld`.

Only one whose declared autoreset mode is DISABLED will do. The other two modes reset a replica
by themselves: SAME_STEP hides the last observation in the info, NEXT_STEP inserts a step that
belongs to no episode, and neither lets the next episode be given its seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hts_envs.adapter import declared_limit, raised
from hts_envs.contract import (
    Array,
    BatchedStep,
    BatchedTally,
    BatchedWorld,
    Observation,
    Spaces,
    Step,
    Traits,
    World,
)
from hts_envs.errors import BadName, BrokenSimulator
from hts_envs.spaces import Actions, Observations


class VectorWorld(BatchedWorld):
    """Every sub-environment is one replica of one agent."""

    def __init__(self, env: Any, owner: str) -> None:
        _check_mode(env, owner)
        self._env = env
        self._owner = owner
        self.replicas = int(env.num_envs)
        self._observations = Observations(env.single_observation_space, owner, self.replicas)
        self._actions = Actions(env.single_action_space, owner)
        self._tally = BatchedTally(self.replicas)
        self._begun = False
        self.spaces = Spaces(self._observations.spaces, self._actions.space)
        self.description = self._observations.note
        self.traits = Traits(time_limit=_limit(env))

    def reset(self, rows: Array, seeds: Array) -> Observation:
        # The first reset must be of all, or the environment has no observation for the others;
        # these others get their own reset, with its seed, before they are stepped.
        mask = np.full(self.replicas, not self._begun)
        mask[rows] = True
        given = [0] * self.replicas
        for row, seed in zip(rows.tolist(), seeds.tolist(), strict=True):
            given[row] = seed
        try:
            observation, _ = self._env.reset(seed=given, options={"reset_mask": mask})
        except Exception as error:
            raise raised(self._owner, "reset", error) from error
        self._begun = True
        self._tally.start(rows)
        return {name: array[rows] for name, array in self._observations.read(observation).items()}

    def step(self, action: Array) -> BatchedStep:
        chosen = self._actions.batch(action)
        try:
            observation, reward, terminated, truncated, _ = self._env.step(chosen)
        except Exception as error:
            raise raised(self._owner, "step", error) from error
        rewards = self._column(reward, "reward", np.float64)
        self._tally.add(rewards)
        return BatchedStep(
            self._observations.read(observation),
            rewards.astype(np.float32)[:, None],
            self._column(terminated, "terminated", np.bool_),
            self._column(truncated, "truncated", np.bool_),
            self._tally.facts(),
        )

    def close(self) -> None:
        self._env.close()

    def _column(self, values: Any, name: str, dtype: Any) -> Array:
        column = np.array(values, dtype)
        if column.shape != (self.replicas,):
            raise BrokenSimulator(
                f"{self._owner}: {name} must have one entry for each of {self.replicas} replicas, "
                f"got the shape {list(column.shape)}"
            )
        return column


class SingleRow(World):
    """A batched world of one replica, as a single world."""

    description = (
        "one row for each replica; annotate the factory's return type to step all in one call"
    )

    def __init__(self, world: BatchedWorld) -> None:
        assert world.replicas == 1, "one row is one replica"
        self._world = world
        self.spaces, self.traits = world.spaces, world.traits
        self.frame_rate = world.frame_rate

    def reset(self, seed: int) -> Observation:
        seen = self._world.reset(np.zeros(1, np.int64), np.array([seed], np.uint64))
        return {name: array[0] for name, array in seen.items()}

    def step(self, action: Array) -> Step:
        made = self._world.step(action[None])
        terminated, truncated = bool(made.terminated[0]), bool(made.truncated[0])
        facts = {name: float(values[0]) for name, values in made.facts.items()}
        return Step(
            {name: array[0] for name, array in made.observation.items()},
            made.reward[0],
            terminated,
            truncated,
            facts if terminated or truncated else {},
        )

    def close(self) -> None:
        self._world.close()


def _check_mode(env: Any, owner: str) -> None:
    mode = (env.metadata or {}).get("autoreset_mode")
    name = str(getattr(mode, "name", mode)).upper()
    if name != "DISABLED":
        raise BadName(
            f"{owner}: its vector environment declares the autoreset mode {name}, and only one "
            f"that leaves resets to its caller can be used: build it with "
            f"autoreset_mode=gymnasium.vector.AutoresetMode.DISABLED"
        )


def _limit(env: Any) -> int | None:
    """The time limit of the vector environment, or of the first environment inside it."""
    inner = getattr(env, "envs", None) or [None]
    return declared_limit(env) or declared_limit(inner[0])
