"""What a simulator gives, as the arrays of the wire; and the other way round.

Axes that a simulator has no use for may be left out: that of agents where there is one, and that of
rows where its connection did not ask for several.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hts.remote import wire
from hts_envs.contract import Array, Box, Discrete, Observation, Space, Spaces
from hts_envs.finite import are_finite

_LARGEST = float(np.finfo(np.float32).max)
_FACTS = 60  # of an episode, beside its return and length
_OLD_STEP = " (before Gym 0.26 a step had one flag for both: say which it was)"


class WrongShape(ValueError):
    """What the simulator gave is not what its own spaces declare."""


class _Field(NamedTuple):
    """One array of a seat: what is said of it, and what it must be."""

    what: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    space: Space | None = None


_REWARD = _Field("reward", np.dtype(np.float64), ())


class Shape:
    """The shapes of one seat."""

    def __init__(self, spaces: Spaces, rows: int, *, single: bool) -> None:
        self.spaces = spaces
        self.rows = rows
        self.single = single
        self._fields = {
            name: _Field(f"observation {name!r}", np.dtype(space.dtype), space.shape, space)
            for name, space in spaces.observation.items()
        }
        self._only = next(iter(spaces.observation)) if len(spaces.observation) == 1 else None
        self._one = rows == 1 and spaces.agents == 1
        self._plain = self._only is not None and self._one and single
        self._number = single and spaces.agents == 1 and isinstance(spaces.action, Discrete)

    def plain(self, given: Any, reward: Any) -> wire.Frames | None:
        """The frames of a step that ends nothing, where they are made without looking further.

        Most steps of most simulators are such: one array as it was declared, and one float.
        """
        if not self._plain or type(given) is not np.ndarray or type(reward) is not float:
            return None
        (field,) = self._fields.values()
        fits = given.shape == field.shape and given.dtype == field.dtype
        if not (fits and -_LARGEST <= reward <= _LARGEST and isinstance(field.space, Box)):
            return None
        if field.dtype.kind == "f" and not are_finite(given):
            return None
        return [struct.pack("<f", reward), b"\0", given.tobytes()]

    def observation(self, given: Any, rows: int) -> Observation:
        """Arrays of (rows, agents, ...), which may be those that were given."""
        if self._only is not None and not isinstance(given, Mapping):
            given = {self._only: given}
        if not isinstance(given, Mapping):
            fields = ", ".join(self.spaces.observation)
            raise WrongShape(f"the observation is a {_kind(given)}; it has the fields {fields}")
        return {
            name: self._field(field, _found(given, name), rows)
            for name, field in self._fields.items()
        }

    def _field(self, field: _Field, given: Any, rows: int) -> Array:
        array, space = self._full(_exactly(given, field), rows, field), field.space
        if not isinstance(space, Box):
            assert space is not None, "a field of an observation has a space"
            limit = space.n if isinstance(space, Discrete) else np.asarray(space.nvec)
            if not ((array >= 0) & (array < limit)).all():
                raise WrongShape(
                    f"{field.what} is none of its choices, 0 to {limit - 1}: {given!r}"
                )
        return array

    def reward(self, given: Any) -> Array:
        """One number for each agent of each row, as exactly as it is given."""
        if type(given) is float and self._one and -_LARGEST <= given <= _LARGEST:
            return np.array([[given]])
        array = self._full(_exactly(given, _REWARD), self.rows, _REWARD)
        if (np.abs(array) > _LARGEST).any():
            raise WrongShape(f"reward is more than a float32 can hold: {given!r}")
        return array

    def ends(self, terminated: Any, truncated: Any) -> Array:
        """Both flags of each row as one number."""
        if type(terminated) is bool and type(truncated) is bool and self.rows == 1:
            end = wire.TERMINATED * terminated + wire.TRUNCATED * truncated
            return np.array([end], np.uint8)
        first, second = self._flag("terminated", terminated), self._flag("truncated", truncated)
        return np.asarray(first * wire.TERMINATED + second * wire.TRUNCATED, np.uint8)

    def _flag(self, what: str, given: Any) -> Array:
        flag = np.asarray(given)
        if flag.dtype.kind not in "biu" or flag.size not in (1, self.rows):
            rest = _OLD_STEP if isinstance(given, Mapping) else ""
            raise WrongShape(
                f"{what} is one flag for each replica of the seat, not {given!r}{rest}"
            )
        return np.broadcast_to(flag.reshape(-1).astype(bool), (self.rows,))

    def facts(self, given: Mapping[Any, Any]) -> dict[str, float]:
        """Finite numbers with a name; whatever else a simulator knows is left out."""
        found = {
            str(name): float(fact)
            for name, fact in given.items()
            if isinstance(fact, (bool, int, float, np.bool_, np.number))
            if wire.is_name(str(name)) and np.isfinite(fact)
        }
        return dict(itertools.islice(found.items(), _FACTS))

    def action(self, action: Array) -> Any:
        """What a simulator of this kind wants: a number, or an array without idle axes."""
        if self._number:
            return int(action.item())
        found = action.astype(action.dtype.newbyteorder("="))  # nobody else's
        if self.spaces.agents == 1:
            found = found[:, 0]
        return found[0] if self.single else found

    def _full(self, array: Array, rows: int, field: _Field) -> Array:
        agents, shape = self.spaces.agents, field.shape
        if self._one and array.shape == shape and self.single:
            return array.reshape(1, 1, *shape)
        allowed = [(rows, agents, *shape)]
        if agents == 1:
            allowed.append((rows, *shape))
        if self.single:
            allowed += [each[1:] for each in allowed]
        if array.shape not in allowed:
            raise WrongShape(f"{field.what} has the shape {array.shape}; it must be {allowed[-1]}")
        return array.reshape(allowed[0])


def _found(given: Mapping[Any, Any], name: str) -> Any:
    """A field by its name, also where it lies in mappings and tuples inside each other."""
    found: Any = given
    for part in [name] if name in given else name.split("."):
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, (tuple, list)) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            has = ", ".join(map(str, given))
            raise WrongShape(
                f"the observation has no {name!r}, which its spaces declare; it has {has}"
            )
    return found


def _exactly(given: Any, field: _Field) -> Array:
    """An array of the declared dtype that holds the same numbers; floats are rounded to it."""
    wanted, what = field.dtype, field.what
    try:
        array = np.asarray(given)
    except ValueError:  # lists of different lengths, or a pair of an array and something else
        array = np.empty((), object)
    kinds = "fiub" if wanted.kind == "f" else "iub"
    if array.dtype.kind not in kinds:
        raise WrongShape(f"{what} must hold {wanted} numbers, not {_kind(given)}{_hint(given)}")
    found = array
    if array.dtype != wanted:
        with np.errstate(over="ignore", invalid="ignore"):
            found = array.astype(wanted)
    if wanted.kind == "f":
        if not are_finite(found):
            raise WrongShape(f"{what} holds a number that is not finite")
    elif found is not array and not (found == array).all():
        raise WrongShape(f"{what} holds numbers that {wanted} cannot hold")
    return found


def _kind(given: Any) -> str:
    dtype = getattr(given, "dtype", None)
    return type(given).__name__ if dtype is None else f"{dtype} ones"


def _hint(given: Any) -> str:
    """What is meant by a pair: what Gymnasium's reset returns."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        return " (Gymnasium's reset returns observation and info: give the observation alone)"
    return ""
