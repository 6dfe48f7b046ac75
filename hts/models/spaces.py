"""What the network sees: the world's spaces with frames stacked, images told from vectors."""

from __future__ import annotations

import math

from hts.config import PQL, Experiment
from hts_envs import images
from hts_envs.contract import Box, Discrete, MultiDiscrete, Space, Spaces


def stacked(spaces: Spaces, frames: int) -> dict[str, Space]:
    """The spaces of what the network sees when `frames` frames are stacked on the last axis."""
    return {name: _stack(space, frames) for name, space in spaces.observation.items()}


def is_image(space: Space) -> bool:
    """Three axes of bytes: height, width, channels."""
    return isinstance(space, Box) and images.is_image(space.shape, space.dtype)


def vector_width(space: Space) -> int:
    """How many numbers a field is as a vector: as many as it has, choices one-hot."""
    if isinstance(space, Box):
        return math.prod(space.shape)
    return space.n if isinstance(space, Discrete) else sum(space.nvec)


def critic_fields(experiment: Experiment, spaces: Spaces) -> dict[str, Space]:
    """The fields that critics see: those that are named, or all that are vectors."""
    algo = experiment.algo
    assert isinstance(algo, PQL), "critics are for what is learnt from a replay"
    there = stacked(spaces, experiment.frame_stack)
    if algo.critic_sees is None:
        return {name: space for name, space in there.items() if not is_image(space)}
    return {name: space for name, space in there.items() if name in algo.critic_sees}


def policy_fields(experiment: Experiment, spaces: Spaces) -> dict[str, Space]:
    """The fields that the policy sees."""
    algo, there = experiment.algo, stacked(spaces, experiment.frame_stack)
    if not isinstance(algo, PQL) or algo.policy_sees is None:
        return there
    return {name: space for name, space in there.items() if name in algo.policy_sees}


def _stack(space: Space, frames: int) -> Space:
    if frames == 1:
        return space
    if isinstance(space, Box):
        shape = space.shape or (1,)
        return Box((*shape[:-1], shape[-1] * frames), space.dtype)
    if isinstance(space, Discrete):
        return MultiDiscrete((space.n,) * frames)
    return MultiDiscrete(space.nvec * frames)
