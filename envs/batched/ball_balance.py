"""A ball on a tilting plate, after the ball-balancing task of Parallel Q-Learning.

A square plate stands on three legs, R = 0.25 m from its middle, at 90, 210 and 330 degrees. Three
actions in [-1, 1] (clipped) are the speeds that the legs are asked for; motors follow with a lag:

    speed  += (0.3 action - speed) dt / 0.08        dt = 0.02 s
    height += speed dt, stopped (speed 0) at -0.06 and 0.06 m

The legs stand upright, so the plate is the plane z = lift + p x + q y with

    lift = (h0 + h1 + h2) / 3,   p = (h2 - h1) / (sqrt(3) R),   q = (2 h0 - h1 - h2) / (3 R)

and p', q' the same of the speeds. The ball, a solid sphere, rolls without slipping; (u, v) is its
place along the plate's two axes, and each axis is a ball on a beam that turns with rate w:

    u'' = 5/7 (u w^2 - g p / sqrt(1 + p^2)) - 0.1 u',   w = p' / (1 + p^2),   g = 9.81

and v'' likewise with q. First the legs move, then u' += u'' dt, then u += u' dt. The turning of
one axis does not act upon the other, and the plate's rise and fall not on the ball: both are
small for slopes below 0.4. Terminated when the ball's place leaves the plate, |u| or |v| > 0.3 m;
truncated after 500 steps. The reward is near the middle and slow: after the step,

    1 / (1 + (u^2 + v^2) / 0.1^2) / (1 + (u'^2 + v'^2) / 0.5^2),   and 0 for falling off.

Start: u, v in [-0.2, 0.2) m, u', v' in [-0.3, 0.3) m/s, legs in [-0.03, 0.03) m, at rest.

Observed as float32: u, v as parts of 0.3 m; u', v' in m/s; p, q; p', q'; lift as part of 0.06 m;
its rate as part of 0.3 m/s. `render` makes the frames.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from hts_envs.batched.exact import inverse_sqrt
from hts_envs.batched.render import SIZE, Camera, Scene
from hts_envs.batched.shell import Advance, Simulator
from hts_envs.contract import Box, Space, Spaces

HALF_WIDTH = 0.3
BALL_RADIUS = 0.045
LEG_RADIUS = 0.25
LEG_SPEED = 0.3
LEG_TRAVEL = 0.06
LAG = 0.08
DT = 0.02
GRAVITY = 9.81
ROLLING = 5.0 / 7.0
FRICTION = 0.1
NEAR = 0.1
SLOW = 0.5

# Rows of a state: the ball's place and velocity, the legs' heights and speeds.
_U, _V, _U_RATE, _V_RATE = range(4)
_HEIGHTS = slice(4, 7)
_SPEEDS = slice(7, 10)

_FRAME = Box((SIZE, SIZE, 3), "uint8", 0, 255)


class Plane(NamedTuple):
    """z = lift + p x + q y; or, of the legs' speeds, the rates of these."""

    lift: Tensor
    p: Tensor
    q: Tensor


def plane(legs: Tensor) -> Plane:
    """The plane through three heights (3, replicas)."""
    first, second, third = legs
    return Plane(
        (first + second + third) / 3.0,
        (third - second) / (math.sqrt(3.0) * LEG_RADIUS),
        (2.0 * first - second - third) / (3.0 * LEG_RADIUS),
    )


class BallBalance(Simulator):
    """See the head of this file."""

    limit = 500
    draws = 7

    def __init__(self, observation: str = "state") -> None:
        spaces: dict[str, Space] = {}
        if observation in ("state", "both"):
            spaces["observation"] = Box((10,))
        if observation in ("pixels", "both"):
            spaces["pixels"] = _FRAME
        self.spaces = Spaces(spaces, Box((3,), low=-1.0, high=1.0))
        self._camera = Camera(HALF_WIDTH, BALL_RADIUS)

    def start(self, draws: Tensor) -> Tensor:
        spread = draws * 2.0 - 1.0
        return torch.cat(
            (
                spread[0:2] * 0.2,
                spread[2:4] * 0.3,
                spread[4:7] * 0.03,
                torch.zeros_like(spread[4:7]),
            )
        )

    def advance(self, state: Tensor, action: Tensor) -> Advance:
        heights, speeds = _move_legs(state, action)
        slopes, rates = plane(heights), plane(speeds)
        u, u_rate = _roll(state[_U], state[_U_RATE], slopes.p, rates.p)
        v, v_rate = _roll(state[_V], state[_V_RATE], slopes.q, rates.q)
        after = torch.cat((torch.stack((u, v, u_rate, v_rate)), heights, speeds))
        fallen = (u.abs() > HALF_WIDTH) | (v.abs() > HALF_WIDTH)
        near = 1.0 + (u * u + v * v) / (NEAR * NEAR)
        slow = 1.0 + (u_rate * u_rate + v_rate * v_rate) / (SLOW * SLOW)
        return Advance(after, torch.where(fallen, 0.0, 1.0 / near / slow), fallen)

    def observe(self, state: Tensor) -> dict[str, Tensor]:
        slopes = plane(state[_HEIGHTS])
        seen = {}
        if "observation" in self.spaces.observation:
            seen["observation"] = _numbers(state, slopes)
        if "pixels" in self.spaces.observation:
            seen["pixels"] = self.picture(state)
        return seen

    def picture(self, state: Tensor) -> Tensor:
        slopes = plane(state[_HEIGHTS])
        scene = Scene(state[_U], state[_V], slopes.lift, slopes.p, slopes.q)
        return self._camera.render(scene)


def _move_legs(state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    asked = action.T.to(torch.float64).clamp(-1.0, 1.0) * LEG_SPEED
    speeds = state[_SPEEDS] + (asked - state[_SPEEDS]) * (DT / LAG)
    free = state[_HEIGHTS] + speeds * DT
    heights = free.clamp(-LEG_TRAVEL, LEG_TRAVEL)
    return heights, torch.where(heights == free, speeds, 0.0)


def _roll(place: Tensor, rate: Tensor, slope: Tensor, slope_rate: Tensor) -> tuple[Tensor, Tensor]:
    steepness = 1.0 + slope * slope
    turning = slope_rate / steepness
    pull = place * (turning * turning) - GRAVITY * slope * inverse_sqrt(steepness)
    faster = rate + (ROLLING * pull - FRICTION * rate) * DT
    return place + faster * DT, faster


def _numbers(state: Tensor, slopes: Plane) -> Tensor:
    rates = plane(state[_SPEEDS])
    numbers = torch.stack(
        (
            state[_U] / HALF_WIDTH,
            state[_V] / HALF_WIDTH,
            state[_U_RATE],
            state[_V_RATE],
            slopes.p,
            slopes.q,
            rates.p,
            rates.q,
            slopes.lift / LEG_TRAVEL,
            rates.lift / LEG_SPEED,
        ),
        dim=1,
    )
    return numbers.to(torch.float32)
