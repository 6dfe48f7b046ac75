"""Our own worlds are sound: each is examined as hts-check examines anybody's."""

from __future__ import annotations

import pytest

from hts.soundness.examine import Budget, examine
from hts.soundness.findings import Level

WORLDS = (
    "gfootball:3v1",
    "gfootball:empty_goal_close?agents=2&representation=simple115v2&rewards=scoring",
    "gfootball:11v11_easy?right_agents=1&representation=raw",
    "atari:Breakout",
    "atari:SpaceInvaders?preset=cleanba",
    "atari:Pong?preset=accelerated",
    "gym:CartPole-v1",
    "gym:Pendulum-v1",
    "gym:HalfCheetah-v5",
    "batched:cartpole",
    "batched:pendulum",
    "batched:ball_balance?observation=both",
    "batched:half_cheetah",
    "batched:ant",
    "batched:walker2d",
    "batched:humanoid",
    "envpool:Pong-v5",
    "sleeper:?mean=1",
    "sleeper:?mean=0&batch=true",
    "counting:?agents=2",
)
BUDGET = Budget(episodes=6, steps=60, seconds=4.0)


@pytest.mark.parametrize("name", WORLDS)
def test_each_of_our_worlds_is_sound(name: str) -> None:
    """No error in any phase: repeated, in a fresh process, history, spaces, ends, snapshots."""
    report = examine(name, 0, BUDGET)
    errors = [finding.text for finding in report.findings if finding.level is Level.ERROR]
    assert errors == []
    assert report.sound
