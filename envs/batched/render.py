"""Frames of the ball on the plate: 48x48 RGB, every replica's at once.

A fixed camera looks down at the plate from the front, with perspective. For every pixel of every
replica the ray meets the plane of the plate (a checkerboard with a dark rim, lit by the angle
between its normal and the light, with the ball's shadow straight below the ball) and the ball (a
sphere lit the same way, with a soft edge so that movement below a pixel shows). The ball is
always above the plate and the camera above both, so the ball covers the plate and the plate
covers the background.

Only operations that are rounded correctly everywhere are used: a frame's bytes depend on its own
scene alone (see `exact`). For the same reason the point where a ray meets the ball is that of a
paraboloid between the sphere's outline and its nearest point, which needs no square root.

Replicas are rendered some at a time on a CPU, so that a chunk's intermediate arrays stay in its
cache, and below the 32,768 elements from which torch cuts an array among threads: on busy cores
that costs far more than it saves. On other devices all replicas are rendered at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hts_envs.batched.exact import inverse_sqrt

SIZE = 48

_EYE = (0.0, -0.55, 1.0)
_WIDTH = 0.34  # tangent of half the angle of view
_LIGHT = (0.48, -0.36, 0.80)  # of length 1
_CELL = 0.1  # metres; 6 cells along a side
_RIM = 0.02
_CHUNK = 14

_SKY = (60.0, 70.0, 90.0)
_PLATE = (185.0, 175.0, 150.0)
_BALL = (225.0, 60.0, 45.0)


class Scene(NamedTuple):
    """What is to be seen, (replicas,) each: the ball's place on the plate and the plate's plane."""

    u: Tensor
    v: Tensor
    lift: Tensor
    p: Tensor
    q: Tensor


class _Rays(NamedTuple):
    """Directions (1, pixels), of length 1, and their component along the light."""

    x: Tensor
    y: Tensor
    z: Tensor
    light: Tensor


@dataclass(frozen=True)
class Camera:
    """A camera for a plate and a ball of these sizes, in metres."""

    half_width: float
    ball_radius: float

    def render(self, scene: Scene) -> Tensor:
        """(replicas, SIZE, SIZE, 3) uint8."""
        replicas, device = len(scene.u), scene.u.device
        rays = _rays(device)
        frames = torch.empty((replicas, SIZE * SIZE, 3), dtype=torch.uint8, device=device)
        chunk = _CHUNK if device.type == "cpu" else max(replicas, 1)
        columns = [part.to(torch.float32)[:, None] for part in scene]
        for begin in range(0, replicas, chunk):
            part = Scene(*(column[begin : begin + chunk] for column in columns))
            self._draw(part, rays, frames[begin : begin + chunk])
        return frames.view(replicas, SIZE, SIZE, 3)

    def _draw(self, scene: Scene, rays: _Rays, frames: Tensor) -> None:
        ball = _ball(scene, self.ball_radius)
        shade, on_plate = self._plate(scene, rays, ball)
        light, cover = _sphere(ball, rays, self.ball_radius)
        for channel in range(3):
            ground = torch.where(on_plate, shade * _PLATE[channel], _SKY[channel])
            colour = ground + (light * _BALL[channel] - ground) * cover
            frames[:, :, channel] = colour.to(torch.uint8)

    def _plate(self, scene: Scene, rays: _Rays, ball: _Ball) -> tuple[Tensor, Tensor]:
        """Brightness in [0, 1] of the plate along each ray, and where it is met at all."""
        height = scene.lift + scene.p * _EYE[0] + scene.q * _EYE[1] - _EYE[2]
        distance = height / (rays.z - scene.p * rays.x - scene.q * rays.y)
        x = distance * rays.x + _EYE[0]
        y = distance * rays.y + _EYE[1]
        a = (x / inverse_sqrt(1.0 + scene.p * scene.p)).abs()
        b = (y / inverse_sqrt(1.0 + scene.q * scene.q)).abs()
        outer = torch.maximum(a, b)
        odd = (_cell(x) + _cell(y)) & 1
        across, along = x - ball.x, y - ball.y
        shadow = across * across + along * along < self.ball_radius * self.ball_radius
        pattern = 1.0 - 0.25 * odd
        pattern = torch.where(outer > self.half_width - _RIM, 0.4, pattern)
        pattern = torch.where(shadow, 0.45, pattern)
        return pattern * ball.lambert, outer <= self.half_width


def _cell(place: Tensor) -> Tensor:
    """Number of the cell; by truncation, for torch runs `floor` in threads (see `exact`)."""
    return (place.clamp(-1.0, 1.0) * (1.0 / _CELL) + 100.0).to(torch.int32)


class _Ball(NamedTuple):
    """The ball's middle, and how brightly the plate beneath it is lit: (replicas, 1) each."""

    x: Tensor
    y: Tensor
    z: Tensor
    lambert: Tensor


def _ball(scene: Scene, radius: float) -> _Ball:
    upright = inverse_sqrt(1.0 + scene.p * scene.p + scene.q * scene.q)
    x = scene.u * inverse_sqrt(1.0 + scene.p * scene.p)
    y = scene.v * inverse_sqrt(1.0 + scene.q * scene.q)
    z = scene.lift + scene.p * x + scene.q * y
    along = (_LIGHT[2] - scene.p * _LIGHT[0] - scene.q * _LIGHT[1]) * upright
    return _Ball(
        x - radius * scene.p * upright,
        y - radius * scene.q * upright,
        z + radius * upright,
        along.clamp(0.0, 1.0),
    )


def _sphere(ball: _Ball, rays: _Rays, radius: float) -> tuple[Tensor, Tensor]:
    """Brightness of the ball along each ray, and how much of the pixel it covers."""
    x, y, z = ball.x - _EYE[0], ball.y - _EYE[1], ball.z - _EYE[2]
    nearest = rays.x * x + rays.y * y + rays.z * z
    depth = nearest * nearest - (x * x + y * y + z * z) + radius * radius  # > 0 within the ball
    met = nearest - depth.clamp(min=0.0) * (1.0 / radius)
    middle = x * _LIGHT[0] + y * _LIGHT[1] + z * _LIGHT[2]
    lambert = (met * rays.light - middle) * (1.0 / radius)
    edge = radius * 0.03  # how much `depth` grows over one pixel at the ball's outline
    cover = (depth * (1.0 / edge) + 0.5).clamp(0.0, 1.0)
    return 0.35 + 0.65 * lambert.clamp(0.0, 1.0), cover


_KEPT: dict[torch.device, _Rays] = {}


def _rays(device: torch.device) -> _Rays:
    """The rays of every pixel, computed once in Python's own arithmetic."""
    if device not in _KEPT:
        rays = [_ray(row, column) for row in range(SIZE) for column in range(SIZE)]
        parts = torch.tensor(rays, dtype=torch.float32, device=device).T.contiguous()
        _KEPT[device] = _Rays(*(part[None] for part in parts))
    return _KEPT[device]


def _ray(row: int, column: int) -> tuple[float, ...]:
    """Direction through the middle of a pixel, of length 1, and its component along the light."""
    right = _WIDTH * ((column + 0.5) * 2.0 / SIZE - 1.0)
    up = _WIDTH * (1.0 - (row + 0.5) * 2.0 / SIZE)
    eye = math.sqrt(_EYE[1] ** 2 + _EYE[2] ** 2)
    forward_y, forward_z = -_EYE[1] / eye, -_EYE[2] / eye
    x, y, z = right, forward_y - up * forward_z, forward_z + up * forward_y
    length = math.sqrt(x * x + y * y + z * z)
    x, y, z = x / length, y / length, z / length
    return x, y, z, x * _LIGHT[0] + y * _LIGHT[1] + z * _LIGHT[2]
