"""Sample Factory's asynchronous PPO on the sleeper world: `run_sample_factory.py TASK RESULT`.

Run by the interpreter of the peer's own virtual environment. A mark is a number of steps and the
time at which the learner reported that it had learnt from all of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sample_factory.algo.utils.misc import LEARNER_ENV_STEPS
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from world import SleeperEnv


def arguments(task: dict[str, Any], folder: str) -> list[str]:
    """The task in Sample Factory's words; what it has no word for stays at its default.

    Of its layouts the fastest for such a world: asleep, a process for each replica; instant, one
    for each core that steps all of its replicas in one batch.
    """
    replicas, rollout, waits = task["replicas"], task["rollout"], task["mean"] > 0
    cores = next(n for n in range(task["cores"], 0, -1) if replicas % n == 0)
    workers = replicas if waits else cores
    chosen = {
        "algo": "APPO",
        "env": "sleeper",
        "train_dir": folder,
        "experiment": "bench",
        "device": "cpu",
        "seed": task["seed"],
        "train_for_env_steps": task["steps"],
        "async_rl": True,
        "num_workers": workers,
        "num_envs_per_worker": replicas // workers,
        "worker_num_splits": 1,
        "batched_sampling": not waits,
        "rollout": rollout,
        "batch_size": replicas * rollout // task["minibatches"],
        "num_batches_per_epoch": task["minibatches"],
        "num_epochs": task["epochs"],
        "use_rnn": False,
        "nonlinearity": "tanh",
        "actor_critic_share_weights": False,
        "normalize_input": False,
        "normalize_returns": False,
        "learning_rate": 3e-4,
        "ppo_clip_ratio": 0.2,
        "max_grad_norm": 0.5,
        "exploration_loss_coeff": 0.0,
        "save_best_after": 10**12,
    }
    return [
        *(f"--{name}={value}" for name, value in chosen.items()),
        *("--encoder_mlp_layers", "64", "64"),
    ]


def make_env(_name: str, _cfg: Any, env_config: Any, _render_mode: str | None) -> SleeperEnv:
    task = json.loads(Path(sys.argv[1]).read_text())
    replica = env_config.env_id if env_config else 0
    return SleeperEnv(task["mean"], 1000 * task["seed"] + replica)


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    register_env("sleeper", make_env)
    marks = []

    def learnt(_runner: Any, message: dict[str, Any], _policy: int) -> None:
        marks.append((message[LEARNER_ENV_STEPS], time.perf_counter()))

    with tempfile.TemporaryDirectory() as folder:
        argv = arguments(task, folder)
        parser, _ = parse_sf_args(argv)
        _, runner = make_runner(parse_full_cfg(parser, argv))
        runner.policy_msg_handlers[LEARNER_ENV_STEPS].append(learnt)
        runner.init()
        runner.run()
    told = f"sample-factory {version('sample-factory')}, torch {version('torch')}"
    Path(sys.argv[2]).write_text(json.dumps({"version": told, "marks": marks}))


if __name__ == "__main__":
    main()
