"""Atari games through ale-py: `atari:Breakout`, `atari:MsPacman?preset=cleanba`.

The engine is ALE itself; stacking frames and clipping rewards are the machine's. There is no
world around ALE's own vector environment, for five reasons, the first two of which no option
mends. A row that is given a seed loads its cartridge again, which takes as long as 200 steps. An
observation that ends an episode in the middle of a step, the frame limit's included, is made of
the frames of the step before. The number of no-ops comes out of the C++ library's own
distribution and of 31 bits of seed. A lost life cannot be played on from. It has no snapshots.
There is little to be had: nearly all the time goes to the emulator, and on one core it makes 4 to
9 % more steps than the world here before its resets, which take 14 times as long, are counted
(`tools/atari_speed` measures both).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hts_envs.atari import games
from hts_envs.atari.rules import Options
from hts_envs.contract import BatchedWorld, Place, World
from hts_envs.registry import Family, Spec

DEFAULT = "Breakout"


class Atari(Family):
    """Every game of the Arcade Learning Environment that one player can play."""

    name = "atari"
    summary = "Atari 2600 games through ale-py, with the papers' presets"
    packages = ("ale_py", "cv2")
    extra = "atari"

    def names(self) -> Sequence[str]:
        return list(games.GAMES)

    def resolve(self, name: str) -> str:
        return games.resolve(name or DEFAULT)

    def options(self, name: str) -> type[Any]:
        return Options

    def make(self, spec: Spec, place: Place) -> World | BatchedWorld:
        from hts_envs.atari.world import AtariWorld

        return AtariWorld(spec.name, spec.options.rules())


FAMILY = Atari()
