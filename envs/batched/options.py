"""The options of the batched worlds that run on torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hts_envs.options import option


@dataclass(frozen=True)
class TorchOptions:
    """What every simulator on torch takes."""

    device: str = option(
        "cpu", "where the simulator computes: cpu, cuda or cuda:N", changes_result=False
    )


@dataclass(frozen=True)
class BallOptions(TorchOptions):
    """A ball on a tilting plate."""

    observation: Literal["state", "pixels", "both"] = option(
        "state", "ten numbers, a rendered 48x48 RGB frame, or both"
    )
