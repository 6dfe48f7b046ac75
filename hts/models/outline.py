"""What a policy's network looks like from outside, as text: two networks whose outlines are equal
can compute with each other's parameters."""

from __future__ import annotations

from collections.abc import Iterable

from hts.config import Experiment, Mlp
from hts.models.policy import Policy
from hts_envs.contract import Box, Discrete, Space


def outline(experiment: Experiment, policy: Policy, normalised: Iterable[str]) -> dict[str, str]:
    """Return what the policy sees, does and consists of, by name; `normalised` are the fields whose
    statistics belong to a version."""
    network = policy.network
    bounds = f", {experiment.bounds}" if isinstance(policy.world.action, Box) else ""
    return {
        "agents": str(policy.agents),
        **{f"field {name}": _space(space) for name, space in network.spaces.items()},
        "actions": _space(policy.world.action) + bounds,
        "normalised fields": ", ".join(sorted(normalised)) or "none",
        "networks": str(policy.parts),
        "model": experiment.model.name,
        **({"activation": model.activation} if isinstance(model := experiment.model, Mlp) else {}),
        "recurrent": experiment.recurrent,
        # By number, since a module may get another name in a later version of the product.
        **{f"tensor {n}": _shape(each.shape) for n, each in enumerate(network.parameters(), 1)},
        "parameters": str(policy.size),
    }


def _space(space: Space) -> str:
    if isinstance(space, Box):
        return f"{space.dtype} {_shape(space.shape)}"
    return f"one of {space.n}" if isinstance(space, Discrete) else f"several of {space.nvec}"


def _shape(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"
