"""Ready configurations: what each file declares, and which one a command line selects.

A ready configuration is selected for the environment that it names, with the options that it
names. Of several that fit, the one that names the most options is taken. The key `selected_for`
at the top of a file changes this: `FAMILY:*` selects the file for every environment of a family
that has no file of its own, and `none` leaves the file to `--config NAME`. A file without an
environment is a base: other files are based on it, or `--env` names the environment.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl

from hts.config.records import Experiment
from hts.config.sources import header, read_config, ready_configs
from hts_envs.registry import Spec, family, parse

ONLY_BY_NAME = "none"


@dataclass(frozen=True)
class Ready:
    """A ready configuration, as its file and the bases of that file declare it."""

    name: str
    algo: str
    env: str | None
    steps: float
    base: str | None
    selected_for: str | None

    def fit(self, spec: Spec) -> int | None:
        """Return how closely this file fits an environment; None where it is not meant for it.

        0: meant for the whole family. n + 1: meant for this environment with n options.
        """
        if self.selected_for is not None:
            return 0 if self.selected_for == f"{spec.family.name}:*" else None
        head, _, query = (self.env or "").partition("?")
        prefix, _, name = head.partition(":")
        if prefix != spec.family.name or spec.family.resolve(name) != spec.name:
            return None
        declared, options = parse(f"{head}?{query}").options, [key for key, _ in parse_qsl(query)]
        if any(getattr(declared, key) != getattr(spec.options, key) for key in options):
            return None
        return len(options) + 1


@functools.cache
def ready() -> tuple[Ready, ...]:
    """Return what every ready configuration declares, in the order of their names."""
    return tuple(map(_declared, ready_configs()))


def _declared(name: str) -> Ready:
    values = {given.path: given.value for layer in read_config(name) for given in layer}
    notes = header(name)
    return Ready(
        name,
        algo=values.get("experiment.algo.name", Experiment().algo.name),
        env=values.get("experiment.env"),
        steps=float(values.get("experiment.steps", Experiment().steps)),
        base=notes.get("base"),
        selected_for=notes.get("selected_for"),
    )


def select(algo: str, spec: Spec) -> str | None:
    """Return the name of the ready configuration for this algorithm and environment, if any."""
    fits = {each.name: each.fit(spec) for each in ready() if each.algo == algo}
    fitting = {name: fit for name, fit in fits.items() if fit is not None}
    return max(fitting, key=lambda name: fitting[name], default=None)


def example(config: str | None, algo: str) -> str:
    """Return an environment that would complete a configuration, or go with an algorithm."""
    return next(iter([*_completing(config), *_quickest(algo)]), Experiment.env)


def _completing(config: str | None) -> Iterator[str]:
    """Yield the environments of files based on a base, then one of the family that it is for."""
    for each in ready():
        if config is not None and each.base == config and each.env is not None:
            yield each.env
    for each in ready():
        if each.name == config and each.selected_for not in (None, ONLY_BY_NAME):
            prefix = str(each.selected_for).partition(":")[0]
            yield f"{prefix}:{family(prefix).names()[0]}"


def _quickest(algo: str) -> list[str]:
    """Return the environments of an algorithm's ready configurations, the shortest run first."""
    own = [each for each in ready() if each.algo == algo and each.selected_for != ONLY_BY_NAME]
    return [each.env for each in sorted(own, key=lambda each: each.steps) if each.env is not None]


def listing() -> str:
    """Return the names of all ready configurations, those without an environment apart."""
    whole = ", ".join(each.name for each in ready() if each.env is not None)
    bases = ", ".join(each.name for each in ready() if each.env is None)
    return f"ready: {whole}; bases, which need --env: {bases}"
