"""What a command line asks for: which ready configuration it starts from, and what it changes.

Without `--config`, the run starts from the ready configuration that declares itself for this
environment and algorithm (`hts.config.ready`), or else from the plain defaults. So `--algo ppo
--env gfootball:3v1` is the paper's experiment. The environment has no default that is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hts.config.ready import example, listing, select
from hts.config.records import Experiment
from hts.config.resolve import Resolved, resolve, values_of
from hts.config.sources import Given, from_sets, read_config, ready_configs
from hts.errors import BadConfig
from hts_envs.errors import WorldError
from hts_envs.registry import parse
from hts_envs.spelling import hint

_ALGO, _ENV = "experiment.algo.name", "experiment.env"


def configure(
    config: str | None = None, sets: Sequence[str] = (), flags: Sequence[Given] = ()
) -> Resolved:
    """The configuration for `--config`, `--set` and the named flags of a command line."""
    typed = [*from_sets(sets), *flags]
    if config is not None:
        _require_there(config)
    start = _starting_point(typed) if config is None else config
    layers = [*(read_config(start) if start else []), typed]
    if not any(values_of(layer, _ENV) for layer in layers):
        raise BadConfig([_without_environment(config, layers)])
    return resolve(layers)


def _require_there(config: str) -> None:
    names = ready_configs()
    if config in names or Path(config).exists():
        return
    near = hint(config, names) or f"; {listing()}"
    raise BadConfig([f"--config {config}: there is no such file or ready configuration{near}"])


def _starting_point(typed: Sequence[Given]) -> str | None:
    """Return the name of the ready configuration for what was typed, if there is one."""
    environments = values_of(typed, _ENV)
    try:
        return select(_algo(typed), parse(environments[-1])) if environments else None
    except WorldError:
        return None  # resolving says what is wrong with the name


def _algo(given: Sequence[Given]) -> str:
    return (values_of(given, _ALGO) or [Experiment().algo.name])[-1]


def _without_environment(config: str | None, layers: Sequence[Sequence[Given]]) -> str:
    given = [each for layer in layers for each in layer]
    algo = _algo(given)
    add = f"add --env {example(config, algo)}"
    if config is not None:
        return f"--config {config} names no environment; {add}"
    if values_of(given, _ALGO):
        return f"--algo {algo} names no environment; {add}"
    return f"no environment is named; {add}, or start from --config NAME (--help lists them)"
