"""The `batched:` family: simulators that step thousands of replicas in one call.

`cartpole`, `pendulum` and `ball_balance` are physics on torch tensors, on any device; the others
are Gymnasium's MuJoCo models stepped by threads. Nothing here imports torch or MuJoCo before a
world is made.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from hts_envs.batched import mujoco
from hts_envs.batched.mujoco.options import MujocoOptions
from hts_envs.batched.options import BallOptions, TorchOptions
from hts_envs.contract import BatchedWorld, Place
from hts_envs.errors import BadName, MissingPackages, install_command
from hts_envs.registry import Family, Spec
from hts_envs.spelling import hint

TORCH_OPTIONS: dict[str, type[TorchOptions]] = {
    "cartpole": TorchOptions,
    "pendulum": TorchOptions,
    "ball_balance": BallOptions,
}


class Batched(Family):
    """Each name needs only what it uses: torch for the first three, MuJoCo for the others."""

    name = "batched"
    summary = "simulators that step thousands of replicas in one call"

    def names(self) -> Sequence[str]:
        return (*TORCH_OPTIONS, *mujoco.NAMES)

    def resolve(self, name: str) -> str:
        if name in self.names():
            return name
        known = ", ".join(self.names())
        if not name:
            raise BadName(f"batched: needs the name of an environment, one of {known}")
        close = hint(name, self.names())
        raise BadName(f"batched: has no environment {name!r}{close}; it has {known}")

    def options(self, name: str) -> type[Any]:
        return TORCH_OPTIONS.get(name, MujocoOptions)

    def batched(self, spec: Spec) -> bool:
        return True

    def make(self, spec: Spec, place: Place) -> BatchedWorld:
        if spec.name in mujoco.NAMES:
            return _make_mujoco(spec, place)
        return _make_torch(spec, place)


def _make_mujoco(spec: Spec, place: Place) -> BatchedWorld:
    if importlib.util.find_spec("mujoco") is None:
        raise MissingPackages(
            f"batched:{spec.name} needs mujoco, which is not installed here. "
            f"Install it with: {install_command('mujoco')}"
        )
    return mujoco.make(spec.name, spec.options, place)


def _make_torch(spec: Spec, place: Place) -> BatchedWorld:
    from hts_envs.batched import simulators

    return simulators.make(spec.name, spec.options, place.replicas)


FAMILY = Batched()
