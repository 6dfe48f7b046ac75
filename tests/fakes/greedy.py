"""A simulator that is made of torch, and arranges it for itself."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch


def make() -> gymnasium.Env[Any, Any]:
    """CartPole, and torch as it should not be left."""
    torch.set_num_threads(3)
    torch.set_deterministic_debug_mode("default")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    return gymnasium.make("CartPole-v1")
