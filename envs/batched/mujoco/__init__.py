"""Gymnasium's MuJoCo tasks, thousands of replicas behind one call.

`half_cheetah`, `ant`, `walker2d` and `humanoid` are Gymnasium's v5 environments on Gymnasium's own
model files: from the same positions and velocities, the same actions lead to the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hts_envs.batched.mujoco.options import MujocoOptions

if TYPE_CHECKING:
    from hts_envs.batched.mujoco.world import MujocoWorld
    from hts_envs.contract import Place

NAMES = ("half_cheetah", "ant", "walker2d", "humanoid")


def make(name: str, options: MujocoOptions, place: Place) -> MujocoWorld:
    """The world of this name; MuJoCo is imported here and not before."""
    from hts_envs.batched.mujoco import world

    return world.make(name, options, place)
