"""Experiments that extend finished runs.

A run that was finished can go on with more steps. That is another experiment, which names the
finished runs before it (`experiment.extended`), so it has stages: one for each of them, and its
own. Everything about a stage follows from the experiment alone. Run from its first step, without
any checkpoint, an extended experiment therefore makes the same updates and the same digest as the
run that was finished and extended (hts/design/0014).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

from hts.config.records import Experiment

_DIGEST_LETTERS = 32


def stages(experiment: Experiment) -> dict[int, Experiment]:
    """Return the experiment of each stage by the updates made before it; its own is the last."""
    extended, by_update, before = experiment.extended, {}, 0
    for count, steps in enumerate([*extended.from_steps, experiment.steps]):
        earlier = extended.first(count)
        by_update[before] = dataclasses.replace(experiment, steps=steps, extended=earlier)
        before = by_update[before].updates
    return by_update


def identities(experiment: Experiment) -> dict[int, str]:
    """Return the identity of each stage by the updates made before it."""
    return {before: stage.identity() for before, stage in stages(experiment).items()}


def identity_at(identities: Mapping[int, str], update: int) -> str:
    """Return the identity of the stage that made this update."""
    return identities[max((before for before in identities if before < update), default=0)]


def ends(experiment: Experiment) -> dict[int, str]:
    """Return the digest of each finished run by its number of updates."""
    updates = [before for before in stages(experiment) if before]
    return dict(zip(updates, experiment.extended.from_digests, strict=True))


def has_schedule(experiment: Experiment) -> bool:
    """Return whether the learning rate falls, so that an extension has to say how it goes on."""
    return getattr(experiment.algo, "learning_rate_schedule", "constant") != "constant"


def falling(experiment: Experiment, updates: int) -> tuple[int, int]:
    """Return the steps at which a linear learning rate begins to fall and reaches zero, as the
    stage has it that follows so many updates."""
    begin = end = 0
    for before, stage in stages(experiment).items():
        if before > updates:
            break
        if stage.extended.horizons[-1:] == ("restart",):
            begin = before * stage.rows
        end = stage.steps
    return begin, end


def check_lineage(experiment: Experiment) -> Iterator[str]:
    """Yield a sentence for each way in which the finished runs do not fit the experiment."""
    extended = experiment.extended
    counts = {len(getattr(extended, field.name)) for field in dataclasses.fields(extended)}
    if counts == {0}:
        return
    if len(counts) > 1:
        yield (
            "experiment.extended: from_steps, from_digests and horizons need one entry each for "
            "every finished run; use the values that the manifest of the extended run has"
        )
        return
    updates = [-(-steps // experiment.rows) for steps in (*extended.from_steps, experiment.steps)]
    if any(after <= before for before, after in itertools.pairwise(updates)):
        yield (
            f"experiment.extended.from_steps: {list(extended.from_steps)} and then "
            f"experiment.steps, {experiment.steps:,}, must each add an update of "
            f"{experiment.rows:,} steps"
        )
    for digest in extended.from_digests:
        if len(digest) != _DIGEST_LETTERS or set(digest) - set("0123456789abcdef"):
            yield f"experiment.extended.from_digests: {digest!r} is not a digest"
    if any((horizon == "constant") == has_schedule(experiment) for horizon in extended.horizons):
        right = "stretch or restart" if has_schedule(experiment) else "constant"
        yield (
            "experiment.extended.horizons: must be "
            f"{right} with the learning rate schedule of this experiment"
        )
