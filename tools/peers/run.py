"""One contender, once: started as a process of its own, watched, and its marks read.

Every contender reports marks (see `figures.Mark`), and the same function makes a rate from them,
so that start-up is left out and training counted for all in the same way.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import resource
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hts.scratch import scratch

from . import homes
from .figures import Mark

PEERS = {"stable-baselines3": "run_stable_baselines3.py", "sample-factory": "run_sample_factory.py"}
LIMIT_SECONDS = 600.0  # a peer that loses a process may wait for it for ever
GRACE_SECONDS = 5.0
INTERRUPTED = 130  # how hts-train ends where it is asked to
LAST_UPDATES = 2  # of ours have no rollout beside them, and would count as faster than they are


class Failed(Exception):
    """A contender did not come to its end; the text says what it said last."""


@dataclass(frozen=True)
class Task:
    """What every contender does: PPO on the sleeper world, a 64x64 net for policy and value."""

    mean: float
    replicas: int
    rollout: int
    epochs: int
    minibatches: int
    steps: int
    seed: int = 0
    cores: int = dataclasses.field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def __str__(self) -> str:
        return (
            f"step of {self.mean:g} ms, {self.replicas} replicas, rollout {self.rollout}, "
            f"{self.epochs} epochs, {self.minibatches} minibatches, {self.steps:,} steps"
        )


class Run(NamedTuple):
    """What one run told, and how busy the machine was with other things meanwhile."""

    version: str
    marks: list[Mark]
    others: float


def peer(name: str, task: Task) -> Run:
    """A peer's training, under the peer's own interpreter."""
    python = homes.interpreter(name)
    with scratch() as folder:
        asked, result = Path(folder, "task.json"), Path(folder, "result.json")
        asked.write_text(json.dumps(dataclasses.asdict(task)))
        script = homes.HERE / PEERS[name]
        others = watched([str(python), str(script), str(asked), str(result)], Path(folder, "log"))
        told = json.loads(result.read_text())
        return Run(told["version"], [Mark(*mark) for mark in told["marks"]], others)


def ours(layout: str, task: Task) -> Run:
    """Our training, through the command that users have."""
    with scratch() as folder:
        directory = Path(folder, "run")
        command = [*our_command(task, directory), *shlex.split(layout)]
        others = watched(command, Path(folder, "log"))
        manifest = json.loads((directory / "manifest.json").read_text())
        versions = manifest["versions"]
        version = f"hts {manifest['commit'] or versions['hts']}, torch {versions['torch']}"
        return Run(version, our_marks((directory / "metrics.jsonl").read_text()), others)


def our_command(task: Task, directory: Path) -> list[str]:
    values = {
        "replicas": task.replicas,
        "rollout": task.rollout,
        "algo.epochs": task.epochs,
        "algo.minibatches": task.minibatches,
    }
    return [
        str(homes.ROOT / ".venv" / "bin" / "hts-train"),
        *("--algo", "ppo", "--env", f"sleeper:?mean={task.mean:g}"),
        *(word for name, value in values.items() for word in ("--set", f"{name}={value}")),
        *("--steps", str(task.steps), "--seed", str(task.seed), "--run-dir", str(directory)),
    ]


def our_marks(metrics: str) -> list[Mark]:
    """The marks in a run's `metrics.jsonl`, but for the last updates."""
    lines = [json.loads(line) for line in metrics.splitlines()]
    return [Mark(line["steps"], line["time/seconds"]) for line in lines[:-LAST_UPDATES]]


def machine() -> dict[str, Any]:
    """Where it was measured, for whoever reads the figures later."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = {line.split(":", 1)[1].strip() for line in file if line.startswith("model name")}
    cores = len(os.sched_getaffinity(0))
    return {"cpu": ", ".join(sorted(models)), "cores": cores, "python": platform.python_version()}


def watched(
    command: Sequence[str],
    log: Path,
    *,
    limit: float = LIMIT_SECONDS,
    enough: Callable[[], bool] | None = None,
) -> float:
    """Run it to its end, or interrupt it when there is `enough`; the share of the machine that
    other programs took meanwhile."""
    busy, own, total = _machine_seconds(), _own_seconds(), _total_seconds()
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**homes.clean_environment(), "TMPDIR": str(log.parent)},
            cwd=log.parent,
            start_new_session=True,
        )
        try:
            interrupted = enough is not None and _interrupted(process, limit, enough)
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"not over after {limit:.0f} seconds\n{_end(log)}") from None
        finally:
            _end_group(process)
    if status != (INTERRUPTED if interrupted else 0):
        raise Failed(f"ended with {status}\n{_end(log)}")
    spent = _machine_seconds() - busy - (_own_seconds() - own)
    return max(0.0, spent / (_total_seconds() - total))


def _interrupted(
    process: subprocess.Popen[bytes], limit: float, enough: Callable[[], bool]
) -> bool:
    """Wait until there is enough of it, and say that it may end; False where it ended before."""
    deadline = time.monotonic() + limit
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(process.args, limit)
        if enough():
            process.send_signal(signal.SIGINT)  # it ends its own processes
            return True
        time.sleep(0.1)
    return False


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Leave nobody behind, whichever way it ended; time first for what cleans up after others."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_SECONDS
        try:
            os.killpg(process.pid, number)
            while time.monotonic() < deadline:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
        except ProcessLookupError:
            return


def _end(log: Path) -> str:
    return "\n".join(f"    {line}" for line in log.read_text().splitlines()[-15:])


def _own_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _stat_seconds() -> list[float]:
    """User, nice, system, idle, waiting, interrupts (twice) and stolen, of all cores together."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = file.readline().split()[1:9]
    return [int(tick) / os.sysconf("SC_CLK_TCK") for tick in ticks]


def _total_seconds() -> float:
    return sum(_stat_seconds())


def _machine_seconds() -> float:
    spent = _stat_seconds()
    return sum(spent) - spent[3] - spent[4]
