"""`hts-plot`: learning curves of past and running runs, with intervals over their seeds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hts.cli import shell
from hts.errors import WrongUsage
from hts.report.curves import AXES, Curve, columns, curve, experiments, found
from hts.report.metrics import described
from hts.report.picture import Frame, Stroke, checked, draw, draw_waiting
from hts.report.printed import TABLES
from hts.report.recorded import Recorded
from hts.report.speeds import Speeds, speedup, throughput
from hts.report.tables import make
from hts.report.waiting import roles
from hts_envs.contract import Array
from hts_envs.spelling import hint

DESCRIPTION = """\
Draw a number of the record of runs along their steps or their time. Runs that
differ only in their seeds are one curve: the mean, and the interval in which it
lies with 95 %, resampled over seeds, as far as all of them have come.
"""

EPILOG = """\
examples:
  hts-plot runs/ppo-gym-CartPole-v1-s0-20260101-120000
  hts-plot runs --x time --y train/entropy --out entropy.svg
  hts-plot runs/table4 --table 4
  hts-plot runs/football --throughput --out throughput.png
  hts-plot A/seed-0 A/seed-1 B/seed-0 B/seed-1 --labels "rollout 16,rollout 64"

A directory of runs stands for the runs in it. A run that is still going on is
drawn as far as it has come. An option that a picture has no use for is refused.

--throughput   steps/s over replicas, a line for each schedule
--speedup      steps/s of schedule hts over those of sync and hts_barrier, over
               the variance of a step in ms2, of sleeper: worlds with several
               shapes

keys of --json:
  format   1; a key is never renamed within a format
  x, y     what was drawn
  curves   a list of label, seeds, runs, x, mean, low, high (null: one seed)
  lines    with --throughput, --speedup: a list of label, seeds, x, mean, low,
           high
  waiting  with --waiting: a list of role, x, and its shares by what it did

exit code: 0 done, 1 rows of a table differ that must be equal, 2 wrong usage
"""

AXIS_LABELS = {"steps": "environment steps", "time": "seconds"}

DEFAULTS = {"x": "steps", "y": "episode/return", "out": Path("curve.png")}

SPEEDS: Mapping[str, tuple[Callable[[Sequence[Recorded]], list[Speeds]], str, str, str]] = {
    "speedup": (speedup, "variance of a step, ms²", "times as fast", "hts over other schedules"),
    "throughput": (throughput, "replicas", "steps/s", "steps/s over replicas"),
}
"""Pictures of whole runs: what makes their lines, both axes, and the help."""

USELESS = {
    "table": ("x", "y", "out", "labels", "json"),
    "waiting": ("y", "labels"),
    **dict.fromkeys(SPEEDS, ("x", "y", "labels")),
}
"""Options that say nothing to what is shown instead of curves."""


def parser() -> argparse.ArgumentParser:
    """Runs, what to draw of them, and where to."""
    made = shell.Parser(
        prog="hts-plot",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "runs", metavar="RUN", type=Path, nargs="+", help="directory of a run, or of several"
    )
    made.add_argument("--x", choices=tuple(AXES), help="along what (steps)")
    made.add_argument(
        "--y",
        metavar="NAME",
        help=f"which number of metrics.jsonl or eval.jsonl ({DEFAULTS['y']})",
    )
    made.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"the picture: .png, .svg or .pdf ({DEFAULTS['out']})",
    )
    made.add_argument("--overwrite", action="store_true", help="replace the picture that is there")
    made.add_argument(
        "--labels", metavar="A,B", help="names of the experiments, in the order of the runs"
    )
    instead = made.add_mutually_exclusive_group()
    instead.add_argument(
        "--waiting", action="store_true", help="of one run: who worked and who waited for whom"
    )
    for name, (_, _, _, text) in SPEEDS.items():
        instead.add_argument(f"--{name}", action="store_true", help=text)
    instead.add_argument(
        "--table",
        metavar="NAME",
        help=f"print a table of the HTS-RL paper beside its own numbers: {', '.join(TABLES)}",
    )
    made.add_argument(
        "--all-environments",
        action="store_true",
        help="with --table: rows for environments that the paper's table does not have",
    )
    made.add_argument(
        "--json", action="store_true", help="print the numbers of the curves, draw nothing"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run("hts-plot", lambda: _plot(typed))


def _plot(typed: argparse.Namespace) -> int:
    _refuse_useless(typed)
    if typed.all_environments and typed.table is None:
        raise WrongUsage("--all-environments needs --table")
    if typed.table is not None:
        return _table(typed)
    for name, value in DEFAULTS.items():
        if getattr(typed, name) is None:
            setattr(typed, name, value)
    out = None if typed.json else checked(typed.out, overwrite=typed.overwrite)
    if typed.waiting:
        return _waiting(typed, out)
    for name in SPEEDS:
        if getattr(typed, name):
            return _speeds(name, found(typed.runs), out)
    every = found(typed.runs)
    groups = experiments(every)
    left_out = len(every) - sum(len(group.runs) for group in groups)
    if left_out:
        shell.tell("hts-plot", f"{left_out} of {len(every)} runs repeat a seed and do not count")
    curves = [curve(group, typed.y, typed.x) for group in groups]
    labels = _labels(typed.labels, [group.label for group in groups])
    runs = [list(group.runs.values()) for group in groups]
    if out is None:
        print(json.dumps(_as_json(typed, labels, curves, runs), indent=2, allow_nan=False))
        return shell.DONE
    several = any(len(drawn.seeds) > 1 for drawn in curves)
    metric = described(typed.y)
    title = f"{metric.heading}\nmean and 95 % interval over seeds" if several else metric.heading
    frame = Frame(title=title, x=AXIS_LABELS[typed.x], y=metric.axis)
    draw(out, frame, [_stroke(*pair) for pair in zip(labels, curves, strict=True)])
    for label, drawn in zip(labels, curves, strict=True):
        print(f"{label}: {_in_words(drawn, typed.x)}")
    print(f"drawn in {out}")
    return shell.DONE


def _refuse_useless(typed: argparse.Namespace) -> None:
    """Nothing that was typed is passed over in silence."""
    for instead, useless in USELESS.items():
        for name in useless:
            if getattr(typed, instead) and getattr(typed, name):
                raise WrongUsage(
                    f"--{name} cannot be combined with --{instead}; leave one of them out"
                )


def _table(typed: argparse.Namespace) -> int:
    """A table of the paper, as text."""
    if typed.table not in TABLES:
        raise WrongUsage(f"--table: there is no table {typed.table!r}{hint(typed.table, TABLES)}")
    made = make(typed.table, found(typed.runs), all_environments=typed.all_environments)
    print(made.text)
    return shell.DONE if made.equal else shell.FAILED


def _speeds(name: str, runs: Sequence[Recorded], out: Path | None) -> int:
    """Whole runs, each a point."""
    lines_of, x, y, title = SPEEDS[name]
    lines = lines_of(runs)
    if out is None:
        told = [
            {"label": each.label, "seeds": list(each.seeds), "x": each.x.tolist(), **_spread(each)}
            for each in lines
        ]
        print(json.dumps({"format": 1, "x": x, "y": y, "lines": told}, indent=2, allow_nan=False))
        return shell.DONE
    draw(out, Frame(title=title, x=x, y=y), [_stroke(each.label, each) for each in lines])
    for each in lines:
        for at, *values in zip(each.x, each.y.mean, each.y.low, each.y.high, strict=True):
            mean, low, high = (f"{value:.4g}" for value in values)
            between = f" ({low} to {high})" if len(each.seeds) > 1 else ""
            print(f"{each.label}: {mean}{between} at {at:.6g}")
    print(f"drawn in {out}")
    return shell.DONE


def _spread(drawn: Curve | Speeds) -> dict[str, list[float] | None]:
    """Of one seed there is no interval."""
    several = len(drawn.seeds) > 1
    return {
        "mean": drawn.y.mean.tolist(),
        "low": drawn.y.low.tolist() if several else None,
        "high": drawn.y.high.tolist() if several else None,
    }


def _waiting(typed: argparse.Namespace, out: Path | None) -> int:
    """Of one run: means over runs would hide who waits."""
    runs = found(typed.runs)
    if len(runs) > 1:
        raise WrongUsage(f"--waiting shows one run, not {len(runs)}; name one")
    there = list(roles(columns(runs[0], typed.x)))
    if not there:
        raise WrongUsage(
            f"{runs[0].path} does not hold waiting times yet; wait for its next update"
        )
    if out is None:
        told = [{"role": r.name, "x": r.x.tolist(), **_lists(r.shares)} for r in there]
        print(json.dumps({"format": 1, "x": typed.x, "waiting": told}, indent=2, allow_nan=False))
        return shell.DONE
    draw_waiting(out, AXIS_LABELS[typed.x], there)
    print(f"drawn in {out}")
    return shell.DONE


def _lists(shares: Mapping[str, Array]) -> dict[str, list[float]]:
    return {name: share.tolist() for name, share in shares.items()}


def _labels(said: str | None, own: Sequence[str]) -> list[str]:
    if said is None:
        return list(own)
    labels = [label.strip() for label in said.split(",")]
    if len(labels) != len(own):
        raise WrongUsage(
            f"--labels: must be one for each experiment ({'; '.join(own)}), not {len(labels)}"
        )
    return labels


def _stroke(label: str, drawn: Curve | Speeds) -> Stroke:
    if len(drawn.seeds) == 1:
        return Stroke(label, drawn.x, drawn.y.mean)
    named = f"{label} ({len(drawn.seeds)} seeds)"
    return Stroke(named, drawn.x, drawn.y.mean, drawn.y.low, drawn.y.high)


def _in_words(drawn: Curve, axis: str) -> str:
    """Where it ends."""
    mean = drawn.y.mean[-1]
    at = f"{drawn.x[-1]:,.6g} {'steps' if axis == 'steps' else 's'}"
    if len(drawn.seeds) == 1:
        return f"{mean:.5g} at {at} (seed {drawn.seeds[0]})"
    between = f"{drawn.y.low[-1]:.5g} to {drawn.y.high[-1]:.5g}"
    return f"{mean:.5g} ({between}) at {at}, seeds {', '.join(map(str, drawn.seeds))}"


def _as_json(
    typed: argparse.Namespace,
    labels: Sequence[str],
    curves: Sequence[Curve],
    runs: Sequence[Sequence[Recorded]],
) -> dict[str, Any]:
    """The keys are those that the help lists."""
    return {
        "format": 1,
        "x": typed.x,
        "y": typed.y,
        "curves": [
            {
                "label": label,
                "seeds": list(each.seeds),
                "runs": [str(run.path) for run in of],
                "x": each.x.tolist(),
                **_spread(each),
            }
            for label, each, of in zip(labels, curves, runs, strict=True)
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
