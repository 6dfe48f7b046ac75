"""A pendulum to be swung up, with the equations of Gymnasium's Pendulum-v1.

State: angle a from upright (rad, not wrapped), its rate a'. The torque u is the action, clipped
to [-2, 2]; g = 10, mass and length are 1, dt = 0.05 s.

    reward = -(wrap(a)^2 + 0.1 a'^2 + 0.001 u^2)      of the state before the step
    a' := clip(a' + (15 sin a + 3 u) dt, -8, 8)       15 = 3 g / 2l, 3 = 3 / (m l^2)
    a  := a + a' dt

wrap(a) lies in [-pi, pi]. Never terminated, truncated after 200 steps. Starts uniformly: the
angle in [-pi, pi), the rate in [-1, 1). Observed as float32: cos a, sin a, a'. As in Gymnasium,
3 u and 0.001 u^2 are rounded to float32, because the action is float32; the rest is float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hts_envs.batched.exact import nearest, sin_cos
from hts_envs.batched.shell import Advance, Simulator
from hts_envs.contract import Box, Spaces

MAX_TORQUE = 2.0
MAX_SPEED = 8.0
DT = 0.05

_HIGH = (1.0, 1.0, MAX_SPEED)


class Pendulum(Simulator):
    """See the head of this file."""

    spaces = Spaces(
        observation={"observation": Box((3,), low=tuple(-high for high in _HIGH), high=_HIGH)},
        action=Box((1,), low=-MAX_TORQUE, high=MAX_TORQUE),
    )
    limit = 200
    draws = 2

    def start(self, draws: Tensor) -> Tensor:
        return torch.stack((draws[0] * (2.0 * math.pi) - math.pi, draws[1] * 2.0 - 1.0))

    def advance(self, state: Tensor, action: Tensor) -> Advance:
        angle, rate = state
        torque = action[:, 0].to(torch.float32).clamp(-MAX_TORQUE, MAX_TORQUE)
        off = wrap(angle)
        effort = (0.001 * (torque * torque)).to(torch.float64)
        cost = off * off + 0.1 * (rate * rate) + effort
        sin, _ = sin_cos(angle)
        push = (3.0 * torque).to(torch.float64)
        faster = (rate + (15.0 * sin + push) * DT).clamp(-MAX_SPEED, MAX_SPEED)
        after = torch.stack((angle + faster * DT, faster))
        return Advance(after, -cost, torch.zeros_like(off, dtype=torch.bool))

    def observe(self, state: Tensor) -> dict[str, Tensor]:
        sin, cos = sin_cos(state[0])
        seen = torch.stack((cos, sin, state[1]), dim=1)
        return {"observation": seen.to(torch.float32)}


def wrap(angle: Tensor) -> Tensor:
    """The same direction in [-pi, pi]."""
    return angle - (2.0 * math.pi) * nearest(angle / (2.0 * math.pi))
