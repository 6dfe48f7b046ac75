"""How a game is played and seen: the papers' protocols, and single changes to them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

from hts_envs.errors import BadOption
from hts_envs.options import Range, option, written


@dataclass(frozen=True)
class Rules:
    """Everything that tells one way of playing a game from another."""

    size: tuple[int, ...] = (84, 84)
    crop: int = 0
    skip: int = 4
    sticky: float = 0.0
    noops: int = 30
    full_actions: bool = False
    frame_limit: int = 108_000
    life_loss: str = "none"

    def describe(self, game: str, actions: int) -> str:
        """One line that says how often the game is sampled and what is random in it."""
        height, width = self.size
        frames = "frame" if self.skip == 1 else "frames"
        brighter = ", the brighter of the last two" if self.skip > 1 else ""
        noops = f"1 to {self.noops} no-ops at the start" if self.noops else "no no-ops"
        limit = f"{self.frame_limit:,} frames at most" if self.frame_limit else "no frame limit"
        lives = "ends nothing" if self.life_loss == "none" else "terminates the episode"
        return (
            f"{game}: {height}x{width} grey, {self.skip} {frames} a step "
            f"(emulator 1 x world {self.skip}){brighter}, sticky actions {self.sticky:g}, "
            f"{noops}, {actions} actions, {limit}, a lost life {lives}"
        )


PRESETS = {
    "hts": Rules(),
    "cleanba": Rules(sticky=0.25, noops=0, full_actions=True),
    "accelerated": Rules(size=(104, 80), crop=2),
}
"""The protocols of HTS-RL, of Cleanba (Machado's) and of the accelerated methods."""


@dataclass(frozen=True)
class Options:
    """A preset and what is changed in it.

    What is not given is filled in from the preset, and the preset is then the first that agrees
    with all of it: worlds that play by the same rules have the same canonical name.
    """

    preset: Literal["hts", "cleanba", "accelerated"] = option(
        "hts", "the protocol that every option not given below is taken from"
    )
    size: tuple[int, ...] | None = option(
        None, "height x width of the grey picture (accelerated 104x80, else 84x84)"
    )
    crop: Annotated[int | None, Range(0, 100)] = option(
        None, "rows cut off the bottom before the picture is made smaller (accelerated 2, else 0)"
    )
    skip: Annotated[int | None, Range(1)] = option(None, "frames each action is held for (4)")
    sticky: Annotated[float | None, Range(0, 1)] = option(
        None, "probability, each frame, that the action before is held on (cleanba 0.25, else 0)"
    )
    noops: Annotated[int | None, Range(0)] = option(
        None, "a game starts with 1 to this many frames without action (cleanba 0, else 30)"
    )
    full_actions: bool | None = option(
        None, "all 18 actions instead of those the game uses (cleanba true, else false)"
    )
    frame_limit: Annotated[int | None, Range(0)] = option(
        None, "frames after which a game is truncated, 0 for never (108000)"
    )
    life_loss: Literal["none", "terminates"] = option(
        "none", "terminates: a lost life ends the episode, the next reset plays the same game on"
    )

    def __post_init__(self) -> None:
        preset = PRESETS[self.preset]
        for field in dataclasses.fields(Rules):
            if getattr(self, field.name) is None:
                object.__setattr__(self, field.name, getattr(preset, field.name))
        assert self.size is not None, "the preset gives a size"
        if len(self.size) != 2 or min(self.size) < 1 or max(self.size) > 250:
            raise BadOption(
                "atari: option size must be height x width, each from 1 to 250, such as 84x84, "
                f"got {written(self.size)}"
            )
        mine = self.rules()
        same = [name for name, rules in PRESETS.items() if rules == mine]
        object.__setattr__(self, "preset", same[0] if same else "hts")

    def rules(self) -> Rules:
        """The same without the preset."""
        names = [field.name for field in dataclasses.fields(Rules)]
        return Rules(**{name: getattr(self, name) for name in names})
