"""`hts-diff`: where do two past runs part?"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hts import signals
from hts.cli import shell
from hts.config import Config, Machine
from hts.determinism import numerics
from hts.determinism.digest import Link
from hts.errors import BadConfig, HtsError, RoleFailed, WrongUsage
from hts.report.recorded import Comparison, Parted, Recorded, compare, link_of, read

DESCRIPTION = """\
Compare the records of two runs: what differs in what was run, the first update
whose rollout or parameters differ, and the replicas. Then run both again up to
that update, to name the step, the field and both values, and which of them are
those that were recorded.
"""

EPILOG = """\
examples:
  hts-diff runs/ppo-smoke-s0-1 runs/ppo-smoke-s0-2
  hts-diff --quick A B                the records alone
  hts-diff --layout serial A B        run again in one process each

exit code: 0 equal as far as both go, 1 different, 2 wrong usage or a damaged
           record
"""

_REASONS = (
    "a simulator that is not deterministic (hts-check looks for that), other numerics or code than "
    "the record names, or a machine that computes wrongly"
)


def parser() -> argparse.ArgumentParser:
    """Two directories, and how closely to look."""
    made = shell.Parser(
        prog="hts-diff",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("ours", metavar="RUN_A", type=Path, help="directory of a run")
    made.add_argument("theirs", metavar="RUN_B", type=Path, help="directory of another")
    made.add_argument("--quick", action="store_true", help="compare records, run nothing again")
    made.add_argument(
        "--layout",
        choices=("recorded", "serial"),
        default="recorded",
        help="on which machine layout each is run again: its own (recorded), or in one process",
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run("hts-diff", lambda: _diff(typed), listens=False)


def _diff(typed: argparse.Namespace) -> int:
    ours, theirs = read(typed.ours), read(typed.theirs)
    if ours.path.resolve() == theirs.path.resolve():
        raise WrongUsage(f"{ours.path} is both RUN_A and RUN_B; name two runs")
    found = compare(ours, theirs)
    _show("A", ours, found.ours)
    _show("B", theirs, found.theirs)
    same = ours.identity == theirs.identity
    _say_what_was_run(ours, theirs, same)
    if found.parted is None:
        return _say_equal(found, same)
    _say_parted(found.parted, ours, theirs)
    if not typed.quick:
        _look_again(ours, theirs, found.parted, serial=typed.layout == "serial")
    return shell.FAILED


def _show(name: str, run: Recorded, count: int) -> None:
    print(f"{name}  {run.path}: {_updates(count)}, {run.status}")


def _say_what_was_run(ours: Recorded, theirs: Recorded, same: bool) -> None:
    """Whatever differs before the first step: the experiment, the numerics, the machine."""
    experiment = f"experiment {ours.identity}"
    if not same:
        experiment = f"other experiments, {ours.identity} and {theirs.identity}"
    print(experiment)
    _table(_section(ours.config, "experiment."), _section(theirs.config, "experiment."))
    _table(ours.facts, theirs.facts)
    _table(_section(ours.config, "machine."), _section(theirs.config, "machine."))


def _section(config: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name.startswith(prefix)}


def _table(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """The names whose values differ."""
    for name in dict.fromkeys([*ours, *theirs]):
        here, there = ours.get(name, "nothing"), theirs.get(name, "nothing")
        if here != there:
            print(f"  {name:<36} {here} and {there}")


def _say_equal(found: Comparison, same: bool) -> int:
    shared = min(found.ours, found.theirs)
    if not same:
        print(f"other experiments, whose {_updates(shared)} are equal as far as both go")
        return shell.FAILED
    if found.ours == found.theirs:
        print(f"equal: {_updates(shared)}")
    else:
        short, long = ("A", "B") if found.ours < found.theirs else ("B", "A")
        print(f"equal as far as both go: the {_updates(shared)} of {short} begin {long}")
    return shell.DONE


def _say_parted(parted: Parted, ours: Recorded, theirs: Recorded) -> None:
    """The first update that differs, and whose part of it."""
    update = parted.ours.link.update
    if not parted.rollouts_differ:
        print(f"update {update} differs: equal rollouts, other parameters made of them")
        return
    whose = ""
    count, other = (run.config.get("experiment.replicas") for run in (ours, theirs))
    if isinstance(count, int) and count == other:
        whose = _replicas(parted.replicas(count), count)
    print(f"update {update} differs: its rollout{whose}")


def _replicas(groups: Sequence[range], count: int) -> str:
    if not groups:
        return ""
    shown = [f"{g.start}" if len(g) == 1 else f"{g.start}-{g.stop - 1}" for g in groups[:8]]
    more = f" and {len(groups) - 8} more" if len(groups) > 8 else ""
    return f", replicas {', '.join(shown)}{more} of {count:,}"


def _look_again(ours: Recorded, theirs: Recorded, parted: Parted, *, serial: bool) -> None:
    """Run both again up to where they part, and name the step, the field and both values."""
    try:
        configs = [_configuration(run) for run in (ours, theirs)]
        numerics.prepare()
        from hts.report.start import load_start
        from hts.runtime.again import Setting, again

        signals.listen()
        update, began = parted.ours.link.update, time.perf_counter()
        print(f"running both again up to update {update}{_takes(ours, theirs, update)}", flush=True)
        machines = [
            Machine(serial=True, device=config.machine.device) if serial else config.machine
            for config in configs
        ]
        runs = zip((ours, theirs), configs, strict=True)
        starts = [load_start(run.path, config.experiment) for run, config in runs]
        here, there = (
            Setting(config.experiment, machine, start=start)
            for config, machine, start in zip(configs, machines, starts, strict=True)
        )
        found = again(here, there, update)
    except Exception as error:
        print(f"the runs cannot be repeated here: {_in_short(error)}")
        return
    print(f"  that took {time.perf_counter() - began:.1f} s")
    if found.where is not None:
        _say_where(found.where, (ours, theirs), (found.ours, found.theirs))
        return
    _say_vanished(parted, found.ours.rollout, found.ours.parameters)


def _say_where(where: str, records: Sequence[Recorded], repeated: Sequence[Link]) -> None:
    """Print where both runs part now, and which of the values are those that were recorded."""
    print(where)
    update = repeated[0].update
    recorded = [link_of(run, update) for run in records]
    if list(repeated) == recorded:
        return
    for name, now, before in zip("AB", repeated, recorded, strict=True):
        source = "the one that it recorded"
        if now != before:
            source = f"of this run alone: it recorded another update {update}"
        print(f"  {name}'s value is {source}")
    print(f"  so the records may part elsewhere. It may be {_REASONS}")


def _in_short(error: Exception) -> str:
    if isinstance(error, BadConfig):
        return "; ".join(error.problems)
    if isinstance(error, RoleFailed):
        return error.short
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _configuration(run: Recorded) -> Config:
    config = run.configuration()
    if config.experiment.identity() != run.identity:
        raise HtsError(
            f"{run.path}: this version of HTS reads its manifest as experiment "
            f"{config.experiment.identity()}, not {run.identity}"
        )
    return config


def _takes(ours: Recorded, theirs: Recorded, update: int) -> str:
    """About how long, from the speeds that both had."""
    seconds = 0.0
    for run in (ours, theirs):
        steps, updates, speed = (run.result.get(name) for name in ("steps", "updates", "sps"))
        if not (steps and updates and speed):
            return ""
        seconds += update * steps / updates / speed
    return f" (about {seconds:,.1f} s, and twice a start)"


def _say_vanished(parted: Parted, rollout: str, parameters: str) -> None:
    """Both agree now: with whom, and what may have been the reason."""
    print("the difference did not come back: both now give the same")
    for name, line in (("A", parted.ours), ("B", parted.theirs)):
        if (line.link.rollout, line.link.parameters) == (rollout, parameters):
            print(f"  that is what {name} recorded; the record of the other is what nobody gets")
            break
    else:
        print("  and neither recorded it")
    print(f"  {_REASONS}")


def _updates(count: int) -> str:
    return f"{count:,} update{'' if count == 1 else 's'}"


if __name__ == "__main__":
    sys.exit(main())
