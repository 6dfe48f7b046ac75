"""Sine, cosine and inverse square root with the same bits wherever they are computed.

Problem: a trajectory must not depend on how many replicas are stepped together, on where a row
stands, on the number of threads or on the device. Addition, subtraction, multiplication and
division are rounded correctly by every unit that computes them, one element at a time, so they
have this property for nothing. Other functions have not: which library computes them, to which
precision, and which other code computes the tail of an array, is a matter of the build and the
device. (The square root of torch 2.13 on a CPU is not the correctly rounded one for 1 number of
80 in float64 and for 1 of 6 in float32.)

So the simulators use these instead, made from those four operations alone, each a torch call of
its own so that no compiler can fuse two of them into one rounding:

* sine and cosine: range reduction to [-pi/4, pi/4] in two parts, then the Taylor series, in
  float64. For |x| < 1000 the difference from the C library is at most 1.2e-16; beyond 1e6 the
  reduction loses digits.
* inverse square root, of numbers in [1, 1.5]: Newton's iteration from 2 / (1 + x).
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

_HALF_PI_HIGH = math.ldexp(math.floor(math.ldexp(math.pi / 2, 32)), -32)
"""The first 33 bits of pi / 2: a multiple of it by a small whole number is exact."""
_HALF_PI_LOW = 6.077100506506192e-11  # pi / 2 - _HALF_PI_HIGH, to 53 bits

_LARGE = 1.5 * 2.0**52
_TERMS = 9


def _series(first: int) -> list[float]:
    """Coefficients of z = x * x: (-1)^k / (2k + first)! for k = 0, 1, ..."""
    return [(-1.0) ** k / math.factorial(2 * k + first) for k in range(_TERMS)]


@functools.cache
def _coefficients(device: torch.device) -> Tensor:
    """(terms, sine or cosine, 1), made once for a device: a copy to it at each step would wait."""
    pairs = tuple(zip(_series(1), _series(0), strict=True))
    return torch.tensor(pairs, dtype=torch.float64, device=device)[:, :, None]


def nearest(x: Tensor) -> Tensor:
    """The nearest whole number of a float64 below 2^51, by adding and taking away a large one.

    torch's own rounding functions are exact too, but run in threads however short an array is.
    """
    return (x + _LARGE) - _LARGE


def sin_cos(x: Tensor) -> tuple[Tensor, Tensor]:
    """(sin x, cos x) of a float64 tensor of one axis."""
    turns = nearest(x * (2.0 / math.pi))
    r = (x - turns * _HALF_PI_HIGH) - turns * _HALF_PI_LOW
    z = r * r
    both = _coefficients(x.device)
    total = both[_TERMS - 1] * z + both[_TERMS - 2]
    for k in range(_TERMS - 3, -1, -1):
        total = total * z + both[k]
    sine, cosine = total[0] * r, total[1]
    quarter = turns - 4.0 * nearest(turns * 0.25)  # -2, -1, 0, 1 or 2
    opposite = quarter.abs() == 2.0
    odd = quarter.abs() == 1.0
    sin = torch.where(odd, cosine, sine)
    cos = torch.where(odd, sine, cosine)
    sin = torch.where(opposite | (quarter == -1.0), -sin, sin)
    cos = torch.where(opposite | (quarter == 1.0), -cos, cos)
    return sin, cos


def inverse_sqrt(x: Tensor) -> Tensor:
    """1 / sqrt(x) for x in [1, 1.5], to one unit in the last place or two."""
    root = 2.0 / (1.0 + x)
    for _ in range(5):
        root = root * (1.5 - 0.5 * x * (root * root))
    return root
