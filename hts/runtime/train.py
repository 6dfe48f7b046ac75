"""A training run from its configuration to its record on disk."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from hts.config import Config, Resolved
from hts.errors import BadConfig
from hts.report.progress import Progress
from hts.report.run_directory import RunDirectory, default_path
from hts.runtime.serial import SerialRun
from hts_envs.registry import parse

DONE, FAILED, INTERRUPTED = 0, 1, 130


def train(resolved: Resolved, run_dir: Path | None) -> int:
    """Run the experiment; returns the exit code."""
    config = resolved.config
    device = _device(config)
    _only_one_process(config)
    run = SerialRun(config.experiment, parse(config.experiment.env), device)
    try:
        record = RunDirectory(run_dir or default_path(config))
        record.manifest(resolved, device, run.strategy.why)
        _say(f"experiment {config.experiment.identity()} in {record.path}")
        _say(f"inference: {run.strategy.why}")
        return _follow(run, Progress(config.experiment), record)
    finally:
        run.close()


def _follow(run: SerialRun, progress: Progress, record: RunDirectory) -> int:
    """Update after update, until the last one, an interruption or a failure."""
    status, code, metrics = "done", DONE, {}
    try:
        for updated in run:
            metrics = progress.update(updated.told, updated.episodes)
            record.update(updated.link, metrics)
            progress.tell(metrics, updated.link.chain)
    except KeyboardInterrupt:
        status, code = "interrupted", INTERRUPTED
    except FloatingPointError as error:
        status, code = f"failed: {error}", FAILED
    progress.tell(metrics, run.digest.chain, last=True)
    record.result(progress.result(status, run.digest.chain))
    _say(f"{status}: digest {run.digest.chain}, record in {record.path}")
    return code


def _device(config: Config) -> str:
    if config.machine.device != "auto":
        return config.machine.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _only_one_process(config: Config) -> None:
    """This version trains in one process: another layout is refused, not ignored."""
    machine, problems = config.machine, []
    for name, value, allowed in (
        ("executors", machine.executors, ("auto", 1)),
        ("actors", machine.actors, ("auto", 0)),
        ("learners", machine.learners, (1,)),
        ("barrier", machine.barrier, (False,)),
    ):
        if value not in allowed:
            problems.append(
                f"machine.{name}: this version trains in one process, so {name} can only be "
                f"{' or '.join(str(choice).lower() for choice in allowed)}, got {value}"
            )
    if problems:
        raise BadConfig(problems)


def _say(sentence: str) -> None:
    print(f"hts-train: {sentence}", file=sys.stderr, flush=True)
