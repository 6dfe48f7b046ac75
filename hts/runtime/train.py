"""A training run from its configuration to its record on disk."""

from __future__ import annotations

import dataclasses
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from hts.config import Experiment, Machine, Resolved
from hts.errors import RoleFailed, WrongUsage
from hts.report.progress import Progress
from hts.report.run_directory import RunDirectory, default_path
from hts.runtime.assemble import Plan, plan
from hts.runtime.layout import auto
from hts.runtime.parallel import ParallelRun
from hts.runtime.serial import SerialRun
from hts_envs.registry import Spec, parse

DONE, FAILED, INTERRUPTED = 0, 1, 130


def train(resolved: Resolved, run_dir: Path | None) -> int:
    """Run the experiment; returns the exit code."""
    config = resolved.config
    if run_dir is not None and run_dir.exists():
        raise WrongUsage(f"--run-dir {run_dir}: it exists already; name a new one")
    spec, device = parse(config.experiment.env), device_of(config.machine)
    found = plan(config.experiment, spec, device, config.machine.jitter)
    layout = auto(found, spec, config.machine)
    record = RunDirectory(run_dir or default_path(config))
    chosen = dataclasses.replace(config, machine=layout.machine)
    record.manifest(dataclasses.replace(resolved, config=chosen), device)
    _say(f"experiment {config.experiment.identity()} in {record.path}")
    _say(f"schedule: {_schedule(config.experiment)}")
    _say(f"machine: {layout.why}")
    progress = Progress(config.experiment)
    code, status, digest = DONE, "done", found.digest().chain
    run: SerialRun | ParallelRun | None = None
    try:
        run = make_run(found, spec, layout.machine)
        _say(f"inference: {run.strategy.why}")
        _follow(run, progress, record)
    except KeyboardInterrupt:
        code, status = INTERRUPTED, "interrupted"
    except Exception as error:
        code, status = FAILED, f"failed: {_in_short(error)}"
        record.failure(str(error) if isinstance(error, RoleFailed) else traceback.format_exc())
    finally:
        how: dict[str, Any] = {}
        if run is not None:
            digest = run.chain
            run.close()
            how = {
                "inference": run.strategy.why,
                "time": run.time_budget(),
                "replaced": run.replaced,
            }
            _say(f"time: {run.time_budget()}")
        record.result({**progress.result(status, digest), **how})
    _say(f"{status}: digest {digest}, record in {record.path}")
    return code


def _follow(run: SerialRun | ParallelRun, progress: Progress, record: RunDirectory) -> None:
    """Update after update, until the last one."""
    progress.start()
    metrics: dict[str, float] = {}
    try:
        for updated in run:
            metrics = progress.update(updated.told, updated.episodes)
            record.update(updated.link, metrics, updated.replicas)
            progress.tell(metrics, updated.link.chain)
    finally:
        if metrics:
            progress.tell(metrics, run.chain, last=True)


def _schedule(experiment: Experiment) -> str:
    """Which versions an update reads, in words."""
    if experiment.schedule == "sync":
        return "sync, lag 0: collect and learn in turn"
    return f"hts, lag 1: collect and learn at once, correction {experiment.correction}"


def _in_short(error: Exception) -> str:
    """One line: what went wrong; the record of the run holds the rest."""
    if isinstance(error, RoleFailed):
        return f"{error.short} (more in failure.txt)"
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    return f"{first} (more in failure.txt)"


def device_of(machine: Machine) -> str:
    """Where networks compute."""
    if machine.device != "auto":
        return machine.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def make_run(found: Plan, spec: Spec, machine: Machine) -> SerialRun | ParallelRun:
    """The run of this plan on this machine."""
    if machine.serial:
        return SerialRun(found, spec)
    return ParallelRun(found, machine)


def _say(sentence: str) -> None:
    print(f"hts-train: {sentence}", file=sys.stderr, flush=True)
