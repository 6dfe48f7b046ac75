"""Random numbers without state: a number is a function of the integers that name it.

`fold` mixes any integers into a 64-bit key; `uniform` and `normal` turn keys into numbers. The
same key gives the same numbers in every process, order and batch, because there is no generator
to advance. The mixing step is the finaliser of SplitMix64, a bijection with full avalanche.
`fold` and `fold_rows` give the same keys: a test holds both to each other.
"""

from __future__ import annotations

import numpy as np

from hts_envs.contract import Array

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_M1 = 0xBF58476D1CE4E5B9
_M2 = 0x94D049BB133111EB
_FEW = 8
"""Numbers that Python's own integers mix faster than arrays do."""


def _mix_int(x: int) -> int:
    x = ((x ^ (x >> 30)) * _M1) & _MASK
    x = ((x ^ (x >> 27)) * _M2) & _MASK
    return x ^ (x >> 31)


def _mix_array(x: Array) -> Array:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_M1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_M2)
    return np.asarray(x ^ (x >> np.uint64(31)))


def fold(*parts: int) -> int:
    """One 64-bit key out of integers; order matters."""
    key = 0
    for part in parts:
        key = extend_int(key, part)
    return key


def extend_int(key: int, part: int) -> int:
    """A key folded with one part more."""
    return _mix_int(((key ^ _mix_int(part & _MASK)) + _GOLDEN) & _MASK)


def fold_rows(*parts: Array | int) -> Array:
    """The same for arrays of integers, one key for each row; a plain integer is every row's."""
    start, rest = 0, list(parts)
    while rest and (isinstance(rest[0], int) or rest[0].shape in ((), (1,))):
        first = rest.pop(0)
        start = extend_int(start, first if isinstance(first, int) else first.item())
    keys = np.array([start], np.uint64)
    for part in rest:
        keys = extend(keys, part)
    return keys


def extend(keys: Array, part: Array | int) -> Array:
    """The same for rows: fold_rows(a, b) is extend(fold_rows(a), b)."""
    if isinstance(part, int):
        words = np.array([_mix_int(part & _MASK)], np.uint64)
    else:
        words = _mix_array(np.atleast_1d(part).astype(np.uint64))
    return _mix_array((keys ^ words) + np.uint64(_GOLDEN))


def uniform(keys: Array, count: int) -> Array:
    """`count` float64 in [0, 1) for each key: (len(keys), count)."""
    if len(keys) * count <= _FEW:
        counted = [place * _GOLDEN for place in range(1, count + 1)]
        pairs = [(key + each) & _MASK for key in keys.tolist() for each in counted]
        return np.array([(_mix_int(each) >> 11) * 2.0**-53 for each in pairs]).reshape(-1, count)
    counters = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    bits = _mix_array(np.asarray(keys, np.uint64)[:, None] + counters[None, :])
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(keys: Array, count: int) -> Array:
    """`count` standard normal float64 for each key (Box and Muller): (len(keys), count)."""
    pairs = uniform(keys, 2 * count)
    radius = np.sqrt(-2.0 * np.log1p(-pairs[:, :count]))
    return np.asarray(radius * np.cos(2.0 * np.pi * pairs[:, count:]))
