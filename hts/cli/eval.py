"""`hts-eval`: how good are the policies of past and running runs?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hts import signals
from hts.cli import shell
from hts.config import Experiment
from hts.config.extended import Count
from hts.determinism import numerics
from hts.errors import WrongUsage
from hts.report import evaluations, judgement, policies, statistics, video
from hts.report.curves import found
from hts.report.filmed import Filmed
from hts.report.judgement import Judged
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
  hts-eval RUN --video episode.mp4 --episode 3 --overlay
  hts-eval runs --target 0.8 --at 3600

final metric           mean over the episodes of the last ten policies (10 each)
final time metric      the same of the last ten there were after --at seconds
required time metric   when the mean over the latest 100 evaluation episodes in
                       eval.jsonl reached --target

Scores where the world has them, otherwise returns. Over several runs that
differ only in their seeds: mean, and the interval in which it lies with 95 %,
resampled over seeds (of one run: over episodes); so for the required time,
where all of them reached the target. For Atari also human-normalised, over
games; intervals there are resampled over the seeds of each game.

keys of --json:
  format   1; a key is never renamed within a format
  runs     a list of run, seed, environment, policies (the lines of eval.jsonl),
           counts (scores or returns), mean, low, high, required (update, steps,
           seconds; null: not reached), human_normalised
  seeds    a list of label, seeds, mean, low, high, required_seconds (null:
           not all reached it), required_low, required_high, required_reached
           (seeds)
  atari    median, interquartile_mean, optimality_gap, intervals (low and high
           by these names; null: one run of each game); null: no Atari
  video    file, update, episode, frames, fingerprint; null: none

exit code: 0 done, 1 failed, 2 wrong usage or a damaged record, 130 interrupted
"""

_COUNT = shell.reads(Count)


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
        "--episodes", type=_COUNT, default=10, metavar="N", help="of each policy (10)"
    )
    which = made.add_mutually_exclusive_group()
    which.add_argument(
        "--checkpoint",
        type=shell.reads(int),
        metavar="UPDATE",
        help="the policy behind so many updates",
    )
    which.add_argument("--last", type=_COUNT, default=10, metavar="N", help="newest policies (10)")
    made.add_argument("--greedy", action="store_true", help="always the likeliest action")
    made.add_argument("--again", action="store_true", help="play also what is known already")
    made.add_argument(
        "--at", type=shell.reads(float), metavar="SECONDS", help="policies there were by then"
    )
    made.add_argument(
        "--target", type=shell.reads(float), metavar="SCORE", help="when was it reached?"
    )
    made.add_argument("--video", type=Path, metavar="FILE", help="one episode, as .mp4 or .gif")
    made.add_argument(
        "--episode", type=shell.reads(int), metavar="N", help="with --video: which of them (0)"
    )
    made.add_argument(
        "--overlay",
        action="store_true",
        help="with --video: write step and return above each frame",
    )
    made.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run("hts-eval", lambda: _eval(typed), listens=False)


def _eval(typed: argparse.Namespace) -> int:
    runs = found(typed.runs)
    _check(typed, runs)
    signals.listen()
    judged = [_judged(run, typed) for run in runs]
    filmed = None if typed.video is None else _film(judged[0], typed)
    told = judgement.record(judged, filmed)
    if typed.json:
        print(json.dumps(told, indent=2))
        return shell.DONE
    for each in judged:
        judgement.show(each, at=typed.at, target=typed.target)
    if len(judged) > 1:
        judgement.show_together(told)
    if filmed is not None:
        _show_film(filmed)
    return shell.DONE


def _check(typed: argparse.Namespace, runs: Sequence[Recorded]) -> None:
    """Nothing that was typed is passed over in silence, and nothing played in vain."""
    if typed.target is not None and typed.greedy:
        raise WrongUsage(
            "--target cannot be combined with --greedy: eval.jsonl holds sampled actions"
        )
    if typed.video is None:
        if typed.episode is not None:
            raise WrongUsage("--episode needs --video")
        if typed.overlay:
            raise WrongUsage("--overlay needs --video")
        return
    video.check(typed.video)
    typed.episode = typed.episode or 0
    if len(runs) > 1:
        raise WrongUsage(f"--video films one run, not {len(runs)}; name one")
    if not 0 <= typed.episode < typed.episodes:
        raise WrongUsage(
            f"--episode: must be a whole number from 0 to {typed.episodes - 1}, "
            f"not {typed.episode}; or play more with --episodes"
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
    with signals.undisturbed():  # an interrupted import can fail in other ways
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
            listed = ", ".join(map(str, sorted({*there, *known}))) or "none"
            raise WrongUsage(
                f"--checkpoint: {run.path} has no policy of update {typed.checkpoint}; "
                f"available: {listed}"
            )
        return [typed.checkpoint]
    published = {*policies.written(run.path / policies.FOLDER), *known}
    updates = sorted(published or there)
    if not updates:
        raise WrongUsage(
            f"{run.path} has no policy yet ({run.status}); hts-train --evaluate N writes one "
            "every N updates, and a checkpoint holds one too"
        )
    if typed.at is not None:
        latest = statistics.before(run.path, typed.at)
        updates = [update for update in updates if update <= latest]
        if not updates:
            raise WrongUsage(
                f"--at {typed.at:g}: {run.path} had no policy by then; name a later time"
            )
    return updates[-typed.last :]


def _policy(run: Recorded, update: int) -> policies.Policy:
    there = policies.available(run.path)
    if update not in there:
        raise WrongUsage(
            f"{run.path}: the policy of update {update} is not kept any more; choose another"
        )
    try:
        return policies.read(there[update], run.identities)
    except Damaged as damage:
        raise WrongUsage(f"{damage}; choose another with --checkpoint") from None


def _film(judged: Judged, typed: argparse.Namespace) -> dict[str, Any]:
    """Play the newest of the policies once more, and keep what one episode looks like."""
    update = int(judged.lines[-1]["update"])
    policy = _policy(judged.run, update)
    evaluating = _evaluating(judged.experiment, typed, shown=True)
    try:
        simulators = evaluating.evaluator.simulators
        film = Filmed(typed.episode, simulators.frame)
        played = evaluating.play(policy, film)[typed.episode]
        captions = film.captions if typed.overlay else ()
        video.write(typed.video, film.frames, simulators.frame_rate, captions)
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


def _show_film(filmed: Mapping[str, Any]) -> None:
    print(
        f"{filmed['file']}: episode {filmed['episode']} of update {filmed['update']:,}, return "
        f"{filmed['return']:.4g}, {filmed['frames']} frames, fingerprint {filmed['fingerprint']}"
    )


if __name__ == "__main__":
    sys.exit(main())
