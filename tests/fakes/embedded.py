"""The simulators of the page for embedders, as worlds that a run can build itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

import hts.remote
from hts_envs.contract import Array, Observation, Spaces, Step, Traits, World

PAGE = Path(hts.remote.__file__).parent / "EMBEDDING.md"


def examples() -> dict[str, str]:
    """Every program of the page, by the name in its first line."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return {re.match(r"# (\w+\.py)\n", block)[1]: block for block in blocks}  # type: ignore[index]


class Shown(World):
    """One of them."""

    def __init__(self, simulator: Any, spaces: Spaces) -> None:
        self.spaces = spaces
        self.traits = Traits()
        self._simulator = simulator

    def reset(self, seed: int) -> Observation:
        return self._seen(self._simulator.reset(seed))

    def step(self, action: Array) -> Step:
        taken = action if self.spaces.agents > 1 else action[0]
        shown, reward, terminated, truncated = self._simulator.step(taken)
        rewards = np.array(reward, np.float32).reshape(self.spaces.agents)
        return Step(self._seen(shown), rewards, terminated, truncated, {})

    def _seen(self, shown: Any) -> Observation:
        fields = shown if isinstance(shown, dict) else {"observation": [shown]}
        return {
            name: np.array(fields[name], space.dtype)
            for name, space in self.spaces.observation.items()
        }


def game() -> Shown:
    """The one that all of them play."""
    found = _named("game.py")
    return Shown(found["Game"](), found["SPACES"])


def team() -> Shown:
    """And the one with two agents."""
    found = _named("team.py", "from game import Game")
    return Shown(found["Team"](), found["SPACES"])


def _named(program: str, needs: str = "") -> dict[str, Any]:
    found = {"__name__": program} | (_named("game.py") if needs else {})
    exec(examples()[program].replace(needs, ""), found)
    return found
