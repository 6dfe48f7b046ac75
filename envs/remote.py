"""The `remote:` family: simulators that nobody here can build, because they dial in.

The name behind the colon is the user's own: it tells one simulator's runs from another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hts_envs.contract import BatchedWorld, Place, World
from hts_envs.errors import BadName
from hts_envs.registry import Family, Spec


@dataclass(frozen=True)
class RemoteOptions:
    """There are none: whatever a simulator can be told, it is told where it runs."""


class Remote(Family):
    """Whoever dials in."""

    name = "remote"
    summary = "simulators that dial in, over a socket and in any language"
    open_ended = True
    guessed = False

    def names(self) -> Sequence[str]:
        return ("my-game",)

    def resolve(self, name: str) -> str:
        return name

    def options(self, name: str) -> type[Any]:
        return RemoteOptions

    def make(self, spec: Spec, place: Place) -> World | BatchedWorld:
        raise BadName(
            f"{spec.canonical()}: its simulators dial in, so there is none that can be built here: "
            "name one of the other families, or look at it where it runs"
        )


FAMILY = Remote()
