"""Gymnasium's v5 tasks as pure functions of many replicas at once.

A function takes a `Moment` (what MuJoCo knows after a step) and returns one row for each replica.
The order of every addition is Gymnasium's, so that float64 results are equal to the last bit:
a sum over the last axis of a C-ordered array adds like a sum over one row of it.

Actions stay float32 where Gymnasium squares the action as given, and are float64 where it squares
the controls that MuJoCo holds (humanoid).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hts_envs.contract import Array


@dataclass(frozen=True)
class Moment:
    """Some replicas after a step or a reset; the first axis of every array but `masses`."""

    qpos: Array
    qvel: Array
    derived: Mapping[str, Array]  # MuJoCo's arrays by their names, as the last substep left them
    masses: Array  # (bodies,)


class Outcome(NamedTuple):
    """The reward in float64, and whether the replica is healthy."""

    reward: Array
    healthy: Array


@dataclass(frozen=True)
class Task:
    """One environment: Gymnasium's defaults, and its formulas.

    `place` is the x coordinate whose progress is rewarded; `judge` takes the moment, the velocity
    of that coordinate and the action. An unhealthy replica is terminated.
    """

    model: str
    frame_skip: int
    noise: float  # half width of the uniform noise on an episode's first positions
    normal_velocities: bool  # noise on the first velocities: normal, or uniform like the positions
    derived: tuple[str, ...]
    place: Callable[[Moment], Array]
    observe: Callable[[Moment], Sequence[Array]]
    judge: Callable[[Moment, Array, Array], Outcome]


def _squares(array: Array) -> Array:
    return np.asarray(np.square(array).reshape(len(array), -1).sum(axis=-1))


def _flat(bodies: Array) -> Array:
    """(replicas, bodies, n) without the world body, which is the first: (replicas, others * n)."""
    rows, count, size = bodies.shape
    return bodies[:, 1:].reshape(rows, (count - 1) * size)


def _root_x(moment: Moment) -> Array:
    return moment.qpos[:, 0]


def _cheetah_observe(moment: Moment) -> Sequence[Array]:
    return moment.qpos[:, 1:], moment.qvel


def _cheetah_judge(moment: Moment, velocity: Array, action: Array) -> Outcome:
    reward = 1.0 * velocity - 0.1 * _squares(action)
    return Outcome(reward, np.ones(len(moment.qpos), np.bool_))  # it cannot fall ill


def _walker_observe(moment: Moment) -> Sequence[Array]:
    return moment.qpos[:, 1:], np.clip(moment.qvel, -10, 10)


def _walker_judge(moment: Moment, velocity: Array, action: Array) -> Outcome:
    height, angle = moment.qpos[:, 1], moment.qpos[:, 2]
    healthy = (height > 0.8) & (height < 2.0) & (angle > -1.0) & (angle < 1.0)
    reward = (1.0 * velocity + healthy * 1.0) - 1e-3 * _squares(action)
    return Outcome(reward, healthy)


def _ant_place(moment: Moment) -> Array:
    return moment.derived["xpos"][:, 1, 0]  # the torso is the first body after the world


def _ant_observe(moment: Moment) -> Sequence[Array]:
    forces = np.clip(moment.derived["cfrc_ext"], -1.0, 1.0)
    return moment.qpos[:, 2:], moment.qvel, _flat(forces)


def _ant_judge(moment: Moment, velocity: Array, action: Array) -> Outcome:
    height = moment.qpos[:, 2]
    healthy = (height >= 0.2) & (height <= 1.0)
    contact = 5e-4 * _squares(np.clip(moment.derived["cfrc_ext"], -1.0, 1.0))
    reward = (velocity * 1 + healthy * 1.0) - (0.5 * _squares(action) + contact)
    return Outcome(reward, healthy)


def _humanoid_place(moment: Moment) -> Array:
    weighted = np.einsum("b,nb->n", moment.masses, moment.derived["xipos"][:, :, 0])
    return np.asarray(weighted / moment.masses.sum())


def _humanoid_observe(moment: Moment) -> Sequence[Array]:
    derived = moment.derived
    return (
        moment.qpos[:, 2:],
        moment.qvel,
        _flat(derived["cinert"]),
        _flat(derived["cvel"]),
        derived["qfrc_actuator"][:, 6:],  # the six of the free root have no actuator
        _flat(derived["cfrc_ext"]),
    )


def _humanoid_judge(moment: Moment, velocity: Array, action: Array) -> Outcome:
    height = moment.qpos[:, 2]
    healthy = (height > 1.0) & (height < 2.0)
    contact = np.clip(5e-7 * _squares(moment.derived["cfrc_ext"]), -np.inf, 10.0)
    control = 0.1 * _squares(action.astype(np.float64))
    reward = (1.25 * velocity + healthy * 5.0) - (control + contact)
    return Outcome(reward, healthy)


TASKS = {
    "half_cheetah": Task(
        model="half_cheetah.xml",
        frame_skip=5,
        noise=0.1,
        normal_velocities=True,
        derived=(),
        place=_root_x,
        observe=_cheetah_observe,
        judge=_cheetah_judge,
    ),
    "ant": Task(
        model="ant.xml",
        frame_skip=5,
        noise=0.1,
        normal_velocities=True,
        derived=("xpos", "cfrc_ext"),
        place=_ant_place,
        observe=_ant_observe,
        judge=_ant_judge,
    ),
    "walker2d": Task(
        model="walker2d_v5.xml",
        frame_skip=4,
        noise=5e-3,
        normal_velocities=False,
        derived=(),
        place=_root_x,
        observe=_walker_observe,
        judge=_walker_judge,
    ),
    "humanoid": Task(
        model="humanoid.xml",
        frame_skip=5,
        noise=1e-2,
        normal_velocities=False,
        derived=("xipos", "cinert", "cvel", "qfrc_actuator", "cfrc_ext"),
        place=_humanoid_place,
        observe=_humanoid_observe,
        judge=_humanoid_judge,
    ),
}
