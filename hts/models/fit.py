"""Does a model fit the spaces of a world? Told with what would fit, before anything is built."""

from __future__ import annotations

from hts.config import Conv, Experiment, Mlp
from hts.models.spaces import is_image, stacked
from hts_envs.contract import Spaces

_SMALLEST = 36  # what three convolutions of 8x8/4, 4x4/2 and 3x3/1 leave one pixel of


def misfits(experiment: Experiment, spaces: Spaces) -> list[str]:
    """Sentences that say why this model cannot see this world; empty when it can."""
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
