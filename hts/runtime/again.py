"""Two runs again, up to the update at which they part, to see what exactly differs there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hts.config import Experiment, Machine
from hts.determinism.digest import Link
from hts.determinism.divergence import (
    Keep,
    first_divergence,
    first_parameter,
    load,
    load_parameters,
)
from hts.report.start import Start
from hts.runtime.assemble import Updated, plan
from hts.runtime.devices import device_of
from hts.runtime.disturb import Disturbed, Run, Trouble, disturbed
from hts.runtime.preview import Look, look_once
from hts.runtime.standing import Standing
from hts.runtime.train import make_run
from hts.scratch import scratch
from hts_envs.contract import Spaces
from hts_envs.registry import parse

_ATTEMPTS = 3


@dataclass(frozen=True)
class Setting:
    """An experiment, the machine that it runs on, and what happens to it there.

    `spaces` are known beforehand where nobody here can build a simulator; `start` are weights of
    another run, where it begins with those.
    """

    experiment: Experiment
    machine: Machine
    trouble: Trouble = Trouble()
    spaces: Spaces | None = None
    start: Start | None = None


@dataclass(frozen=True)
class Again:
    """Both runs, run again: the last link of each, and where they part if they did."""

    ours: Link
    theirs: Link
    where: str | None


def updates(setting: Setting, count: int, keep: Keep | None = None) -> list[Updated]:
    """The first updates of this run; what it goes on to do is not waited for."""
    return played(setting, count, keep).updates


def played(setting: Setting, count: int, keep: Keep | None = None) -> Disturbed:
    """The same, with what the run went through."""
    machine = setting.machine
    spec, device = parse(setting.experiment.env), device_of(machine)
    found = plan(
        setting.experiment, spec, device, machine.jitter, _look(setting), start=setting.start
    )
    found = dataclasses.replace(found, keep=keep)

    def start(here: Machine, begin: Standing | None) -> Run:
        return make_run(found, here, begin)

    return disturbed(start, machine, count, setting.trouble)


def _look(setting: Setting) -> Look:
    if setting.spaces is not None:
        return Look(setting.spaces)
    return look_once(setting.experiment.env, setting.experiment.seed)


def again(ours: Setting, theirs: Setting, update: int) -> Again:
    """Run both up to this update; where they part earlier this time, up to there once more."""
    for _ in range(_ATTEMPTS):
        with scratch() as folder:
            paths = [str(Path(folder, name)) for name in ("ours", "theirs")]
            here, there = (
                [updated.link for updated in updates(setting, update, Keep(update - 1, path))]
                for setting, path in zip((ours, theirs), paths, strict=True)
            )
            parted = first_difference(here, there)
            if parted is None:
                return Again(here[-1], there[-1], None)
            if parted == update:
                same = here[-1].rollout == there[-1].rollout
                where = _in_parameters(ours, paths) if same else _in_rollouts(paths)
                return Again(here[-1], there[-1], f"update {update}, {where}")
            update = parted
    return Again(here[-1], there[-1], f"update {update}; where they part changes with every run")


def first_difference(ours: Sequence[Link], theirs: Sequence[Link]) -> int | None:
    """The first update whose rollout or parameters differ."""
    for here, there in zip(ours, theirs, strict=False):
        if (here.rollout, here.parameters) != (there.rollout, there.parameters):
            return here.update
    return None


def _in_rollouts(paths: Sequence[str]) -> str:
    ours, theirs = (load(path) for path in paths)
    if ours.form != theirs.form:
        return "whose rollouts hold different arrays: other spaces or sizes"
    found = first_divergence(ours, theirs)
    assert found is not None, "rollouts with two hashes differ somewhere"
    return str(found)


def _in_parameters(setting: Setting, paths: Sequence[str]) -> str:
    ours, theirs = (load_parameters(path) for path in paths)
    if ours.shape != theirs.shape:
        return f"{len(ours):,} and {len(theirs):,} parameters: two networks"
    found = first_parameter(ours, theirs)
    assert found is not None, "parameters with two hashes differ somewhere"
    return (
        f"parameter {found.index:,}, {_name(setting, found.index)}: {found.values}; the rollouts "
        f"are equal, {found.count:,} of the {len(ours):,} parameters made of them are not"
    )


def _name(setting: Setting, index: int) -> str:
    """The layer that a parameter belongs to, and its place there."""
    experiment = setting.experiment
    device, look = device_of(setting.machine), _look(setting)
    policy = plan(experiment, parse(experiment.env), device, look=look).policy()
    for name, parameter in policy.network.named_parameters():
        if index < parameter.numel():
            at = np.unravel_index(index, tuple(parameter.shape))
            return f"{name}[{', '.join(map(str, at))}]"
        index -= parameter.numel()
    raise IndexError("an index behind the last parameter")
