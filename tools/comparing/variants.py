"""The experiments that two versions are compared on: ready configurations, shortened, and more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hts.config import Experiment, configure, ready_configs
from hts.errors import BadConfig

UPDATES = 4
LEAST = {
    "replicas": 8,
    "rollout": 16,
    "algo.batch": 64,
    "algo.warm_up": 4,
}
"""Sizes that are cut down to these, so that a run takes a second or two."""

MORE = {
    # Paths that no ready configuration takes.
    "smoke": (
        "recurrent=lstm recurrent_units=32",
        "recurrent=gru recurrent_units=33",  # rows have fixed places
        "recurrent=gru recurrent_units=16 sequence=8 minibatches=1",
        "correction=ratio",
        "correction=truncated_is",
        "correction=none",
        "schedule=sync",
        "shards=2 model.shared=true",
        "normalise_observations=true normalise_rewards=true optimiser=rmsprop",
    ),
    "ppo-gfootball": ("env=gfootball:3v1?agents=3 policies=separate",),
    "a2c-atari": ("correction=truncated_is",),
    "pql-pendulum": (
        "policy=sac",
        "critic=categorical",
        "smoothing=0.2 n_step=1 schedule=sync",
        "optimiser=rmsprop frame_stack=2",
    ),
}


@dataclass(frozen=True)
class Variant:
    """A configuration with changed values, as `hts-train` takes them."""

    config: str
    changes: tuple[str, ...]
    sizes: tuple[str, ...]

    @property
    def name(self) -> str:
        return " ".join((self.config, *self.changes))

    @property
    def arguments(self) -> list[str]:
        """Return the words of the command line."""
        words = ["--config", self.config]
        for each in (*self.changes, *self.sizes):
            words += ["--set", each]
        return words


def variants(names: Sequence[str]) -> list[Variant]:
    """Return the variants of these configurations, or of all; ValueError names an unknown one."""
    known = list(ready_configs())
    for name in names:
        if name not in known:
            raise ValueError(f"{name}: no such configuration; there are {', '.join(known)}")
    return [each for name in names or known for each in _of(name, named=bool(names))]


def _of(name: str, *, named: bool) -> Iterator[Variant]:
    """Yield a configuration and its further variants; skip one that cannot run by itself."""
    for changes in ((), *(tuple(each.split()) for each in MORE.get(name, ()))):
        try:
            yield Variant(name, changes, _sizes(name, changes))
        except BadConfig as error:
            if named or changes:
                raise ValueError(f"{name}: {error}") from None


def _sizes(name: str, changes: Sequence[str]) -> tuple[str, ...]:
    """Return the values that shorten this experiment to a few updates."""
    experiment = configure(name, list(changes), []).config.experiment
    cut = {
        path: min(least, size) for path, least in LEAST.items() if (size := _size(experiment, path))
    }
    rows = cut["replicas"] * cut["rollout"]
    if _size(experiment, "algo.replay"):
        cut["algo.replay"] = UPDATES * rows
    unlearnt = -(-cut.get("algo.warm_up", 0) // cut["rollout"])
    cut["steps"] = (UPDATES + unlearnt) * rows
    return tuple(f"experiment.{path}={value}" for path, value in cut.items())


def _size(experiment: Experiment, path: str) -> int | None:
    """Return a field's value; None where this algorithm has no such field."""
    value: object = experiment
    for part in path.split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, int) else None
