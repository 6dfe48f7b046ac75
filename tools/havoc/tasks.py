"""What is run when nothing is named: small runs of every kind, of a few seconds each."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

from hts.cli import train
from hts.config import Experiment, configure

BOTH = ("turns", "threads")


@dataclass(frozen=True)
class Task:
    """What hts-train is told, and which machines are tried."""

    name: str
    typed: tuple[str, ...]
    stepping: tuple[str, ...] = BOTH
    actors: tuple[int, ...] = (0, 1, 2)

    def experiment(self) -> Experiment:
        """What that is; WrongUsage where it is nothing."""
        typed = train.parser("chaos").parse_args(self.typed)
        return configure(typed.config, typed.set, train.flags(typed)).config.experiment


def _typed(env: str, steps: int, *sets: str) -> tuple[str, ...]:
    words = [word for value in sets for word in ("--set", value)]
    return ("--env", env, "--steps", str(steps), *words)


def usual() -> list[Task]:
    """One after the other; football where its engine is installed."""
    ppo = ("algo=ppo", "algo.epochs=2", "algo.minibatches=2")
    tasks = [
        Task(
            "CartPole, with actors",
            _typed("gym:CartPole-v1", 40_000, *ppo, "replicas=4", "rollout=32"),
            actors=(1, 2),
        ),
        Task(
            "Pendulum, recurrent, normalised",
            _typed(
                "gym:Pendulum-v1",
                20_000,
                *("algo=ppo", "algo.epochs=2", "algo.minibatches=1", "replicas=4", "rollout=32"),
                *("recurrent=lstm", "recurrent_units=16"),
                *("normalise_observations=true", "normalise_rewards=true"),
            ),
        ),
        Task(
            "sleeper in threads, long episodes",
            _typed(
                "sleeper:?mean=3&length=300",
                8_000,
                *(*ppo, "replicas=4", "rollout=8", "frame_stack=3"),
            ),
            stepping=("threads",),
        ),
        Task(
            "a batched world",
            _typed(
                "sleeper:?mean=1&length=100&batch=true", 12_000, *ppo, "replicas=6", "rollout=8"
            ),
        ),
        Task(
            "Breakout, a2c",
            _typed(
                "atari:Breakout",
                3_000,
                *("algo=a2c", "model=conv", "replicas=4", "rollout=5", "frame_stack=4"),
            ),
        ),
    ]
    if importlib.util.find_spec("gfootball_engine") is not None:
        football = (*ppo, "model=conv", "replicas=2", "rollout=32")
        tasks.append(Task("football", _typed("gfootball:3v1", 1_600, *football)))
    return tasks


def named(typed: Sequence[str]) -> list[Task]:
    """What was typed, or the usual tasks where nothing was."""
    return [Task(" ".join(typed), tuple(typed))] if typed else usual()
