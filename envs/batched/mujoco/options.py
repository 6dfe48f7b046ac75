"""The options of the batched worlds that run on MuJoCo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hts_envs.options import Range, option


@dataclass(frozen=True)
class MujocoOptions:
    """What every MuJoCo task takes; `threads` changes the speed and never the result."""

    threads: Annotated[int, Range(0)] = option(
        0, "threads that step replicas; 0: one per core", changes_result=False
    )
    max_steps: Annotated[int, Range(1)] = option(1000, "steps after which an episode is truncated")
