"""What is measured and declared, in plain values for programs and for the screen."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from hts.soundness.profile import Profile, Times
from hts.soundness.subject import Subject
from hts_envs.contract import BatchedWorld, Discrete, MultiDiscrete, Space, Spaces


def world_facts(subject: Subject) -> dict[str, Any]:
    """What the world declares."""
    spaces = subject.spaces
    return {
        "agents": spaces.agents,
        "batched": isinstance(subject.world, BatchedWorld),
        "replicas": subject.replicas,
        "observation": {name: _space(space) for name, space in spaces.observation.items()},
        "observation_bytes": _observation_bytes(spaces),
        "action": _space(spaces.action),
        "traits": dataclasses.asdict(subject.traits),
        "description": getattr(subject.world, "description", None),
    }


def _space(space: Space) -> dict[str, Any]:
    found: dict[str, Any] = {"shape": list(space.shape), "dtype": space.dtype}
    if isinstance(space, Discrete):
        found["n"] = space.n
    elif isinstance(space, MultiDiscrete):
        found["nvec"] = list(space.nvec)
    return found


def _observation_bytes(spaces: Spaces) -> int:
    """Of one replica."""
    sizes = (
        np.dtype(space.dtype).itemsize * int(np.prod(space.shape, dtype=np.int64))
        for space in spaces.observation.values()
    )
    return spaces.agents * sum(sizes)


def profile_facts(profile: Profile, memory: float | None) -> dict[str, Any]:
    """Durations in seconds; a step of a batched world steps all of its replicas."""
    steps = profile.step_times
    return {
        "step": _times(steps),
        "reset": _times(profile.reset_times),
        "steps_per_second": profile.replicas / steps.mean if steps.mean else 0.0,
        "cores_busy": profile.cores,
        "waiting_share": profile.waiting,
        "interrupted_share": profile.interrupted,
        "reset_share": profile.reset_share,
        "episode_length_mean": profile.episode_length,
        "memory_of_replica_bytes": memory,
    }


def _times(times: Times) -> dict[str, float]:
    return {**dataclasses.asdict(times), "variance": times.variance}
