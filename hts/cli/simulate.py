"""`hts-simulate`: how fast with more replicas, other rollouts, more cores?"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hts import signals
from hts.cli import shell
from hts.errors import WrongUsage
from hts_envs.options import shown

if TYPE_CHECKING:
    from hts.bench.predict import Prediction, Simulator

DESCRIPTION = """\
Predict steps per second for numbers of replicas and lengths of rollout that are
not there, from the step times that hts-check measured: under each schedule, and
under a fully asynchronous one, in which nobody waits and no version is known.
Then say what to choose. Every replica steps beside the others, in an executor
or a thread of its own; the cores limit what computes. Nothing is run.
"""

EPILOG = """\
examples:
  hts-check gfootball:3v1 --json > football.json
  hts-simulate football.json --cores 64 --learning 0.4 --out football.png
  hts-check python:my_sim:make --json | hts-simulate -
  hts-simulate --mean 5 --deviation 5       a simulator that was not measured
  hts-simulate --claims                     the paper's formulas, simulated

keys of --json:
  format       1; a key is never renamed within a format
  predictions  a list of how (hts, hts_barrier, sync, asynchronous), replicas,
               alpha (the rollout's length), steps_per_second, computing (the
               cores are the limit)
  advice       replicas, rollout, steps_per_second, best, ends
  claim_1, claim_2  with --claims: the rows of both tables

exit code: 0 done, 2 wrong usage
"""

REPLICAS, ROLLOUTS = "1,2,4,8,16,32,64,128,256,512,1024,2048,4096", "4,16,64,256"
_MOST_REPLICAS, _MOST_STEPS = 100_000, 10_000

OF_PREDICTIONS = (
    "mean",
    "deviation",
    "answer",
    "learning",
    "cores",
    "replicas",
    "rollouts",
    "out",
)
"""Options that claims have no use for: their values are the paper's, and they are printed."""


def parser() -> argparse.ArgumentParser:
    """A measured simulator or an imagined one, and what to predict for it."""
    made = shell.Parser(
        prog="hts-simulate",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "profile", metavar="FILE", nargs="?", help="what hts-check ENV --json printed; -: stdin"
    )
    made.add_argument("--claims", action="store_true", help="claims 1 and 2 of the HTS-RL paper")
    for flag, text in (
        ("--mean", "of a step, instead of FILE"),
        ("--deviation", "of a step, with --mean (0)"),
        ("--answer", "between an observation and its action (0)"),
        ("--learning", "of an update, for each of its steps (0)"),
    ):
        made.add_argument(flag, metavar="MS", help=f"milliseconds {text}")
    made.add_argument("--cores", metavar="N", help="that compute (as many as this machine has)")
    made.add_argument("--replicas", metavar="N,N", help="(1,2,4 ... 4096)")
    made.add_argument("--rollouts", metavar="N,N", help=f"({ROLLOUTS})")
    made.add_argument("--out", type=Path, metavar="FILE", help="a picture: .png, .svg or .pdf")
    made.add_argument("--overwrite", action="store_true", help="replace the picture that is there")
    made.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run(
        "hts-simulate", lambda: _claims(typed) if typed.claims else _predict(typed), listens=False
    )


def _claims(typed: argparse.Namespace) -> int:
    if typed.profile is not None:
        raise WrongUsage("--claims cannot be combined with FILE: the paper names its simulators")
    useless = [name for name in OF_PREDICTIONS if getattr(typed, name) is not None]
    if useless:
        raise WrongUsage(f"--{useless[0]} cannot be combined with --claims: the paper sets it")
    from hts.bench import foretell

    signals.listen()
    found = foretell.claims()
    if typed.json:
        print(json.dumps({"format": 1, **found}, indent=2, allow_nan=False))
    else:
        print(foretell.claims_in_words(found))
    return shell.DONE


def _predict(typed: argparse.Namespace) -> int:
    from hts.bench import foretell
    from hts.bench.predict import advise, predict
    from hts.report.picture import checked

    signals.listen()
    simulator = _simulator(typed)
    replicas = _list("--replicas", typed.replicas or REPLICAS, _MOST_REPLICAS)
    rollouts = _list("--rollouts", typed.rollouts or ROLLOUTS, _MOST_STEPS)
    out = None if typed.out is None else checked(typed.out, overwrite=typed.overwrite)
    cores = _list("--cores", typed.cores, 10**6)[0] if typed.cores else _cores()
    found = predict(simulator, replicas, rollouts, cores)
    if out is not None:
        foretell.picture(out, found)
    if typed.json:
        print(json.dumps(_as_json(found), indent=2, allow_nan=False))
        return shell.DONE
    print(foretell.heading(simulator, cores))
    print(foretell.table(found))
    print(foretell.advice(found, advise(found), cores))
    if out is not None:
        print(f"drawn in {out}")
    return shell.DONE


def _simulator(typed: argparse.Namespace) -> Simulator:
    from hts.bench.predict import ProfiledTimes, Simulator
    from hts.bench.profiled import read

    if (typed.profile is None) == (typed.mean is None):
        raise WrongUsage(
            "name a FILE that hts-check ENV --json printed, or --mean MS; --help lists more"
        )
    if typed.profile is None:
        times = ProfiledTimes(_seconds(typed, "mean"), _seconds(typed, "deviation"))
        if not times.seconds:
            raise WrongUsage("--mean: must be a number above 0, not 0")
        simulator = Simulator(times=times)
    elif typed.deviation is not None:
        raise WrongUsage("--deviation needs --mean")
    else:
        simulator = read(_text(typed.profile), typed.profile)
    return dataclasses.replace(
        simulator, answer=_seconds(typed, "answer"), learning=_seconds(typed, "learning")
    )


def _text(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise WrongUsage(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise WrongUsage(f"{name}: this is not a text file") from None


def _seconds(typed: argparse.Namespace, name: str) -> float:
    said = getattr(typed, name)
    if said is None:
        return 0.0
    try:
        value = float(said)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < 1e7:  # false for what is no number, too
        raise WrongUsage(f"--{name}: must be a number of milliseconds from 0, not {shown(said)}")
    return value / 1e3


def _list(flag: str, said: str, most: int) -> list[int]:
    """Whole numbers, each once, the smallest first."""
    parts = said.split(",")
    if not all(part.strip().isdecimal() and 1 <= int(part) <= most for part in parts):
        raise WrongUsage(f"{flag}: must be whole numbers from 1 to {most}, not {shown(said)}")
    return sorted({int(part) for part in parts})


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _as_json(found: Sequence[Prediction]) -> dict[str, Any]:
    """The keys are those that the help lists."""
    from hts.bench.predict import advise

    return {
        "format": 1,
        "predictions": [dataclasses.asdict(each) for each in found],
        "advice": dataclasses.asdict(advise(found)),
    }


if __name__ == "__main__":
    sys.exit(main())
