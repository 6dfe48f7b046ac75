"""What is known about evaluated runs, over seeds and over games; for programs and people."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hts.config import Experiment
from hts.report import statistics
from hts.report.curves import experiments
from hts.report.intervals import bootstrapped
from hts.report.recorded import Recorded


@dataclasses.dataclass(frozen=True)
class Judged:
    """What is known about one run."""

    run: Recorded
    experiment: Experiment
    lines: Sequence[Mapping[str, Any]]
    required: statistics.Reached | None

    @property
    def values(self) -> list[float]:
        """The episodes that count."""
        return statistics.final(self.lines)

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def human_normalised(self) -> float | None:
        """Of an Atari game that somebody has measured."""
        family, _, rest = self.experiment.env.partition(":")
        return (
            statistics.normalised(rest.partition("?")[0], self.mean) if family == "atari" else None
        )


def record(judged: Sequence[Judged], filmed: dict[str, Any] | None) -> dict[str, Any]:
    """Everything that is known, for programs; what people are shown is taken from it too."""
    return {
        "format": 1,
        "runs": [_of_run(each) for each in judged],
        "seeds": _over_seeds(judged),
        "atari": _over_games(judged),
        "video": filmed,
    }


def _of_run(judged: Judged) -> dict[str, Any]:
    interval = bootstrapped(np.array(judged.values))
    return {
        "run": str(judged.run.path),
        "seed": judged.experiment.seed,
        "environment": judged.experiment.env,
        "policies": list(judged.lines),
        "counts": statistics.what_counts(judged.lines),
        "mean": float(interval.mean),
        "low": float(interval.low),
        "high": float(interval.high),
        "required": None if judged.required is None else dataclasses.asdict(judged.required),
        "human_normalised": judged.human_normalised,
    }


def _over_seeds(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """For runs that differ only in their seeds."""
    by_path = {each.run.path: each for each in judged}
    rows = []
    for group in experiments([each.run for each in judged]):
        runs = [by_path[run.path] for run in group.runs.values()]
        interval = bootstrapped(np.array([each.mean for each in runs]))
        rows.append(
            {
                "label": group.label or runs[0].experiment.env,
                "seeds": list(group.runs),
                "mean": float(interval.mean),
                "low": float(interval.low),
                "high": float(interval.high),
                **_required([each.required for each in runs]),
            }
        )
    return rows


def _required(found: Sequence[statistics.Reached | None]) -> dict[str, Any]:
    """A mean with its interval, where all seeds reached the target: of some it would flatter."""
    times = [each.seconds for each in found if each is not None]
    names = ("required_seconds", "required_low", "required_high")
    told: dict[str, Any] = {**dict.fromkeys(names), "required_reached": len(times)}
    if len(times) == len(found):
        interval = bootstrapped(np.array(times))
        ends = map(float, (interval.mean, interval.low, interval.high))
        told.update(zip(names, ends, strict=True))
    return told


def _over_games(judged: Sequence[Judged]) -> dict[str, Any] | None:
    scores: dict[str, list[float]] = {}
    for each in judged:
        if each.human_normalised is not None:
            scores.setdefault(each.experiment.env, []).append(each.human_normalised)
    if not scores:
        return None
    several = any(len(runs) > 1 for runs in scores.values())
    intervals = statistics.over_games_intervals(scores) if several else None
    return {**dataclasses.asdict(statistics.over_games(scores)), "intervals": intervals}


def show(judged: Judged, *, at: float | None, target: float | None) -> None:
    """The policies of one run, and what the papers would say about it."""
    print(f"{judged.run.path}: {judged.experiment.env}, seed {judged.experiment.seed}")
    names = [name for name in ("return", "score", "length") if f"eval/{name}" in judged.lines[-1]]
    print(f"{'update':>9}{'steps':>14}{'episodes':>10}" + "".join(f"{n:>12}" for n in names))
    for line in judged.lines:
        means = "".join(f"{line[f'eval/{name}']:>12.6g}" for name in names)
        print(f"{line['update']:>9,}{line['steps']:>14,}{line['episodes']:>10}{means}")
    facts = _of_run(judged)
    metric = "final metric" if at is None else f"final time metric ({at:g} s)"
    count = len(judged.lines)
    counted = f"{facts['counts']}, {len(judged.values)} episodes"
    of = f"{count} {'policies' if count > 1 else 'policy'}"
    print(f"{metric}: {_interval(facts)} ({counted} of {of})")
    if judged.human_normalised is not None:
        print(f"human-normalised: {judged.human_normalised:.3f}")
    if target is not None:
        print(f"required time metric ({target:g}): {_when(judged.required)}")


def _when(required: statistics.Reached | None) -> str:
    if required is None:
        return "-, the mean over 100 evaluation episodes of eval.jsonl was never as high"
    return f"{required.seconds:,.1f} s, {required.steps:,} steps, update {required.update:,}"


def _interval(facts: Mapping[str, Any]) -> str:
    return f"{facts['mean']:.4g} [{facts['low']:.4g}, {facts['high']:.4g}]"


def show_together(record: Mapping[str, Any]) -> None:
    """What several runs are together."""
    print()
    for row in record["seeds"]:
        seeds = f"{len(row['seeds'])} seed{'s' if len(row['seeds']) > 1 else ''}"
        print(f"{row['label']}, {seeds}: {_interval(row)}{_when_together(row)}")
    if record["atari"] is not None:
        print(f"human-normalised: {', '.join(_games(record['atari']))}")


def _when_together(row: Mapping[str, Any]) -> str:
    """Nothing where nobody asked, or nobody has reached it."""
    if row["required_seconds"] is not None:
        low, high = row["required_low"], row["required_high"]
        return f", target reached after {row['required_seconds']:,.1f} s [{low:,.1f}, {high:,.1f}]"
    reached = row["required_reached"]
    return f", target reached by {reached} of {len(row['seeds'])} seeds" if reached else ""


def _games(atari: Mapping[str, Any]) -> Iterator[str]:
    intervals = atari["intervals"] or {}
    for name, value in atari.items():
        if name != "intervals":
            between = f" [{', '.join(f'{e:.3f}' for e in intervals[name])}]" if intervals else ""
            yield f"{name.replace('_', ' ')} {value:.3f}{between}"
