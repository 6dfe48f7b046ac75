"""Stable-Baselines3's SAC or TD3 on a Gymnasium task: `run_sac_td3.py TASK.json RESULT.json`.

Run by the interpreter of the peer's own virtual environment. Its clock stands still while a policy
is judged, which is done between two steps, when what came before has been learnt from. Everything
that the task does not name is Stable-Baselines3's default.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from curves import Point, next_due
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

ALGORITHMS = {"sac": SAC, "td3": TD3}
ENDLESS = 10**9  # steps; the clock ends it


class Judge(BaseCallback):
    """Plays the same episodes with every policy that is judged, and ends training in time."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__()
        self.curve: list[Point] = []
        self._task = task
        self._world = gymnasium.make(task["environment"])
        self._due = min(task["every"], task["seconds"])
        self._over = False
        self._begun = 0.0

    def _on_training_start(self) -> None:
        self._begun = time.perf_counter()

    def _on_rollout_start(self) -> None:
        now = time.perf_counter()
        seconds = now - self._begun
        if seconds < self._due or self._over:
            return
        value = float(np.mean([self._play(seed) for seed in self._task["episodes"]]))
        self.curve.append(Point(self.num_timesteps, seconds, value))
        target, limit = self._task["target"], self._task["seconds"]
        self._over = seconds >= limit or (target is not None and value >= target)
        self._due = min(next_due(seconds, self._task["every"]), limit)
        self._begun += time.perf_counter() - now

    def _on_step(self) -> bool:
        return not self._over

    def _play(self, seed: int) -> float:
        """The return of the episode that begins with this seed, without exploration."""
        seen, _ = self._world.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            action, _ = self.model.predict(seen, deterministic=True)
            seen, reward, terminated, truncated, _ = self._world.step(action)
            total += float(reward)
            ended = terminated or truncated
        return total


def algorithm(task: dict[str, Any], world: gymnasium.Env[Any, Any]) -> OffPolicyAlgorithm:
    """Who learns; the noise is TD3's, which has none by default, while SAC's policy is random."""
    chosen: dict[str, Any] = {
        "learning_starts": task["learning_starts"],
        "policy_kwargs": {"net_arch": {"pi": task["hidden"], "qf": task["critic_hidden"]}},
    }
    if task["algorithm"] == "td3" and task["noise"]:
        mean = np.zeros(world.action_space.shape or ())
        chosen["action_noise"] = NormalActionNoise(mean, np.full_like(mean, task["noise"]))
    made = ALGORITHMS[task["algorithm"]]
    return made("MlpPolicy", world, seed=task["seed"], device="cpu", **chosen)


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    judge = Judge(task)
    algorithm(task, gymnasium.make(task["environment"])).learn(ENDLESS, judge, log_interval=None)
    told = f"stable-baselines3 {version('stable-baselines3')}, torch {version('torch')}"
    Path(sys.argv[2]).write_text(json.dumps({"version": told, "curve": judge.curve}))


if __name__ == "__main__":
    main()
