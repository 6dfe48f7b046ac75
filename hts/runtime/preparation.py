"""Prepare a run: look at the environment, plan the experiment, choose the machine."""

from __future__ import annotations

import dataclasses
from functools import partial

from hts.config import Config, Machine, Resolved
from hts.models.fit import FOR_IMAGES, with_model
from hts.remote.port import Port
from hts.report import logs
from hts.report.say import mention, say
from hts.report.start import Start
from hts.runtime.assemble import Plan, plan, shortage
from hts.runtime.devices import device_of
from hts.runtime.layout import Layout, Measure, auto
from hts.runtime.preview import Look, Preview
from hts_envs.contract import Spaces
from hts_envs.registry import parse


def prepared(resolved: Resolved, start: Start | None) -> tuple[Resolved, Plan, Layout]:
    """Return the configuration with all that follows from the environment, the plan of the run, and
    the machine that is chosen for it."""
    config = resolved.config
    logs.check(config.machine.log or ())
    machine, spaces = dialled_in(config)
    if spaces is not None:
        return _planned(resolved, machine, Look(spaces), None, start)
    experiment = config.experiment
    with Preview(experiment.env, experiment.seed, experiment.replicas) as preview:
        return _planned(resolved, machine, preview.look(), preview.step_costs, start)


def _planned(
    resolved: Resolved,
    machine: Machine,
    look: Look,
    measure: Measure | None,
    start: Start | None,
) -> tuple[Resolved, Plan, Layout]:
    seen = with_model(resolved, look.spaces)
    experiment, device = seen.config.experiment, device_of(machine)
    if seen is not resolved:
        _mention(f"model: {experiment.model.name}, {FOR_IMAGES}")
    spec = parse(experiment.env)
    found = plan(experiment, spec, device, machine.jitter, look, start=start)
    return seen, found, auto(found, spec, machine, measure)


def dialled_in(config: Config) -> tuple[Machine, Spaces | None]:
    """Return the machine with the port that simulators connect to, and the spaces that the first
    one declares where only simulators from outside know them."""
    machine = config.machine
    if machine.listen is None:
        return machine, None
    from hts.remote.listening import fixed
    from hts.remote.meet import meet

    port = fixed(Port.checked(machine.listen, machine.keys))
    machine = dataclasses.replace(machine, listen=port.address)
    if parse(config.experiment.env).family.name != "remote":
        _mention(f"simulators dial in at {port.address}")
        return machine, None
    return machine, meet(port, _say, partial(shortage, config.experiment))


def _say(sentence: str) -> None:
    say(f"hts-train: {sentence}")


def _mention(sentence: str) -> None:
    mention(f"hts-train: {sentence}")
