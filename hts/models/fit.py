"""Does a model fit the spaces of a world? Told with what would fit, before anything is built."""

from __future__ import annotations

import numpy as np

from hts.config import Conv, Experiment, Mlp
from hts.models.spaces import is_image, stacked
from hts_envs.contract import Box, Space, Spaces

_SMALLEST = 36  # what three convolutions of 8x8/4, 4x4/2 and 3x3/1 leave one pixel of


def misfits(experiment: Experiment, spaces: Spaces) -> list[str]:
    """Sentences that say why this model cannot see or act in this world; empty when it can."""
    return [*_unseen(experiment, spaces), *_unbounded(experiment, spaces.action)]


def _unbounded(experiment: Experiment, action: Space) -> list[str]:
    """Why actions cannot be squashed, if they shall be."""
    if not experiment.squash:
        return []
    if not isinstance(action, Box):
        return [
            f"experiment.squash: the actions of {experiment.env} are choices ({action}), and only "
            "continuous ones have bounds to be squashed into; leave it out"
        ]
    low, high = np.asarray(action.low, np.float64), np.asarray(action.high, np.float64)
    finite = np.isfinite(low).all() and np.isfinite(high).all()
    if finite and np.all(low < high) and np.all(high - low < np.finfo(np.float32).max):
        return []
    return [
        f"experiment.squash: the actions of {experiment.env} lie between {action.low} and "
        f"{action.high}, and squashing needs a finite low and a finite high above it everywhere; "
        "leave it out, and actions are clipped"
    ]


def _unseen(experiment: Experiment, spaces: Spaces) -> list[str]:
    seen = stacked(spaces, experiment.frame_stack)
    images = {name: space.shape for name, space in seen.items() if is_image(space)}
    listed = ", ".join(f"{name} {shape}" for name, shape in images.items())
    model = experiment.model
    if isinstance(model, Mlp):
        if images:
            return [
                f"experiment.model: {experiment.env} shows images ({listed}), and an mlp sees "
                "vectors only; use --set model=conv or --set model=impala"
            ]
        return []
    if len(images) != 1:
        found = f"several images ({listed})" if images else "no image (height, width, channels)"
        return [
            f"experiment.model: {model.name} sees one image, and {experiment.env} shows {found}; "
            + ("choose another representation" if images else "use --set model=mlp")
        ]
    height, width, _ = next(iter(images.values()))
    if isinstance(model, Conv) and min(height, width) < _SMALLEST:
        return [
            f"experiment.model: conv needs images of at least {_SMALLEST}x{_SMALLEST}, and "
            f"{experiment.env} shows {height}x{width}; use --set model=impala"
        ]
    return []
