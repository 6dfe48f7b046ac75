"""Spaces of Gymnasium as the contract's, and the values that go in and out of them.

An observation space is a tree of Dict and Tuple with plain spaces as leaves. Every leaf becomes
one named field: the keys and numbers on the way to it, joined by dots ("camera.left", "pose.0");
a space that is a leaf itself is called "observation". Three conversions are made here and nowhere
else:

* floating observations become float32, whatever their precision was;
* whole numbers that start elsewhere (`Discrete(3, start=-1)`) are shifted to start at 0;
* images with their channels first are transposed to (height, width, channels).

Spaces are told apart by the names of their classes, so that those of the older `gym` package,
which has the same ones, pass as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hts_envs.contract import Array, Box, Discrete, MultiDiscrete, Observation, Space
from hts_envs.errors import BadName, BrokenSimulator
from hts_envs.images import channel_axis, is_image

PLAIN = "observation"
_KNOWN = (
    "Box",
    "Discrete",
    "MultiDiscrete",
    "MultiBinary",
    "Dict",
    "Tuple",
    "Text",
    "Graph",
    "Sequence",
    "OneOf",
)


def kind_of(space: Any) -> str:
    """The name of the space's class, or of the known one that it derives from."""
    names = [parent.__name__ for parent in type(space).__mro__]
    return next((name for name in names if name in _KNOWN), names[0])


@dataclass(frozen=True)
class Leaf:
    """One field of an observation: where it lies in the simulator's, and what the world says."""

    name: str
    path: tuple[Any, ...]
    space: Space
    start: Any = 0


def leaves(space: Any, owner: str) -> list[Leaf]:
    """Every field of an observation space, in the space's own order."""
    found = [_leaf(path, space, owner) for path, space in _walk(space, ())]
    names = [leaf.name for leaf in found]
    if not found:
        raise BadName(f"{owner}: its observation space is empty, so there is nothing to learn from")
    for name in names:
        if names.count(name) > 1:
            raise BadName(f"{owner}: two parts of its observation would both be called {name!r}")
    return found


def _walk(space: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    kind = kind_of(space)
    if kind not in ("Dict", "Tuple"):
        yield path, space
        return
    parts = space.spaces.items() if kind == "Dict" else enumerate(space.spaces)
    for key, part in parts:
        yield from _walk(part, (*path, key))


def _leaf(path: tuple[Any, ...], space: Any, owner: str) -> Leaf:
    name = ".".join(str(key) for key in path) or PLAIN
    kind = kind_of(space)
    if kind == "Box":
        return Leaf(name, path, _box(space))
    if kind == "Discrete":
        return Leaf(name, path, Discrete(int(space.n)), int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return _multi_discrete(name, path, space)
    if kind == "MultiBinary":
        return Leaf(name, path, Box(tuple(space.shape), "int8", 0.0, 1.0))
    raise BadName(
        f"{owner}: the part {name!r} of its observation is a {kind} space, which is not an array "
        f"of fixed shape: only Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple are read"
    )


def _multi_discrete(name: str, path: tuple[Any, ...], space: Any) -> Leaf:
    counts = np.asarray(space.nvec, np.int64)
    start = np.asarray(getattr(space, "start", np.zeros_like(counts)), np.int64)
    if counts.ndim == 1:
        return Leaf(name, path, MultiDiscrete(tuple(counts.tolist())), start)
    return Leaf(name, path, Box(counts.shape, "int64", 0.0, _bound(counts - 1)), start)


def _box(space: Any) -> Box:
    dtype = np.dtype(np.float32 if np.dtype(space.dtype).kind == "f" else space.dtype)
    with np.errstate(over="ignore"):  # a bound beyond float32 is no bound
        low = np.asarray(space.low).astype(dtype)
        high = np.asarray(space.high).astype(dtype)
    return Box(tuple(space.shape), dtype.name, _bound(low), _bound(high))


def _bound(values: Array) -> float | tuple[Any, ...]:
    if values.size == 0:
        return 0.0
    first = values.flat[0]
    if (values == first).all():
        return float(first)
    nested = _nested(values.tolist())
    assert isinstance(nested, tuple)
    return nested


def _nested(values: Any) -> Any:
    if isinstance(values, list):
        return tuple(_nested(value) for value in values)
    return float(values)


class Reader:
    """Takes one field out of a simulator's observation as an array of its own.

    `replicas` is the leading axis of a vector environment's arrays; None where there is none.
    """

    def __init__(self, leaf: Leaf, owner: str, replicas: int | None = None) -> None:
        self.name = leaf.name
        self.space = leaf.space
        self.note = ""  # what is converted, where people should know it
        self._owner = owner
        self._path = leaf.path
        self._dtype = np.dtype(leaf.space.dtype)
        self._kinds = "fiub" if self._dtype.kind == "f" else "iub"
        self._start = leaf.start if np.any(leaf.start) else None
        lead = () if replicas is None else (replicas,)
        self._shape = lead + tuple(leaf.space.shape)
        self._agents = (None,) if replicas is None else (slice(None), None)
        self._transposed = _has_channels_first(leaf.space)
        if self._transposed:
            assert isinstance(leaf.space, Box), "an image is a box"
            self.space = _channels_last(leaf.space)
            self.note = (
                f"{leaf.name} is an image of {_by(leaf.space)} with its channels first, which is "
                f"transposed to {_by(self.space)}"
            )

    def read(self, observation: Any) -> Array:
        """The field with an axis of one agent added; nothing of the simulator's is shared."""
        given = np.asarray(self._find(observation) if self._path else observation)
        if given.shape != self._shape or given.dtype.kind not in self._kinds:
            raise self._refusal(given)
        if self._transposed:
            given = np.moveaxis(given, -3, -1)
        fresh = given.astype(self._dtype, order="C")
        if self._start is not None:
            fresh = fresh - self._start
        return fresh[self._agents]

    def _find(self, observation: Any) -> Any:
        found = observation
        for key in self._path:
            try:
                found = found[key]
            except (KeyError, IndexError, TypeError) as error:
                raise BrokenSimulator(
                    f"{self._owner}: its observation has no {self.name!r}, which its observation "
                    f"space declares"
                ) from error
        return found

    def _refusal(self, given: Array) -> BrokenSimulator:
        return BrokenSimulator(
            f"{self._owner}: field {self.name!r} of its observation is declared as "
            f"{self._dtype.name}{list(self._shape)}, but came as {given.dtype.name}"
            f"{list(given.shape)}"
        )


def _has_channels_first(space: Space) -> bool:
    return is_image(space.shape, space.dtype) and channel_axis(space.shape) == "first"


def _channels_last(box: Box) -> Box:
    shape = (*box.shape[1:], box.shape[0])
    low, high = (
        _bound(np.moveaxis(np.broadcast_to(np.asarray(side, box.dtype), box.shape), 0, -1))
        for side in (box.low, box.high)
    )
    return Box(shape, box.dtype, low, high)


def _by(space: Space) -> str:
    return "x".join(map(str, space.shape))


class Observations:
    """Reads whole observations of one space."""

    def __init__(self, space: Any, owner: str, replicas: int | None = None) -> None:
        self._readers = [Reader(leaf, owner, replicas) for leaf in leaves(space, owner)]
        self.spaces: dict[str, Space] = {reader.name: reader.space for reader in self._readers}
        self.note = "; ".join(reader.note for reader in self._readers if reader.note)
        self._only = self._readers[0] if len(self._readers) == 1 else None

    def read(self, observation: Any) -> Observation:
        if self._only is not None:
            return {self._only.name: self._only.read(observation)}
        return {reader.name: reader.read(observation) for reader in self._readers}


class Actions:
    """Turns the contract's actions into the ones that a simulator's action space holds."""

    def __init__(self, space: Any, owner: str) -> None:
        kind = kind_of(space)
        self.space: Space = _action_space(space, kind, owner)
        self._dtype = np.dtype(np.int8 if kind == "MultiBinary" else self.space.dtype)
        start = np.asarray(getattr(space, "start", 0), np.int64)
        self._start = start if np.any(start) else None
        self._offset = int(start) if kind == "Discrete" else 0
        self._whole = kind == "Discrete"

    def single(self, action: Array) -> Any:
        """(1, *shape) as one action: an int, or an array that nobody else holds."""
        if self._whole:
            return int(action[0]) + self._offset
        return self._shifted(np.array(action[0], self._dtype))

    def batch(self, action: Array) -> Array:
        """(replicas, 1, *shape) as the action of a vector environment."""
        return self._shifted(np.array(action[:, 0], self._dtype))

    def _shifted(self, action: Array) -> Array:
        return action if self._start is None else action + self._start


def _action_space(space: Any, kind: str, owner: str) -> Space:
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "MultiDiscrete" and np.ndim(space.nvec) == 1:
        return MultiDiscrete(tuple(np.asarray(space.nvec).tolist()))
    if kind == "MultiBinary" and len(space.shape) == 1:
        return MultiDiscrete((2,) * int(space.shape[0]))
    if kind == "Box" and np.dtype(space.dtype).kind == "f":
        return _box(space)
    what = f"{kind} of {np.dtype(space.dtype).name}" if kind == "Box" else kind
    if kind in ("MultiDiscrete", "MultiBinary"):
        what = f"nested {kind}"
    raise BadName(
        f"{owner}: its action space is a {what}: only Discrete, flat MultiDiscrete, flat "
        f"MultiBinary and floating Box actions can be chosen here"
    )
