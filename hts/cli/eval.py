"""`hts-eval`: how good are the policies of past and running runs?"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hts import signals
from hts.cli import shell
from hts.config import Experiment
from hts.determinism import numerics
from hts.errors import WrongUsage
from hts.report import evaluations, policies, statistics, video
from hts.report.curves import experiments, found
from hts.report.filmed import Filmed
from hts.report.intervals import bootstrapped
from hts.report.recorded import Recorded
from hts.report.sealed import Damaged

if TYPE_CHECKING:  # torch, whose numerics have to be set first
    from hts.runtime.evaluating import Evaluating

DESCRIPTION = """\
Evaluate the policies of a run as the papers do: whole episodes with the world's
own rewards, the same episodes for every policy, none of them ever trained on.
What `eval.jsonl` of the run says already is not played again.
"""

EPILOG = """\
examples:
  hts-eval runs/ppo-gym-CartPole-v1-s0-20260101-120000
  hts-eval RUN --last 1 --episodes 100 --greedy
  hts-eval RUN --checkpoint 1200
  hts-eval RUN --video episode.mp4 --episode 3
  hts-eval runs --target 0.8 --at 3600

final metric           mean over the episodes of the last ten policies (10 each)
final time metric      the same of the last ten that there were after --at seconds
required time metric   when the mean over the latest 100 evaluation episodes in
                       eval.jsonl reached --target

Scores where the world has them, otherwise returns. Over several runs that differ
only in their seeds: mean, and the interval in which it lies with 95 %, resampled
over seeds (of one run: over episodes); so for the required time, where all of
them reached the target. For Atari also human-normalised, over games; intervals
there are resampled over the seeds of each game.

keys of --json:
  format   1; a key is never renamed within a format
  runs     a list of run, seed, environment, policies (the lines of eval.jsonl),
           counts (scores or returns), mean, low, high, required (update, steps,
           seconds; null: not reached), human_normalised
  seeds    a list of label, seeds, mean, low, high, required_seconds (null: not all
           reached it), required_low, required_high, required_reached (seeds)
  atari    median, interquartile_mean, optimality_gap, intervals (low and high by
           these names; null: one run of each game); null: no Atari
  video    file, update, episode, frames, fingerprint; null: none

exit code: 0 done, 1 failed, 2 wrong usage or a damaged record, 130 interrupted
"""


def parser() -> argparse.ArgumentParser:
    """Runs, which policies, and how they are to play."""
    made = shell.Parser(
        prog="hts-eval",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "runs", metavar="RUN", type=Path, nargs="+", help="directory of a run, or of several"
    )
    made.add_argument(
        "--episodes", type=_count, default=10, metavar="N", help="of each policy (10)"
    )
    which = made.add_mutually_exclusive_group()
    which.add_argument(
        "--checkpoint", type=int, metavar="UPDATE", help="the policy behind so many updates"
    )
    which.add_argument("--last", type=_count, default=10, metavar="N", help="newest policies (10)")
    made.add_argument("--greedy", action="store_true", help="always the likeliest action")
    made.add_argument("--again", action="store_true", help="play also what is known already")
    made.add_argument("--at", type=float, metavar="SECONDS", help="policies there were by then")
    made.add_argument("--target", type=float, metavar="SCORE", help="when was it reached?")
    made.add_argument("--video", type=Path, metavar="FILE", help="one episode, as .mp4 or .gif")
    made.add_argument(
        "--episode", type=int, default=0, metavar="N", help="with --video: which of them (0)"
    )
    made.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run("hts-eval", lambda: _eval(typed))


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


def _eval(typed: argparse.Namespace) -> int:
    runs = found(typed.runs)
    if typed.video is not None:
        _check_video(typed, runs)
    signals.listen()
    judged = [_judged(run, typed) for run in runs]
    filmed = None if typed.video is None else _film(judged[0], typed)
    record = _record(judged, filmed)
    if typed.json:
        print(json.dumps(record, indent=2))
        return shell.DONE
    for each in judged:
        _show(each, typed)
    if len(judged) > 1:
        _show_together(record)
    if filmed is not None:
        _show_film(filmed)
    return shell.DONE


def _check_video(typed: argparse.Namespace, runs: Sequence[Recorded]) -> None:
    video.check(typed.video)
    if len(runs) > 1:
        raise WrongUsage(f"--video: of one run, and these are {len(runs)}")
    if not 0 <= typed.episode < typed.episodes:
        raise WrongUsage(
            f"--episode {typed.episode}: they are counted from 0, and {typed.episodes} are played"
        )


def _judged(run: Recorded, typed: argparse.Namespace) -> Judged:
    """Play what has to be played."""
    experiment = run.configuration().experiment
    known = {} if typed.greedy or typed.again else evaluations.read(run.path)
    lines = {
        update: line for update, line in known.items() if line.get("episodes") == typed.episodes
    }
    evaluating: Evaluating | None = None
    chosen = []
    try:
        for update in _chosen(run, typed, known):
            if update not in lines:
                policy = _policy(run, update)
                if evaluating is None:
                    evaluating = _evaluating(experiment, typed)
                lines[update] = evaluating.line(policy)
            chosen.append(lines[update])
    finally:
        if evaluating is not None:
            evaluating.close()
    required = None if typed.target is None else statistics.reached(run.path, typed.target)
    return Judged(run, experiment, chosen, required)


def _evaluating(
    experiment: Experiment, typed: argparse.Namespace, *, shown: bool = False
) -> Evaluating:
    """Imported where somebody has to play: it takes seconds, and most is known already."""
    numerics.prepare()
    from hts.runtime.evaluating import Evaluating

    return Evaluating(experiment, typed.episodes, greedy=typed.greedy, shown=shown)


def _chosen(
    run: Recorded, typed: argparse.Namespace, known: Mapping[int, Mapping[str, Any]]
) -> list[int]:
    """The updates whose policies are asked about."""
    there = policies.available(run.path)
    if typed.checkpoint is not None:
        if typed.checkpoint not in {*there, *known}:
            listed = ", ".join(map(str, sorted({*there, *known}))) or "none at all"
            raise WrongUsage(
                f"--checkpoint {typed.checkpoint}: {run.path} has no such policy: {listed}"
            )
        return [typed.checkpoint]
    published = {*policies.written(run.path / policies.FOLDER), *known}
    updates = sorted(published or there)
    if not updates:
        raise WrongUsage(
            f"{run.path}: it has no policy yet ({run.status}); hts-train --evaluate N writes one "
            "every N updates, and a checkpoint holds one too"
        )
    if typed.at is not None:
        latest = statistics.before(run.path, typed.at)
        updates = [update for update in updates if update <= latest]
        if not updates:
            raise WrongUsage(f"--at {typed.at:g}: {run.path} had no policy by then")
    return updates[-typed.last :]


def _policy(run: Recorded, update: int) -> policies.Policy:
    there = policies.available(run.path)
    if update not in there:
        raise WrongUsage(f"{run.path}: the policy behind update {update:,} is not kept any more")
    try:
        return policies.read(there[update], run.identity)
    except Damaged as damage:
        raise WrongUsage(f"{damage}; another one is taken with --checkpoint") from None


def _film(judged: Judged, typed: argparse.Namespace) -> dict[str, Any]:
    """Play the newest of the policies once more, and keep what one episode looks like."""
    update = int(judged.lines[-1]["update"])
    policy = _policy(judged.run, update)
    evaluating = _evaluating(judged.experiment, typed, shown=True)
    try:
        simulators = evaluating.evaluator.simulators
        film = Filmed(typed.episode, simulators.frame)
        played = evaluating.play(policy, film)[typed.episode]
        video.write(typed.video, film.frames, simulators.frame_rate)
    finally:
        evaluating.close()
    if film.instead:
        shell.tell("hts-eval", f"--video shows what the policy sees: {film.instead}")
    return {
        "file": str(typed.video),
        "run": str(judged.run.path),
        "update": update,
        "episode": typed.episode,
        "return": played.total,
        "frames": len(film.frames),
        "fingerprint": video.fingerprint(film.frames),
    }


def _record(judged: Sequence[Judged], filmed: dict[str, Any] | None) -> dict[str, Any]:
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


def _show(judged: Judged, typed: argparse.Namespace) -> None:
    """The policies of one run, and what the papers would say about it."""
    print(f"{judged.run.path}: {judged.experiment.env}, seed {judged.experiment.seed}")
    names = [name for name in ("return", "score", "length") if f"eval/{name}" in judged.lines[-1]]
    print(f"{'update':>9}{'steps':>14}{'episodes':>10}" + "".join(f"{n:>12}" for n in names))
    for line in judged.lines:
        means = "".join(f"{line[f'eval/{name}']:>12.6g}" for name in names)
        print(f"{line['update']:>9,}{line['steps']:>14,}{line['episodes']:>10}{means}")
    facts = _of_run(judged)
    metric = "final metric" if typed.at is None else f"final time metric ({typed.at:g} s)"
    count = len(judged.lines)
    counted = f"{facts['counts']}, {len(judged.values)} episodes"
    of = f"{count} {'policies' if count > 1 else 'policy'}"
    print(f"{metric}: {_interval(facts)} ({counted} of {of})")
    if judged.human_normalised is not None:
        print(f"human-normalised: {judged.human_normalised:.3f}")
    if typed.target is not None:
        print(f"required time metric ({typed.target:g}): {_when(judged.required)}")


def _when(required: statistics.Reached | None) -> str:
    if required is None:
        return "-, the mean over 100 evaluation episodes of eval.jsonl was never as high"
    return f"{required.seconds:,.1f} s, {required.steps:,} steps, update {required.update:,}"


def _interval(facts: Mapping[str, Any]) -> str:
    return f"{facts['mean']:.4g} [{facts['low']:.4g}, {facts['high']:.4g}]"


def _show_together(record: Mapping[str, Any]) -> None:
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


def _show_film(filmed: Mapping[str, Any]) -> None:
    print(
        f"{filmed['file']}: episode {filmed['episode']} of update {filmed['update']:,}, return "
        f"{filmed['return']:.4g}, {filmed['frames']} frames, fingerprint {filmed['fingerprint']}"
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return number


if __name__ == "__main__":
    sys.exit(main())
