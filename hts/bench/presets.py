"""Settings that figures are compared with: what is typed comes on top of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Preset:
    """Values as for --set, and flags that take lists as they would be typed."""

    what: str
    sets: tuple[str, ...]
    lists: Mapping[str, str] = field(default_factory=dict)
    parts: bool = False


PRESETS = {
    "football": Preset("PPO as in the HTS-RL paper, on 3v1", ("env=gfootball:3v1",)),
    "atari": Preset("A2C as in the HTS-RL paper, on Breakout", ("algo=a2c", "env=atari:Breakout")),
    "instant": Preset(
        "a world without work, small network: the machine itself",
        (
            "env=sleeper:?mean=0",
            "replicas=64",
            "rollout=32",
            "epochs=2",
            "minibatches=8",
        ),
        parts=True,
    ),
    "sleeper": Preset(
        "a world that sleeps 5 ms, exponentially: who waits for whom",
        ("env=sleeper:?mean=5", "replicas=16", "epochs=2", "minibatches=1"),
        {"rollout": "4,16,64", "schedule": "hts,hts_barrier"},
    ),
    "idle": Preset(
        "a world that sleeps a second: what waiting costs",
        (
            "env=sleeper:?mean=1000&shape=100",
            "replicas=16",
            "rollout=4",
            "epochs=1",
            "minibatches=1",
            "stepping=threads",
        ),
        {"executors": "1", "actors": "0,2"},
    ),
}
