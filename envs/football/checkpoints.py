"""The checkpoint reward of gfootball: 0.1 for each of ten rings around the goal.

A led player that has the ball collects the rings it is inside of, each once in an episode; a goal
collects what is left. Rings are as far from the middle of the goal as gfootball draws them, 0.99
to 0.19. Rewards are added in float32, one ring at a time, because gfootball does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hts_envs.contract import Array

RINGS = 10
VALUE = 0.1
_RADII = tuple(0.99 - 0.8 / (RINGS - 1) * ring for ring in range(RINGS))


class Checkpoints:
    """How many rings each led player has collected in the running episode."""

    def __init__(self, left: int, right: int) -> None:
        self._left = left
        self.collected = [0] * (left + right)

    def start(self) -> None:
        self.collected = [0] * len(self.collected)

    def add(self, reward: Array, info: Any, goals: int) -> None:
        """Add what is collected to the scoring rewards (float32, one for each agent)."""
        owner = info.ball_owned_team
        if owner == -1 and not goals:
            return  # most steps of a pass: nothing more is asked of the engine's slow objects
        for agent, done in enumerate(self.collected):
            if goals and reward[agent] == 1:
                reward[agent] += VALUE * (RINGS - done)
                self.collected[agent] = RINGS
            elif done < RINGS and self._has_ball(agent, owner, info):
                x, y = info.ball_position[0], info.ball_position[1]
                self._collect(reward, agent, (x, y) if agent < self._left else (-x, -y))

    def _has_ball(self, agent: int, owner: int, info: Any) -> bool:
        if owner != (0 if agent < self._left else 1):
            return False
        if agent < self._left:
            player = info.left_controllers[agent].controlled_player
        else:
            player = info.right_controllers[agent - self._left].controlled_player
        return bool(info.ball_owned_player == player)

    def _collect(self, reward: Array, agent: int, ball: tuple[float, float]) -> None:
        distance = ((ball[0] - 1) ** 2 + ball[1] ** 2) ** 0.5
        done = self.collected[agent]
        while done < RINGS and distance <= _RADII[done]:
            reward[agent] += np.float32(VALUE)
            done += 1
        self.collected[agent] = done
