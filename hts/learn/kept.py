"""Everything that a learner keeps from one update to the next, as plain arrays.

With the versions that are alive, it is all that a successor needs to go on where another stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from hts.config import Experiment
from hts.learn.normalise import Moments, RewardScale
from hts.learn.optimisers import Adam, Optimiser, make_optimiser
from hts_envs.contract import Array


@dataclass
class Kept:
    """The optimiser's state, and the scale of rewards."""

    optimiser: Optimiser
    reward_scale: RewardScale

    @staticmethod
    def fresh(
        experiment: Experiment, size: int, agents: int, device: torch.device | str = "cpu"
    ) -> Kept:
        """What is kept before the first update."""
        algo = experiment.algo
        optimiser = make_optimiser(algo.optimiser, size, algo.optimiser_epsilon, device)
        return Kept(optimiser, RewardScale(np.zeros((experiment.replicas, agents))))

    def arrays(self) -> dict[str, Array]:
        """All of it, by name; to be copied before the next update."""
        reward = self.reward_scale
        moments = (reward.moments.count, float(reward.moments.mean), float(reward.moments.squares))
        return {
            "reward.running": reward.running,
            "reward.moments": np.array(moments),
            **state_of(self.optimiser),
        }

    def take(self, arrays: Mapping[str, Array]) -> None:
        """Go on from what another learner kept; the arrays are copied."""
        count, mean, squares = arrays["reward.moments"].tolist()
        self.reward_scale = RewardScale(
            arrays["reward.running"].copy(), Moments(count, np.array(mean), np.array(squares))
        )
        take_state(self.optimiser, arrays)


def state_of(optimiser: Optimiser) -> dict[str, Array]:
    """Everything that an optimiser remembers."""
    found = {"optimiser.square": optimiser.square.cpu().numpy()}
    if isinstance(optimiser, Adam):
        found["optimiser.mean"] = optimiser.mean.cpu().numpy()
        found["optimiser.steps"] = np.array([optimiser.steps])
    return found


def take_state(optimiser: Optimiser, arrays: Mapping[str, Array]) -> None:
    """Remember what another one remembered; the arrays are copied."""
    optimiser.square.copy_(torch.from_numpy(arrays["optimiser.square"]))
    if isinstance(optimiser, Adam):
        optimiser.mean.copy_(torch.from_numpy(arrays["optimiser.mean"]))
        optimiser.steps = int(arrays["optimiser.steps"][0])
