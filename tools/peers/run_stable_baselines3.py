"""Stable-Baselines3's PPO on the sleeper world: `run_stable_baselines3.py TASK.json RESULT.json`.

Run by the interpreter of the peer's own virtual environment. A mark is a number of steps and the
time at which all of them had been collected and learnt from.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from world import SleeperEnv


class Marks(BaseCallback):
    """A rollout begins as soon as what came before has been learnt from."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[tuple[int, float]] = []

    def _on_rollout_start(self) -> None:
        self.marks.append((self.num_timesteps, time.perf_counter()))

    _on_training_end = _on_rollout_start

    def _on_step(self) -> bool:
        return True


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    replicas, rollout = task["replicas"], task["rollout"]
    torch.set_num_threads(1)
    made = [
        functools.partial(SleeperEnv, task["mean"], 1000 * task["seed"] + replica)
        for replica in range(replicas)
    ]
    waits = task["mean"] > 0
    envs = SubprocVecEnv(made, "forkserver") if waits else DummyVecEnv(made)
    algorithm = PPO(
        "MlpPolicy",
        envs,
        n_steps=rollout,
        batch_size=replicas * rollout // task["minibatches"],
        n_epochs=task["epochs"],
        seed=task["seed"],
        device="cpu",
    )
    marks = Marks()
    algorithm.learn(task["steps"], marks, log_interval=None)
    envs.close()
    told = f"stable-baselines3 {version('stable-baselines3')}, torch {version('torch')}"
    Path(sys.argv[2]).write_text(json.dumps({"version": told, "marks": marks.marks}))


if __name__ == "__main__":
    main()
