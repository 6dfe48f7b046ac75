"""Tables of the HTS-RL paper from runs, with the paper's own numbers beside ours.

A table looks at runs that differ in one value: of the machine, which must not change a score, or
of the experiment. The score of a run is the paper's: the mean over the evaluation episodes of its
last ten policies; where a run was not evaluated, over its last 100 training episodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hts.errors import WrongUsage
from hts.report import evaluations
from hts.report.intervals import bootstrapped
from hts.report.recorded import Recorded
from hts.report.statistics import final


@dataclass(frozen=True)
class Theirs:
    """What the paper prints for one value."""

    score: str
    speed: str = ""


@dataclass(frozen=True)
class Table:
    """What it is about, which value of a configuration its rows are, and the paper's rows."""

    title: str
    value: str
    theirs: Mapping[tuple[str, str], Theirs]  # by environment and value
    same: bool = False  # no row may differ in its scores


_ENV, _SEED = "experiment.env", "experiment.seed"
_FOOTBALL = "gfootball:3v1"
TABLES = {
    "4": Table(
        "numbers of actors on 3 vs. 1 with keeper (table 4)",
        "machine.actors",
        {
            (_FOOTBALL, "1"): Theirs("0.82", "1229"),
            (_FOOTBALL, "4"): Theirs("0.82", "1362"),
            (_FOOTBALL, "8"): Theirs("0.82", "1393"),
            (_FOOTBALL, "16"): Theirs("0.82", "1388"),
        },
        same=True,
    ),
    "5": Table(
        "synchronisation intervals on 3 vs. 1 with keeper (table 5)",
        "experiment.rollout",
        {
            (_FOOTBALL, "4"): Theirs("0.82", "445"),
            (_FOOTBALL, "16"): Theirs("0.81", "1070"),
            (_FOOTBALL, "64"): Theirs("0.81", "1345"),
            (_FOOTBALL, "128"): Theirs("0.82", "1349"),
            (_FOOTBALL, "256"): Theirs("0.81", "1360"),
            (_FOOTBALL, "512"): Theirs("0.83", "1377"),
        },
    ),
    "A1": Table(
        "corrections on Atari (table A1)",
        "experiment.correction",
        {
            (f"atari:{game}", correction): Theirs(score)
            for game, scores in (
                ("BankHeist", ("987", "881", "877")),
                ("Breakout", ("415", "390", "402")),
                ("Seaquest", ("1831", "1827", "1784")),
            )
            for correction, score in zip(("delayed", "truncated_is", "none"), scores, strict=True)
        },
    ),
}


@dataclass(frozen=True)
class _Row:
    """Runs that agree in the environment and in the table's value."""

    env: str
    value: str
    runs: Sequence[Recorded]

    @property
    def digests(self) -> dict[str, str]:
        """What each seed came to."""
        return {str(run.config[_SEED]): str(run.result["digest"]) for run in self.runs}


def markdown(name: str, runs: Sequence[Recorded]) -> str:
    """The table of this name; WrongUsage where these runs do not make one."""
    table = TABLES[name]
    rows = _rows(table, runs)
    lines = [
        f"HTS-RL, {table.title}. Ours: {_what(runs)}; theirs: as printed.",
        "",
        f"| environment | {table.value.rpartition('.')[2]} | steps/s | score | digest | "
        "their steps/s | their score |",
        "|---|---|---|---|---|---|---|",
        *(_line(table, row) for row in rows),
    ]
    if table.same:
        lines += ["", _equal(rows)]
    return "\n".join(lines)


def _rows(table: Table, runs: Sequence[Recorded]) -> list[_Row]:
    groups: dict[tuple[str, str], list[Recorded]] = {}
    for run in runs:
        if "digest" not in run.result or "sps" not in run.result:
            raise WrongUsage(f"{run.path}: this run has no result yet ({run.status})")
        if table.value not in run.config or _ENV not in run.config:
            raise WrongUsage(f"{run.path}: its manifest does not say {table.value}")
        place = str(run.config[_ENV]), str(run.config[table.value])
        groups.setdefault(place, []).append(run)
    return [_Row(*place, groups[place]) for place in sorted(groups, key=_order)]


def _order(place: tuple[str, str]) -> tuple[str, int, str]:
    """Numbers as numbers."""
    env, value = place
    return env, int(value) if value.isdecimal() else 0, value


def _what(runs: Sequence[Recorded]) -> str:
    steps = sorted({int(run.config.get("experiment.steps", 0)) for run in runs})
    seeds = sorted({int(run.config.get(_SEED, 0)) for run in runs})
    many = " or ".join(f"{count:,}" for count in steps)
    seed = "seed" if len(seeds) == 1 else "seeds"
    return f"{many} steps, {seed} {', '.join(map(str, seeds))}, {_machine(runs)}"


def _machine(runs: Sequence[Recorded]) -> str:
    return " or ".join(sorted({run.facts.get("cpu", "an unknown processor") for run in runs}))


def _line(table: Table, row: _Row) -> str:
    theirs = table.theirs.get((row.env.partition("?")[0], row.value), Theirs("", ""))
    speed = np.mean([float(run.result["sps"]) for run in row.runs])
    digest = "<br>".join(digest[:12] for digest in row.digests.values())
    return (
        f"| {row.env} | {row.value} | {speed:,.0f} | {_score(row.runs)} | {digest} | "
        f"{theirs.speed or '-'} | {theirs.score or '-'} |"
    )


def _score(runs: Sequence[Recorded]) -> str:
    """All digits of a single run's, since they may be compared; of several, with an interval."""
    scores = [score for score in map(score_of, runs) if score is not None]
    if not scores:
        return "-"
    if len(scores) == 1:
        return repr(scores[0])
    interval = bootstrapped(np.array(scores))
    return f"{interval.mean:.4g} ({interval.low:.4g} to {interval.high:.4g})"


def score_of(run: Recorded) -> float | None:
    """The final metric, or what its last training episodes came to."""
    lines = list(evaluations.read(run.path).values())
    if lines:
        return float(np.mean(final(lines)))
    found = run.result.get("score_mean")
    found = run.result.get("return_mean") if found is None else found
    return None if found is None else float(found)


def _equal(rows: Sequence[_Row]) -> str:
    """Digests speak of every bit: they are compared seed by seed."""
    apart = []
    for env in dict.fromkeys(row.env for row in rows):
        there = [row for row in rows if row.env == env]
        for seed in dict.fromkeys(seed for row in there for seed in row.digests):
            if len({row.digests[seed] for row in there if seed in row.digests}) > 1:
                apart.append(f"{env}, seed {seed}")
    if apart:
        return f"**The rows differ**: {'; '.join(apart)}. They must not: see `hts-diff`."
    return "All rows are equal to the last bit: observations, actions, parameters, scores."
