"""A simulator that changes settings of its whole process, as if it were alone there."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch


class Careless(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Another world, which lowers torch's precision and has the processor flush denormals."""

    def reset(self, **given: Any) -> Any:
        torch.set_float32_matmul_precision("medium")
        return self.env.reset(**given)

    def step(self, action: Any) -> Any:
        torch.set_flush_denormal(True)
        return self.env.step(action)


def make() -> gymnasium.Env[Any, Any]:
    """CartPole."""
    return Careless(gymnasium.make("CartPole-v1"))
