"""`hts-check ENV`: is this simulator sound and deterministic, how fast, on which machine?

`hts-check --replay FILE`: does what failed in a run fail again?
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from hts.cli import shell
from hts.determinism import numerics
from hts.soundness import reproduce
from hts.soundness.case import Case
from hts.soundness.examine import Budget
from hts.soundness.findings import Report
from hts.soundness.in_child import examine_in_child
from hts.soundness.listing import environments, families, render_environments, render_families
from hts.soundness.render import render
from hts.soundness.replay import LIMIT
from hts_envs.options import Range

DESCRIPTION = """\
Is this simulator sound and deterministic? Runs it several times, here and in a
fresh process, with random actions, compares every bit, and looks at what it
returns. Then says how long its steps take and which machine suits it.

With --replay: takes what failed in a run again, from the case that the run
wrote, twice, each time in a fresh process, and says whether it fails again.
"""

EPILOG = """\
examples:
  hts-check gym:CartPole-v1
  hts-check 'gfootball:3v1?agents=3' --seconds 60
  hts-check --list             which families of environments can be used here
  hts-check --list gfootball   the environments of one family, and their options
  hts-check --replay runs/A/failures/raises-replica3-rollout7-step2.safetensors

keys of --json:
  format       1; a key is never renamed within a format
  environment  the name with every option spelled out
  seed, seconds, sound
  world        agents, batched, replicas, observation, observation_bytes,
               action, traits, description
  findings     a list of level (ok, note, warning, error), check, text, detail
  profile      step, reset: count, mean, p50, p99, worst, deviation, variance,
               in seconds; steps_per_second, cores_busy, waiting_share,
               interrupted_share,
               reset_share, episode_length_mean, memory_of_replica_bytes
  suggestion   executors, replicas (of each executor), rollout, each with _why

and with --replay:
  format       1
  environment, seed, replicas, failed (a replica or null), failure (kind, words)
  comes_again, differs, strayed (where, or null), replays: a list of calls,
               seconds, where, failure

exit code: 0 sound (warnings and notes included), 1 unsound, 2 wrong usage;
with --replay 0 when the failure does not come again, 1 when it does
"""

_SECONDS = shell.reads(Annotated[float, Range(above=0)])


def parser() -> argparse.ArgumentParser:
    """The command line of `hts-check`."""
    made = shell.Parser(
        prog="hts-check",
        usage=(
            "hts-check ENV [options]\n       hts-check --list [FAMILY]\n"
            "       hts-check --replay FILE [--limit SECONDS]"
        ),
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("environment", metavar="ENV", nargs="?", help="such as gfootball:3v1")
    made.add_argument(
        "--list",
        metavar="FAMILY",
        nargs="?",
        const="",
        help="list the families, or the environments and options of one",
    )
    made.add_argument("--replay", metavar="FILE", help="take a case again that a run has written")
    made.add_argument(
        "--limit",
        type=_SECONDS,
        metavar="SECONDS",
        help=f"with --replay: so long without progress is a hang ({LIMIT:g})",
    )
    made.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    made.add_argument(
        "--seed", type=_whole(0), default=0, metavar="N", help="of episodes and actions (0)"
    )
    limits = Budget()
    made.add_argument(
        "--episodes",
        type=_whole(2),
        default=limits.episodes,
        metavar="N",
        help=f"in each run at most ({limits.episodes})",
    )
    made.add_argument(
        "--steps",
        type=_whole(2),
        default=limits.steps,
        metavar="N",
        help=f"in each run at most ({limits.steps}); episodes are cut at half of it",
    )
    made.add_argument(
        "--seconds",
        type=_SECONDS,
        default=limits.seconds,
        metavar="S",
        help=f"for everything, about ({limits.seconds:g}); slow simulators get fewer steps",
    )
    return made


def _whole(least: int) -> Callable[[str], int]:
    return shell.reads(Annotated[int, Range(least, 2**63 - 1)])


def main(argv: Sequence[str] | None = None) -> int:
    """Examine one environment, or list what there is."""
    made = parser()
    try:
        asked = made.parse_args(argv)
        if [asked.environment, asked.list, asked.replay].count(None) != 2:
            made.error("name one environment, such as gym:CartPole-v1, or use --list or --replay")
        if asked.limit is not None and asked.replay is None:
            made.error("--limit needs --replay")
    except SystemExit as end:
        return int(end.code or 0)
    work = _list if asked.list is not None else _replay if asked.replay is not None else _examine
    return shell.run("hts-check", lambda: work(asked))


def _list(asked: argparse.Namespace) -> int:
    if asked.list:
        one = environments(asked.list)
        print(json.dumps(one, indent=2) if asked.json else render_environments(one))
    else:
        every = families()
        print(json.dumps(every, indent=2) if asked.json else render_families(every))
    return shell.DONE


def _examine(asked: argparse.Namespace) -> int:
    numerics.set_environment()  # a simulator on torch is measured as an executor would run it
    budget = Budget(asked.episodes, asked.steps, asked.seconds)
    with _own_output(), _progress() as tell:
        report = examine_in_child(asked.environment, asked.seed, budget, tell)
    if asked.json:
        print(json.dumps(as_json(report), indent=2, allow_nan=False))
    else:
        encoding = (sys.stdout.encoding or "").lower().replace("-", "")
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        print(render(report, colour=colour, unicode=encoding.startswith("utf")))
    return shell.DONE if report.sound else shell.FAILED


def _replay(asked: argparse.Namespace) -> int:
    case = Case.read(Path(asked.replay))
    with _own_output(), _progress() as tell:
        found = reproduce.reproduce(case, asked.limit or LIMIT, tell)
    if asked.json:
        print(json.dumps(reproduce.as_json(found), indent=2, allow_nan=False))
    else:
        encoding = sys.stdout.encoding or "ascii"
        print(reproduce.render(found).encode(encoding, "replace").decode(encoding))
    return shell.FAILED if found.comes_again else shell.DONE


def as_json(report: Report) -> dict[str, Any]:
    """What `--json` prints; the keys are those that the help lists."""
    return {
        "format": 1,
        "environment": report.environment,
        "seed": report.seed,
        "seconds": report.seconds,
        "sound": report.sound,
        "world": report.facts,
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
        "profile": report.profile,
        "suggestion": report.suggestion,
    }


@contextlib.contextmanager
def _own_output() -> Iterator[None]:
    """What a simulator prints goes to stderr, so that stdout holds the report alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """One changing line while it works, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    try:
        yield lambda phase: print(f"\r\x1b[K  {phase} ...", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
