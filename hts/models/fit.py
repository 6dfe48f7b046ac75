"""Does a model fit the spaces of a world? Told with what would fit, before anything is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from hts.config import PQL, Conv, Experiment, Impala, Mlp, Resolved
from hts.config.check import check
from hts.errors import BadConfig
from hts.models.spaces import critic_fields, is_image, policy_fields, stacked
from hts_envs.contract import Box, Space, Spaces
from hts_envs.images import channel_axis

_SMALLEST = 36  # what three convolutions of 8x8/4, 4x4/2 and 3x3/1 leave one pixel of


def misfits(experiment: Experiment, spaces: Spaces) -> list[str]:
    """Sentences that say why this model cannot see or act in this world; empty when it can."""
    taught = _taught(experiment, spaces)
    if taught:
        return taught
    unseen = _channels(experiment, spaces) or _unseen(experiment, spaces)
    return [*unseen, *_unbounded(experiment, spaces.action)]


def with_model(resolved: Resolved, spaces: Spaces) -> Resolved:
    """Return the configuration with a model that sees the environment's image, if it shows one.

    Only where no source named a model: it is the convolutional net, or the residual one where the
    image is too small for that. Both see vectors beside the image.
    """
    config = resolved.config
    seen = policy_fields(config.experiment, spaces)
    shapes = [space.shape for space in seen.values() if is_image(space)]
    if names_model(resolved) or len(shapes) != 1 or _channels(config.experiment, spaces):
        return resolved
    height, width, _ = shapes[0]
    model: Conv | Impala = Conv() if min(height, width) >= _SMALLEST else Impala()
    experiment = dataclasses.replace(config.experiment, model=model)
    config = dataclasses.replace(config, experiment=experiment)
    problems = check(config)
    if problems:
        raise BadConfig(problems)
    return Resolved(config, {**resolved.origins, "experiment.model.name": FOR_IMAGES})


def names_model(resolved: Resolved) -> bool:
    """Did any source say which model, or what it is like?"""
    return any(path.startswith("experiment.model.") for path in resolved.origins)


FOR_IMAGES = "chosen, since the environment shows an image and no model was named"


def _channels(experiment: Experiment, spaces: Spaces) -> list[str]:
    """Why images cannot be taken as they are: it is not known which axis is which."""
    return [
        f"experiment.env: {experiment.env} shows {name} with the shape {space.shape}, which must "
        "be (height, width, channels): return np.moveaxis(image, 0, -1) if its channels are first"
        for name, space in spaces.observation.items()
        if is_image(space) and channel_axis(space.shape) != "last"
    ]


def _unbounded(experiment: Experiment, action: Space) -> list[str]:
    """Why actions cannot be squashed, if they shall be."""
    if experiment.bounds == "clipped":
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
    lie = f"the actions of {experiment.env} lie between {action.low} and {action.high}"
    needs = "needs a finite low and a finite high above it everywhere"
    if not experiment.squash:
        return [f"experiment.algo: {lie}, and pql {needs}; use ppo, which clips them"]
    return [
        f"experiment.squash: {lie}, and squashing {needs}; leave it out, and actions are clipped"
    ]


def _unseen(experiment: Experiment, spaces: Spaces) -> list[str]:
    seen = policy_fields(experiment, spaces)
    images = {name: space.shape for name, space in seen.items() if is_image(space)}
    listed = ", ".join(f"{name} {shape}" for name, shape in images.items())
    model = experiment.model
    if isinstance(model, Mlp):
        if len(images) > 1:
            return [
                f"experiment.model: {experiment.env} shows several images ({listed}), and every "
                "model sees one at most; choose another representation, or join their channels"
            ]
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


def _taught(experiment: Experiment, spaces: Spaces) -> list[str]:
    """Why critics cannot teach a policy in this world, if they shall."""
    algo = experiment.algo
    if not isinstance(algo, PQL):
        return []
    if spaces.agents > 1:
        return [f"experiment.algo: pql is for one agent, and {experiment.env} has {spaces.agents}"]
    if not isinstance(spaces.action, Box):
        return [
            f"experiment.algo: the actions of {experiment.env} are choices ({spaces.action}), and "
            "pql learns continuous ones; use ppo or a2c"
        ]
    there = stacked(spaces, experiment.frame_stack)
    return [
        *_unnamed("policy_sees", algo.policy_sees, there),
        *_unnamed("critic_sees", algo.critic_sees, there),
        *_no_vectors(experiment, spaces),
    ]


def _unnamed(option: str, named: tuple[str, ...] | None, there: Mapping[str, Space]) -> list[str]:
    return [
        f"experiment.algo.{option}: the environment has no field {name!r}; "
        f"it has: {', '.join(there)}"
        for name in named or ()
        if name not in there
    ]


def _no_vectors(experiment: Experiment, spaces: Spaces) -> list[str]:
    seen = critic_fields(experiment, spaces)
    images = ", ".join(name for name, space in seen.items() if is_image(space))
    if images or not seen:
        shown = f"{images} is an image" if images else f"{experiment.env} shows images only"
        return [
            f"experiment.algo.critic_sees: critics see vectors, and {shown}; name fields that are "
            "vectors, or choose another observation of this world"
        ]
    return []
