"""What the papers say about runs: over the episodes of policies, over games, over time.

final metric           the mean over the episodes of the last ten policies of a run
final time metric      the same of the last ten that there were at some time
required time metric   when the running mean of 100 evaluation episodes first reached a target

Over games: scores on a scale on which random play is 0 and a human is 1; their median over games,
the mean of their middle half over runs and games, and by how much they fall short of 1.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hts.report import evaluations
from hts.report.intervals import ends, picks
from hts.report.run_directory import METRICS
from hts_envs.contract import Array

LAST = 10  # policies that a final metric is about
FULL = 100  # episodes that a running mean is about

HUMAN: Mapping[str, tuple[float, float]] = {
    "Alien": (227.8, 7127.7),
    "Amidar": (5.8, 1719.5),
    "Assault": (222.4, 742.0),
    "Asterix": (210.0, 8503.3),
    "Asteroids": (719.1, 47388.7),
    "Atlantis": (12850.0, 29028.1),
    "BankHeist": (14.2, 753.1),
    "BattleZone": (2360.0, 37187.5),
    "BeamRider": (363.9, 16926.5),
    "Berzerk": (123.7, 2630.4),
    "Bowling": (23.1, 160.7),
    "Boxing": (0.1, 12.1),
    "Breakout": (1.7, 30.5),
    "Centipede": (2090.9, 12017.0),
    "ChopperCommand": (811.0, 7387.8),
    "CrazyClimber": (10780.5, 35829.4),
    "Defender": (2874.5, 18688.9),
    "DemonAttack": (152.1, 1971.0),
    "DoubleDunk": (-18.6, -16.4),
    "Enduro": (0.0, 860.5),
    "FishingDerby": (-91.7, -38.7),
    "Freeway": (0.0, 29.6),
    "Frostbite": (65.2, 4334.7),
    "Gopher": (257.6, 2412.5),
    "Gravitar": (173.0, 3351.4),
    "Hero": (1027.0, 30826.4),
    "IceHockey": (-11.2, 0.9),
    "Jamesbond": (29.0, 302.8),
    "Kangaroo": (52.0, 3035.0),
    "Krull": (1598.0, 2665.5),
    "KungFuMaster": (258.5, 22736.3),
    "MontezumaRevenge": (0.0, 4753.3),
    "MsPacman": (307.3, 6951.6),
    "NameThisGame": (2292.3, 8049.0),
    "Phoenix": (761.4, 7242.6),
    "Pitfall": (-229.4, 6463.7),
    "Pong": (-20.7, 14.6),
    "PrivateEye": (24.9, 69571.3),
    "Qbert": (163.9, 13455.0),
    "Riverraid": (1338.5, 17118.0),
    "RoadRunner": (11.5, 7845.0),
    "Robotank": (2.2, 11.9),
    "Seaquest": (68.4, 42054.7),
    "Skiing": (-17098.1, -4336.9),
    "Solaris": (1236.3, 12326.7),
    "SpaceInvaders": (148.0, 1668.7),
    "StarGunner": (664.0, 10250.0),
    "Surround": (-10.0, 6.5),
    "Tennis": (-23.8, -8.3),
    "TimePilot": (3568.0, 5229.2),
    "Tutankham": (11.4, 167.6),
    "UpNDown": (533.4, 11693.2),
    "Venture": (0.0, 1187.5),
    "VideoPinball": (16256.9, 17667.9),
    "WizardOfWor": (563.5, 4756.5),
    "YarsRevenge": (3092.9, 54576.9),
    "Zaxxon": (32.5, 9173.3),
}
"""What random play and a human reach in each game, as the deep Q-network papers give it."""


@dataclass(frozen=True)
class Reached:
    """When a target was first reached."""

    update: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class OverGames:
    """Human-normalised scores of runs in several games, as one number each."""

    median: float
    interquartile_mean: float
    optimality_gap: float


def normalised(game: str, score: float) -> float | None:
    """The score where random play is 0 and a human is 1; None where nobody has measured them."""
    if game not in HUMAN:
        return None
    random, human = HUMAN[game]
    return (score - random) / (human - random)


def interquartile_mean(scores: Array) -> float:
    """The mean without the lowest and the highest quarter, each rounded down."""
    ordered = np.sort(np.asarray(scores, np.float64).reshape(-1))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def optimality_gap(scores: Array) -> float:
    """By how much scores fall short of 1, on average; what lies above it makes up for nothing."""
    return float(1.0 - np.minimum(np.asarray(scores, np.float64), 1.0).mean())


def over_games(scores: Mapping[str, Sequence[float]]) -> OverGames:
    """Of normalised scores, one for each run of a game: the median is one of the games' means."""
    assert scores, "there is at least one game"
    every = np.array([score for runs in scores.values() for score in runs], np.float64)
    median = float(np.median([np.mean(runs) for runs in scores.values()]))
    return OverGames(median, interquartile_mean(every), optimality_gap(every))


def over_games_intervals(scores: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Where each of these numbers lies with 95 %: the runs of each game are drawn anew, and games
    stay what they are, since they are no sample of anything."""
    drawn = [
        np.array(runs, np.float64)[picks(len(runs), game)]
        for game, runs in enumerate(scores.values(), 1)
    ]
    every = np.concatenate(drawn, axis=1)
    ordered, cut = np.sort(every, axis=1), every.shape[1] // 4
    found = {
        "median": np.median([game.mean(axis=1) for game in drawn], axis=0),
        "interquartile_mean": ordered[:, cut : every.shape[1] - cut].mean(axis=1),
        "optimality_gap": 1.0 - np.minimum(every, 1.0).mean(axis=1),
    }
    return {name: [float(end) for end in ends(values)] for name, values in found.items()}


def what_counts(lines: Sequence[Mapping[str, Any]]) -> str:
    """Scores where worlds have them, otherwise returns."""
    return "scores" if all(line.get("scores") for line in lines) else "returns"


def final(lines: Sequence[Mapping[str, Any]]) -> list[float]:
    """The episodes that a final metric is the mean of: those of the last ten policies."""
    last = lines[-LAST:]
    name = what_counts(last)
    return [float(value) for line in last for value in line[name]]


def metrics(run: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a run's `metrics.jsonl`, which may be growing."""
    with suppress(FileNotFoundError), (run / METRICS).open(encoding="utf-8") as file:
        for text in file:
            if text.endswith("\n"):
                with suppress(ValueError):
                    yield json.loads(text)


def before(run: Path, seconds: float) -> int:
    """The last update that a run had made by then."""
    updates = [line["update"] for line in metrics(run) if line["time/seconds"] <= seconds]
    return max(updates, default=0)


def reached(run: Path, target: float) -> Reached | None:
    """When the mean over the latest 100 evaluation episodes first was as high as this.

    An evaluation counts from the moment at which its policy was made, whenever it was played.
    """
    lines = evaluations.read(run)
    name = what_counts(list(lines.values()))
    latest: deque[float] = deque(maxlen=FULL)
    for update, line in lines.items():
        latest.extend(map(float, line[name]))
        if len(latest) == FULL and math.fsum(latest) / FULL >= target:
            return Reached(update, int(line["steps"]), _made(run, update))
    return None


def _made(run: Path, update: int) -> float:
    """Seconds into the run when it had made this update."""
    return next((line["time/seconds"] for line in metrics(run) if line["update"] == update), 0.0)
