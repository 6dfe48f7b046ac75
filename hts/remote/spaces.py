"""Spaces as a simulator's author has them: this package's own, Gymnasium's, or both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hts.remote import wire
from hts.remote.talk import Offer
from hts_envs.contract import Box, Discrete, MultiDiscrete, Space, Spaces
from hts_envs.errors import BadName
from hts_envs.spaces import PLAIN, Actions, leaves

_OWN = (Box, Discrete, MultiDiscrete)
_OWNER = "this simulator"


def spaces_of(observation: Any, action: Any, agents: int = 1) -> Spaces:
    """Spaces of Gymnasium, or any mixture of them and this package's, as this package's.

    The parts of a nested observation are called as `gym:` calls them: "camera.left", "pose.0".
    """
    parts = observation if isinstance(observation, Mapping) else {"": observation}
    fields: dict[str, Space] = {}
    for name, part in parts.items():
        for path, space in _fields(part):
            fields[".".join(each for each in (str(name), path) if each) or PLAIN] = space
    if isinstance(action, _OWN):
        return Spaces(fields, action, agents)
    _starts_at_0(action, "action")
    return Spaces(fields, Actions(action, _OWNER).space, agents)


def _fields(space: Any) -> list[tuple[str, Space]]:
    """Each part of an observation space, and the way to it."""
    if isinstance(space, _OWN):
        return [("", space)]
    found = leaves(space, _OWNER)
    for leaf in found:
        _starts_at_0(leaf, f"observation {leaf.name!r}")
    return [(".".join(map(str, leaf.path)), leaf.space) for leaf in found]


def _starts_at_0(space: Any, what: str) -> None:
    if np.any(getattr(space, "start", 0)):
        raise BadName(
            f"{_OWNER}: its {what} counts from another number than 0: declare it from 0 on and "
            "shift it, or let serve_gym do that"
        )


def check(offer: Offer) -> None:
    """Refuse an offer that could not be sent, or that no run would understand."""
    spaces = offer.spaces
    if not isinstance(spaces, Spaces):
        raise TypeError(f"spaces: Spaces({{name: space}}, action) is wanted, not {spaces!r}{_TRY}")
    if not isinstance(spaces.observation, Mapping) or not spaces.observation:
        raise TypeError(f"spaces: the observation is a dict of named spaces{_TRY}")
    for name, space in {**spaces.observation, "action": spaces.action}.items():
        if not isinstance(space, _OWN):
            raise TypeError(f"spaces: {name} is {space!r}{_TRY}")
    for what in ("seats", "rows"):
        count = getattr(offer, what)
        if count is not None and (type(count) is not int or count < 1):
            raise ValueError(f"{what}: a whole number of at least 1, not {count!r}")
    try:
        wire.spaces_from_plain(wire.spaces_to_plain(spaces))
    except wire.Malformed as error:
        raise ValueError(f"spaces: {error}") from None


_TRY = "; spaces_of(observation_space, action_space) takes those of Gymnasium"
