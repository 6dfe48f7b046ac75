"""The batched world of one MuJoCo task.

Equal to Gymnasium's v5 environment, step by step and to the last bit in float64, from the moment
the positions and velocities are equal. What differs: an episode's first noise comes from the
episode's own seed, observations and rewards are handed out as float32, and an end by the clock is
only called one where the replica is still healthy. A simulation that blows up raises
`BrokenSimulator`, where Gymnasium would let MuJoCo start it anew in the middle of the episode.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np

from hts_envs.batched.mujoco.options import MujocoOptions
from hts_envs.batched.mujoco.simulation import load, simulate
from hts_envs.batched.mujoco.tasks import TASKS, Moment, Task
from hts_envs.contract import (
    Array,
    BatchedStep,
    BatchedTally,
    BatchedWorld,
    Box,
    Observation,
    Place,
    Spaces,
    Traits,
)
from hts_envs.errors import BrokenSimulator
from hts_envs.randomness import fold_rows, normal, uniform

_POSITIONS, _VELOCITIES = 0, 1  # which draw of an episode's seed


class MujocoWorld(BatchedWorld):
    """The replicas of one task."""

    def __init__(self, task: Task, options: MujocoOptions, replicas: int) -> None:
        model = load(_model_file(task.model))
        self.replicas = replicas
        self.simulation = simulate(
            model, replicas, options.threads or _cores(), derived=task.derived
        )
        self._task = task
        self._seconds = model.opt.timestep * task.frame_skip
        self._masses = model.body_mass.copy()
        self._first = model.qpos0.copy()
        self._place = np.zeros(replicas)
        self._tally = BatchedTally(replicas)
        self._running = np.zeros(replicas, np.bool_)
        self.traits = Traits(time_limit=options.max_steps, frame_skip=task.frame_skip)
        self.spaces = self._declare(model)

    def _declare(self, model: Any) -> Spaces:
        size = sum(part.shape[1] for part in self._task.observe(self._moment(slice(0, 1))))
        low, high = model.actuator_ctrlrange.astype(np.float32).T
        assert (low == low[0]).all(), f"actuators of different ranges, from {low}"
        assert (high == high[0]).all(), f"actuators of different ranges, to {high}"
        return Spaces(
            observation={"observation": Box((size,))},
            action=Box((model.nu,), low=float(low[0]), high=float(high[0])),
        )

    def _moment(self, rows: Array | slice) -> Moment:
        simulation = self.simulation
        return Moment(
            simulation.qpos[rows],
            simulation.qvel[rows],
            {name: array[rows] for name, array in simulation.derived.items()},
            self._masses,
        )

    def reset(self, rows: Array, seeds: Array) -> Observation:
        assert len(rows) == len(seeds), f"{len(rows)} rows and {len(seeds)} seeds"
        qpos, qvel = self._draw(np.asarray(seeds, np.uint64))
        if len(rows):
            self.simulation.start(rows, qpos, qvel)
        moment = self._moment(rows)
        self._place[rows] = self._task.place(moment)
        self._tally.start(rows)
        self._running[rows] = True
        return self._observe(moment)

    def _draw(self, seeds: Array) -> tuple[Array, Array]:
        """First positions and velocities, with the noise of each episode's seed."""
        noise = self._task.noise
        nq, nv = self.simulation.qpos.shape[1], self.simulation.qvel.shape[1]
        qpos = self._first + noise * (2.0 * uniform(fold_rows(seeds, _POSITIONS), nq) - 1.0)
        keys = fold_rows(seeds, _VELOCITIES)
        if self._task.normal_velocities:
            return qpos, noise * normal(keys, nv)
        return qpos, noise * (2.0 * uniform(keys, nv) - 1.0)

    def step(self, action: Array) -> BatchedStep:
        wanted = (self.replicas, 1, *self.spaces.action.shape)
        assert action.shape == wanted, f"an action of shape {action.shape}, not {wanted}"
        assert self._running.all(), f"row {int(np.argmin(self._running))} was not reset"
        given = np.ascontiguousarray(action[:, 0], np.float32)
        self.simulation.advance(given, self._task.frame_skip)
        moment = self._moment(slice(None))
        place = self._task.place(moment)
        outcome = self._task.judge(moment, (place - self._place) / self._seconds, given)
        self._place[:] = place
        self._tally.add(outcome.reward)
        terminated = ~outcome.healthy
        truncated = (self._tally.length >= self.traits.time_limit) & outcome.healthy
        self._running = ~(terminated | truncated)
        reward = outcome.reward.astype(np.float32)[:, None]
        facts = {**self._tally.facts(), "x_position": moment.qpos[:, 0].copy()}
        return BatchedStep(self._observe(moment), reward, terminated, truncated, facts)

    def _observe(self, moment: Moment) -> Observation:
        parts = self._task.observe(moment)
        return {"observation": np.concatenate(parts, axis=1, dtype=np.float32)[:, None]}

    def close(self) -> None:
        self.simulation.close()


def make(name: str, options: MujocoOptions, place: Place) -> MujocoWorld:
    """The world of this task, with as many replicas as the place holds."""
    return MujocoWorld(TASKS[name], options, place.replicas)


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _model_file(name: str) -> Path:
    """A model of the installed gymnasium, which need not be imported for that."""
    found = importlib.util.find_spec("gymnasium")
    assert found is not None, "gymnasium belongs to every installation"
    assert found.submodule_search_locations, "gymnasium is a package"
    path = Path(found.submodule_search_locations[0]) / "envs" / "mujoco" / "assets" / name
    if not path.is_file():
        raise BrokenSimulator(f"the installed gymnasium has no model {name}: looked for {path}")
    return path
