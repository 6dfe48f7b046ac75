"""A pole on a cart, with the equations and limits of Gymnasium's CartPole-v1.

State: position x (m), speed x', angle a of the pole from upright (rad), its rate a'.
A force F of +10 N (action 1) or -10 N (action 0) acts on the cart for tau = 0.02 s.

    M = 1.1 (cart 1.0 + pole 0.1), l = 0.5 (half the pole), ml = 0.05 (pole mass times l), g = 9.8
    t    = (F + ml a'^2 sin a) / M
    a''  = (g sin a - t cos a) / (l (4/3 - 0.1 cos^2 a / M))
    x''  = t - ml a'' cos a / M

Euler's step, the old rates first: x += tau x', x' += tau x'', a += tau a', a' += tau a''.
The reward is 1 at every step. Terminated when |x| > 2.4 or |a| > 12 degrees; truncated after 500
steps. Every component starts uniformly in [-0.05, 0.05). All in float64, observed as float32.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hts_envs.batched.exact import sin_cos
from hts_envs.batched.shell import Advance, Simulator
from hts_envs.contract import Box, Discrete, Spaces

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.1
HALF_LENGTH = 0.5
POLE_MOMENT = 0.05
FORCE = 10.0
TAU = 0.02
X_LIMIT = 2.4
ANGLE_LIMIT = 12 * 2 * math.pi / 360

_HIGH = (2 * X_LIMIT, math.inf, 2 * ANGLE_LIMIT, math.inf)


class CartPole(Simulator):
    """See the head of this file."""

    spaces = Spaces(
        observation={"observation": Box((4,), low=tuple(-high for high in _HIGH), high=_HIGH)},
        action=Discrete(2),
    )
    limit = 500
    draws = 4

    def start(self, draws: Tensor) -> Tensor:
        return draws * 0.1 - 0.05

    def advance(self, state: Tensor, action: Tensor) -> Advance:
        x, x_rate, angle, angle_rate = state
        force = action.to(torch.float64) * (2.0 * FORCE) - FORCE
        sin, cos = sin_cos(angle)
        pushed = (force + POLE_MOMENT * (angle_rate * angle_rate) * sin) / TOTAL_MASS
        inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * (cos * cos) / TOTAL_MASS)
        angle_acceleration = (GRAVITY * sin - cos * pushed) / inertia
        acceleration = pushed - POLE_MOMENT * angle_acceleration * cos / TOTAL_MASS
        after = torch.stack(
            (
                x + TAU * x_rate,
                x_rate + TAU * acceleration,
                angle + TAU * angle_rate,
                angle_rate + TAU * angle_acceleration,
            )
        )
        fallen = (after[0].abs() > X_LIMIT) | (after[2].abs() > ANGLE_LIMIT)
        return Advance(after, torch.ones_like(x), fallen)

    def observe(self, state: Tensor) -> dict[str, Tensor]:
        return {"observation": state.T.to(torch.float32).contiguous()}
