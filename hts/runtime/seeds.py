"""Several seeds of one experiment in turn, each a run in a directory of its own below one."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hts.config import Resolved
from hts.errors import WrongUsage
from hts.report.run_directory import default_path
from hts.report.say import say
from hts.report.shown import How
from hts.report.start import Start
from hts.runtime.train import INTERRUPTED, train

_NUMBERS = (("return", "return_mean"), ("score", "score_mean"), ("steps/s", "sps"))


def train_seeds(
    runs: Sequence[Resolved], folder: Path | None, how: How, start: Start | None = None
) -> int:
    """Run one after the other, from the same weights where some are given; return the worst of
    their exit codes. Ctrl-C ends all of them."""
    folder = folder or _default(runs[0])
    paths = [folder / f"seed-{run.config.experiment.seed}" for run in runs]
    for path in paths:
        if path.exists():
            raise WrongUsage(f"{path}: this seed has been run there; leave it out, or --resume it")
    codes: list[int] = []
    for run, path in zip(runs, paths, strict=True):
        codes.append(train(run, path, how, start))
        say(f"hts-train: {_line(path)}")
        if codes[-1] == INTERRUPTED:
            break
    for line in _summary([result for path in paths if (result := _result(path))]):
        say(f"hts-train: {line}")
    left = [run.config.experiment.seed for run in runs[len(codes) :]]
    if left:
        seeds = ",".join(map(str, left))
        say(f"hts-train: not run: --seeds {seeds} --run-dir {folder} does that")
    return max(codes)


def _default(run: Resolved) -> Path:
    """A run's own name, with all seeds instead of its one."""
    own = default_path(run.config)
    return own.with_name(own.name.replace(f"-s{run.config.experiment.seed}-", "-seeds-"))


def _result(path: Path) -> Mapping[str, Any]:
    """How a run ended; nothing where that was not written."""
    try:
        found: dict[str, Any] = json.loads((path / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _line(path: Path) -> str:
    """One seed, in a line."""
    result = _result(path)
    if not result:
        return f"{path.name}: ended without a result"
    parts = [f"{path.name}: {result['status']}", f"{result['steps']:,} steps"]
    for word, name in _NUMBERS:
        if result.get(name) is not None:
            parts.append(f"{word} {result[name]:,.4g}")
    return ", ".join([*parts, f"digest {result['digest']}"])


def _summary(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Mean and spread over the seeds that are done."""
    whole = [result for result in results if result["status"] == "done"]
    if not whole:
        return []
    lines = [f"{len(whole)} {'seeds are' if len(whole) > 1 else 'seed is'} done"]
    for word, name in _NUMBERS:
        values = [result[name] for result in whole if result.get(name) is not None]
        if values:
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            lines.append(
                f"{word}: mean {statistics.fmean(values):,.4g}, deviation {spread:,.3g}, "
                f"from {min(values):,.4g} to {max(values):,.4g}"
            )
    return lines
