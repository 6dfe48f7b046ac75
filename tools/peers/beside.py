"""Learning against the clock: one training of one contender, and what its policies are worth.

All are judged by the same episodes, those that hts-eval plays for this seed, without exploration,
and judging takes nothing from anybody's time: ours are judged when training is over, from the
versions that it wrote and the times in its record; a peer's clock stands still meanwhile.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hts.report import policies
from hts.scratch import scratch

from . import homes, run
from .curves import Learnt, Point, judged, until

PEERS = {"SB3 SAC": "sac", "SB3 TD3": "td3"}
HOME = "stable-baselines3"
SCRIPT = homes.HERE / "run_sac_td3.py"
ENDLESS = 10**9  # steps; the clock ends it
JUDGING = 10.0  # times as long as training is what judging may take, before it counts as stuck


@dataclass(frozen=True)
class Task:
    """What every contender does, and how it is judged."""

    environment: str
    seconds: float
    target: float
    every: float
    seed: int
    episodes: list[int]
    """What each of them begins with."""
    hidden: list[int]
    critic_hidden: list[int]
    learning_starts: int
    noise: float
    whole: bool = False
    """Nobody stops at the target."""

    @property
    def limit(self) -> float:
        """Seconds after which a process hangs, for certain."""
        return run.LIMIT_SECONDS + (1 + JUDGING) * self.seconds


def peer(who: str, task: Task) -> Learnt:
    """Stable-Baselines3's training, under its own interpreter."""
    python = homes.interpreter(HOME)
    with scratch() as folder:
        asked, result = Path(folder, "task.json"), Path(folder, "result.json")
        asked.write_text(json.dumps(peer_task(who, task)))
        command = [str(python), str(SCRIPT), str(asked), str(result)]
        others = run.watched(command, Path(folder, "log"), limit=task.limit)
        told = json.loads(result.read_text())
    curve = [Point(*point) for point in told["curve"]]
    return Learnt(who, task.seed, told["version"], others, curve)


def peer_task(who: str, task: Task) -> dict[str, Any]:
    """The task in the words of `run_sac_td3.py`."""
    target = None if task.whole else task.target
    return {**dataclasses.asdict(task), "algorithm": PEERS[who], "target": target}


def ours(who: str, chosen: Sequence[str], task: Task) -> Learnt:
    """Our training through the command that users have, and then its evaluation."""
    with scratch() as folder:
        directory = Path(folder, "run")
        others = run.watched(
            our_command(chosen, task, directory),
            Path(folder, "log"),
            limit=task.limit,
            enough=Enough(directory / "metrics.jsonl", task.seconds),
        )
        manifest = json.loads((directory / "manifest.json").read_text())
        made = made_at((directory / "metrics.jsonl").read_text())
        curve = our_curve(_evaluated(directory, _thinned(directory, made, task), task), made)
    version = f"hts {manifest['commit']}, torch {manifest['versions']['torch']}"
    return Learnt(
        who, task.seed, version, others, curve if task.whole else until(curve, task.target)
    )


def our_command(chosen: Sequence[str], task: Task, directory: Path) -> list[str]:
    """Trains until it is interrupted; what is chosen says also how often a version is written, and
    nothing is judged meanwhile.

    No curves are drawn and no checkpoint is written on the way: the peers do neither.
    """
    values = {
        "evaluate_episodes": 0,
        "keep_policies": ENDLESS,
        "checkpoint_every": 0,
        "log": "none",
    }
    return [
        str(homes.ROOT / ".venv" / "bin" / "hts-train"),
        *chosen,
        *("--seed", str(task.seed), "--steps", str(ENDLESS)),
        *(word for name, value in values.items() for word in ("--set", f"{name}={value}")),
        *("--quiet", "--run-dir", str(directory)),
    ]


class Enough:
    """Whether a run of ours has trained so long, counted from its first update."""

    def __init__(
        self, metrics: Path, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._metrics = metrics
        self._seconds = seconds
        self._clock = clock
        self._since: float | None = None

    def __call__(self) -> bool:
        if self._since is None and self._metrics.exists() and self._metrics.stat().st_size:
            self._since = self._clock()
        return self._since is not None and self._clock() - self._since >= self._seconds


def made_at(metrics: str) -> dict[int, float]:
    """The seconds of training behind each update, from a run's `metrics.jsonl`."""
    lines = [json.loads(line) for line in metrics.splitlines()]
    return {line["update"]: line["time/seconds"] for line in lines}


def our_curve(lines: Sequence[dict[str, Any]], made: dict[int, float]) -> list[Point]:
    """A point for each policy of hts-eval, at the time at which it was made."""
    return [Point(line["steps"], made[line["update"]], line["eval/return"]) for line in lines]


def _thinned(directory: Path, made: dict[int, float], task: Task) -> int:
    """Keep the versions that are judged, and say how many those are."""
    there = policies.written(directory / policies.FOLDER)
    updates = [update for update in there if update in made]
    places = judged([made[update] for update in updates], task.every, task.seconds)
    kept = {updates[place] for place in places}
    if not kept:
        raise run.Failed(f"no version was written within {task.seconds:g} seconds")
    for update, path in there.items():
        if update not in kept:
            path.unlink()
    return len(kept)


def _evaluated(directory: Path, count: int, task: Task) -> list[dict[str, Any]]:
    """What hts-eval says about them."""
    command = [
        str(homes.ROOT / ".venv" / "bin" / "hts-eval"),
        *("--greedy", "--json", "--episodes", str(len(task.episodes))),
        *("--last", str(count), str(directory)),
    ]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, env=homes.clean_environment()
    )
    if ended.returncode:
        raise run.Failed(f"hts-eval ended with {ended.returncode}\n{ended.stderr}")
    policies: list[dict[str, Any]] = json.loads(ended.stdout)["runs"][0]["policies"]
    return policies
