"""What a command line asks for: which ready configuration it starts from, and what it changes.

Without `--config`, the run starts from the ready configuration made for this environment and
algorithm, or else from the one for the environment's family (`ppo-gfootball`, `a2c-atari`, ...),
or else from the plain defaults. So `--algo ppo --env gfootball:3v1` is the paper's experiment.
"""

from __future__ import annotations

from collections.abc import Sequence

from hts.config.records import Experiment
from hts.config.resolve import Resolved, resolve, values_of
from hts.config.sources import Given, from_sets, read_config, ready_configs
from hts_envs.errors import WorldError
from hts_envs.registry import Spec, parse


def configure(
    config: str | None = None, sets: Sequence[str] = (), flags: Sequence[Given] = ()
) -> Resolved:
    """The configuration for `--config`, `--set` and the named flags of a command line."""
    typed = [*from_sets(sets), *flags]
    if config is None:
        config = _starting_point(typed)
    return resolve([*(read_config(config) if config else []), typed])


def _starting_point(typed: Sequence[Given]) -> str | None:
    """The ready configuration for what was typed, if there is one."""
    algo = (values_of(typed, "experiment.algo.name") or ["ppo"])[-1]
    env = (values_of(typed, "experiment.env") or [Experiment.env])[-1]
    try:
        spec = parse(env)
    except WorldError:
        return None  # resolving says what is wrong with the name
    for name in ready_configs():
        if name.startswith(f"{algo}-") and _is_for(name, spec):
            return name
    general = f"{algo}-{spec.family.name}"
    return general if general in ready_configs() else None


def _is_for(name: str, spec: Spec) -> bool:
    """Is this ready configuration made for this very environment?"""
    given = [item for layer in read_config(name) for item in layer]
    envs = values_of(given, "experiment.env")
    if not envs:
        return False
    made_for = parse(envs[-1])
    return (made_for.family.name, made_for.name) == (spec.family.name, spec.name)
