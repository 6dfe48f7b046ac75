"""Where the networks of each role compute."""

from __future__ import annotations

import torch

from hts.config import Machine


def device_of(machine: Machine, role: str = "actor") -> str:
    """The device of a role (`hts.config.Devices`): its own, or that of the whole machine."""
    said = getattr(machine.devices, role) or machine.device
    if said != "auto":
        return str(said)
    return "cuda" if torch.cuda.is_available() else "cpu"
