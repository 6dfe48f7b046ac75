"""`hts-verify`: one experiment on many machine layouts; are the digests equal?"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from hts.cli import shell, train
from hts.config import Experiment, Given, configure
from hts.determinism import numerics
from hts.errors import WrongUsage

DESCRIPTION = """\
Run the first updates of one experiment on several machine layouts, and compare
their digests with each other and with another seed. Takes what hts-train takes.
"""

EPILOG = """\
examples:
  hts-verify --env gfootball:3v1 --updates 2
  hts-verify --config smoke --executors 1,2,4 --schedule hts,hts_barrier --jitter 5

exit code: 0 all layouts agree and another seed does not, 1 otherwise, 2 wrong usage
"""


def parser() -> argparse.ArgumentParser:
    """hts-train's command line, with lists where the matrix varies."""
    made = train.parser("hts-verify", DESCRIPTION, EPILOG)
    made.add_argument("--updates", default="4", metavar="N", help="of each run (4)")
    made.add_argument("--jitter", metavar="MS", help="random delays up to this, everywhere")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run("hts-verify", lambda: _verify(typed))


def _verify(typed: argparse.Namespace) -> int:
    executors = [_whole(text, "--executors") for text in (typed.executors or "1,2").split(",")]
    schedules = (typed.schedule or "hts").split(",")
    for schedule in schedules:
        if schedule not in train.SCHEDULES:
            known = ", ".join(train.SCHEDULES)
            raise WrongUsage(f"--schedule: must be of {known}, got {schedule!r}")
    if "sync" in schedules and len(schedules) > 1:
        raise WrongUsage("--schedule: sync is another experiment; verify it by itself")
    typed.executors, typed.schedule = str(max(executors)), schedules[0]
    jitter = [Given("machine.jitter", typed.jitter, "--jitter")] if typed.jitter else []
    config = configure(typed.config, typed.set, [*train.flags(typed), *jitter]).config
    rows = config.experiment.rows
    steps = rows * _whole(typed.updates, "--updates")
    experiment = dataclasses.replace(config.experiment, steps=steps)
    numerics.prepare()
    from hts.runtime.verify import matrix

    barriers = sorted({schedule == "hts_barrier" for schedule in schedules})
    return _compare(experiment, matrix(executors, barriers, config.machine))


def _compare(experiment: Experiment, layouts) -> int:  # type: ignore[no-untyped-def]
    from hts.runtime.train import device_of
    from hts.runtime.verify import difference, outcome

    device = device_of(layouts[0].machine)
    print(f"{experiment.env}, {experiment.updates} updates of {experiment.rows:,} rows")
    first, agree = outcome(experiment, layouts[0], device), True
    _row(first.layout.name, first.digest, "", first.seconds)
    for layout in layouts[1:]:
        other = outcome(experiment, layout, device)
        same = other.digest == first.digest
        _row(layout.name, other.digest, "same" if same else "DIFFERENT", other.seconds)
        if not same and agree:
            print(f"    {difference(experiment, first, other, device)}")
        agree = agree and same
    reseeded = dataclasses.replace(experiment, seed=experiment.seed + 1)
    other = outcome(reseeded, layouts[0], device)
    differs = other.updates[0].link.rollout != first.updates[0].link.rollout
    verdict = "differs, as it must" if differs else "SAME: the seed does nothing"
    _row(f"serial, seed {reseeded.seed}", other.digest, verdict, other.seconds)
    print("equal on every layout" if agree and differs else "NOT equal")
    return shell.DONE if agree and differs else shell.FAILED


def _row(name: str, digest: str, verdict: str, seconds: float) -> None:
    print(f"  {name:<24} {digest}  {seconds:6.1f} s  {verdict}".rstrip(), flush=True)


def _whole(text: str, flag: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise WrongUsage(f"{flag}: must be whole numbers of at least 1, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
