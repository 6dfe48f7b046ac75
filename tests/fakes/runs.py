"""Small real runs in this process, for tests."""

from __future__ import annotations

from typing import Any

from hts.config import PPO, Experiment
from hts.report.start import Start
from hts.runtime.assemble import Updated, plan
from hts.runtime.serial import SerialRun
from hts_envs.registry import parse


def experiment(env: str = "gym:CartPole-v1", *, updates: int = 3, **changes: Any) -> Experiment:
    """Four replicas, sixteen steps, PPO with two epochs of two minibatches, and these changes."""
    values: dict[str, Any] = {"algo": PPO(epochs=2, minibatches=2), "replicas": 4, "rollout": 16}
    values |= changes
    values.setdefault("steps", values["replicas"] * values["rollout"] * updates)
    return Experiment(env=env, **values)


def serial(asked: Experiment, start: Start | None = None) -> SerialRun:
    """The serial runner of an experiment, before its first step."""
    spec = parse(asked.env)
    return SerialRun(plan(asked, spec, "cpu", start=start), spec)


def outcome(asked: Experiment, start: Start | None = None) -> list[Updated]:
    """Every update of a whole run."""
    run = serial(asked, start)
    try:
        return list(run)
    finally:
        run.close()
