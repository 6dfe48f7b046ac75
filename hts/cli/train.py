"""`hts-train`: one experiment, from its name to its configuration."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from hts import signals
from hts.cli import shell
from hts.cli.show_config import show_config
from hts.config import Given, Machine, Resolved, configure, ready_configs
from hts.config.ready import ready
from hts.config.sources import from_sets
from hts.determinism import numerics
from hts.errors import WrongUsage
from hts.remote.port import Port
from hts.report.extension import HORIZONS
from hts.report.metrics import table
from hts.report.resume import Resumed, resume
from hts.report.say import be_verbose
from hts.report.start import Start, find_start, require_start
from hts.runtime import nursery
from hts_envs.options import either
from hts_envs.registry import FAMILIES

DESCRIPTION = "Train an agent: fast, and with the same result on any machine layout."

EPILOG = """examples:
  hts-train --algo ppo --env gfootball:3v1 --show-config
  hts-train --config ppo-cartpole --seed 1 --set learning_rate=1e-3
  hts-train --resume runs/a
  hts-train --resume runs/a --steps 2e6 --schedule-horizon stretch
  hts-train --config ppo-cartpole --seed 1 --start-from runs/a:1200

Values are taken from the defaults, then --config, then --set, then the other
options; without --config, from the ready configuration for this environment and
algorithm, if there is one.

A finished run is extended with --resume RUN and the new total of --steps. This
is another experiment, whose digest goes on from the finished run's; it is
recorded in the same directory, and can be interrupted and resumed. A learning
rate that has fallen to zero needs --schedule-horizon.

--start-from RUN[:UPDATE] begins an experiment with the weights, and the
observation statistics, of a policy or checkpoint of another run with the same
network. Optimiser, critics, replay and schedules begin anew. The run keeps a
copy of the weights, and its identity holds their hash.
"""

USAGE = """\
hts-train --algo NAME --env ENV [options]
       hts-train --config NAME|FILE [options]
       hts-train --resume RUN_DIR [options]"""

FLAGS = {
    "--algo": ("experiment.algo", "NAME", "algorithm: ppo, a2c or pql"),
    "--env": ("experiment.env", "ENV", "environment, such as gfootball:3v1 or gym:CartPole-v1"),
    "--seed": ("experiment.seed", "N", "every random number of the run follows from it"),
    "--steps": ("experiment.steps", "N", "environment steps over all replicas, such as 5e6"),
    "--envs": ("experiment.replicas", "N", "copies of the environment"),
    "--correction": ("experiment.correction", "NAME", "delayed, ratio, truncated_is or none"),
    "--pacing": ("experiment.algo.pacing", "NAME", "of pql's updates: count, or clock"),
    "--executors": ("machine.executors", "N|auto", "processes that step environments"),
    "--actors": ("machine.actors", "N|auto", "processes that answer; 0: executors do it"),
    "--learners": ("machine.learners", "N|auto", "threads that share an update"),
    "--listen": ("machine.listen", "ADDRESS", "where simulators dial in: tcp://127.0.0.1:5555"),
    "--evaluate": ("machine.evaluate_every", "N|auto", "updates between evaluations; 0: none"),
    "--device": ("machine.device", "NAME", "auto, cpu, cuda or cuda:N"),
}
"""Named flags that are values of the configuration: path, placeholder, help."""

SCHEDULES = {"hts": ("hts", "false"), "hts_barrier": ("hts", "true"), "sync": ("sync", "false")}
"""--schedule to experiment.schedule and machine.barrier: the barrier changes no digest."""

SHOWN = {
    "plain": "lines, also where a live view could be drawn",
    "quiet": "only problems, and how it ended",
    "json-log": "one JSON object in each line of standard output",
}
"""How a run is shown, if not as a live view, or as lines where there is no terminal."""


def parser(
    command: str = "hts-train", description: str = DESCRIPTION, epilog: str = EPILOG
) -> shell.Parser:
    """What names an experiment and a machine, for `hts-train` and the commands that are like it."""
    made = shell.Parser(
        prog=command,
        description=description,
        epilog=f"{epilog}\n{_ready_configurations()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.option_for = option_for
    made.add_argument(
        "--config",
        metavar="NAME|FILE",
        help="ready configuration, listed below, or YAML file",
    )
    for flag, (_, placeholder, text) in FLAGS.items():
        made.add_argument(flag, metavar=placeholder, help=text)
    made.add_argument(
        "--schedule",
        metavar="NAME",
        help="hts: collect and learn at once; hts_barrier: the same with the paper's "
        "swap; sync: in turn",
    )
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any value of the configuration, by dotted or short name; may be repeated",
    )
    return made


def option_for(word: str) -> str | None:
    """Return the option that a word without one was meant for, where that is clear."""
    if word in ready_configs() or word.endswith((".yaml", ".yml")):
        return "--config"
    return "--env" if word.partition(":")[0] in FAMILIES else None


def _ready_configurations() -> str:
    """Return the names for `--config`, those without an environment apart."""
    whole = [each.name for each in ready() if each.env is not None]
    bases = [each.name for each in ready() if each.env is None]
    paragraphs = []
    for title, names in (("ready configurations:", whole), ("bases, which need --env:", bases)):
        lines = textwrap.wrap(", ".join(names), 76, break_on_hyphens=False)
        paragraphs.append("\n  ".join([title, *lines]))
    return "\n".join(paragraphs)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    made = parser()
    made.usage = USAGE
    made.add_argument("--run-dir", type=Path, metavar="DIR", help="new directory for the run")
    made.add_argument(
        "--resume",
        type=Path,
        metavar="RUN_DIR",
        help="go on with a run that was interrupted, on this or another machine layout; a finished "
        "run is extended with --steps, the new total",
    )
    made.add_argument(
        "--checkpoint", metavar="UPDATE", help="with --resume: from this one, not the newest"
    )
    made.add_argument(
        "--schedule-horizon",
        choices=tuple(HORIZONS),
        help="with --resume and more --steps, where the learning rate falls: "
        + "; ".join(f"{name}: it {what}" for name, what in HORIZONS.items()),
    )
    add_start(made)
    made.add_argument(
        "--seeds",
        metavar="0..4|0,3,7",
        help="run these seeds in turn, each in a directory of its own below --run-dir",
    )
    made.add_argument(
        "--show-config",
        action="store_true",
        help="print the resolved configuration with the origin of each value, and end",
    )
    shown = made.add_mutually_exclusive_group()
    for flag, text in SHOWN.items():
        shown.add_argument(
            f"--{flag}", dest="shown", action="store_const", const=flag, default="live", help=text
        )
    made.add_argument("--verbose", action="store_true", help="details too, in lines of their own")
    made.add_argument(
        "--help-metrics",
        action="store_true",
        help="print every name that a run writes, with its unit and meaning, and end",
    )
    if not (sys.argv[1:] if argv is None else argv):
        made.print_usage(sys.stderr)
        shell.tell("hts-train", "nothing to train; --help lists the options and gives examples")
        return shell.WRONG_USAGE
    typed = made.parse_args(argv)
    return shell.run("hts-train", lambda: _train(typed), listens=False)


def _train(typed: argparse.Namespace) -> int:
    if typed.help_metrics:
        print("\n".join(table()))
        return shell.DONE
    seeds = [] if typed.seeds is None else seeds_of(typed)
    resumed, start = _resumed(typed), start_of(typed)
    if seeds:
        resolved = _seeded(typed, seeds[0], start)
    elif resumed is None:
        resolved = configured(typed, start, [])
    else:
        resolved = resumed.resolved
    if typed.show_config:
        print(show_config(resolved, colour=sys.stdout.isatty()))
        return shell.DONE
    check_port(resolved.config.machine)
    if typed.verbose:
        be_verbose()
    nursery.warm()  # beside this process, which imports torch too
    numerics.prepare()
    from hts.runtime.seeds import train_seeds
    from hts.runtime.train import go_on, train  # imports torch, whose numerics had to be set first

    signals.listen()  # SIGTERM ends a run as Ctrl-C does
    if resumed is not None:
        return go_on(resumed, typed.shown)
    if typed.seeds is not None:
        runs = [_seeded(typed, seed, start) for seed in seeds]
        return train_seeds(runs, typed.run_dir, typed.shown, start)
    return train(resolved, typed.run_dir, typed.shown, start)


def check_port(machine: Machine) -> None:
    """Refuse a wrong address before torch is imported, which takes seconds."""
    if machine.listen is not None:
        Port.checked(machine.listen, machine.keys)


def _resumed(typed: argparse.Namespace) -> Resumed | None:
    """The run to go on with, where one was named."""
    if typed.resume is None:
        if typed.checkpoint is not None:
            raise WrongUsage("--checkpoint needs --resume")
        if typed.schedule_horizon is not None:
            raise WrongUsage("--schedule-horizon needs --resume and more --steps")
        return None
    for flag, kept in (("--config", "configuration"), ("--run-dir", "directory")):
        if getattr(typed, flag.removeprefix("--").replace("-", "_")) is not None:
            raise WrongUsage(
                f"{flag} cannot be combined with --resume: a resumed run keeps its {kept}"
            )
    said = typed.checkpoint
    if said is not None and not said.isdigit():
        raise WrongUsage(f"--checkpoint: must be a whole number of updates, not {said!r}")
    given = [*from_sets(typed.set), *flags(typed)]
    update = None if said is None else int(said)
    return resume(typed.resume, given, update, typed.schedule_horizon)


def seeds_of(typed: argparse.Namespace) -> list[int]:
    """What `--seeds` names, where nothing else names a seed."""
    for name in ("seed", "resume"):
        if getattr(typed, name) is not None:
            raise WrongUsage(f"--seeds cannot be combined with --{name}")
    return seeds_in(typed.seeds)


def seeds_in(said: str) -> list[int]:
    """Numbers and ranges, both ends in them."""
    found: list[int] = []
    for part in said.split(","):
        first, dots, last = part.partition("..")
        ends = (first, last if dots else first)
        if not all(end.strip().isdecimal() for end in ends) or int(ends[0]) > int(ends[1]):
            raise WrongUsage(f"--seeds {said}: write it as 0..4 or 0,3,7")
        found += range(int(ends[0]), int(ends[1]) + 1)
    if len(set(found)) != len(found):
        raise WrongUsage(f"--seeds {said}: names a seed twice; name each once")
    return found


def _seeded(typed: argparse.Namespace, seed: int, start: Start | None) -> Resolved:
    """The configuration with this seed."""
    given = Given("experiment.seed", str(seed), f"--seeds {typed.seeds}")
    return configured(typed, start, [given])


def add_start(made: argparse.ArgumentParser) -> None:
    """Add the flag of commands that can begin with the weights of another run."""
    made.add_argument(
        "--start-from",
        metavar="RUN[:UPDATE]",
        help="begin with the weights of this run, as they were after so many updates, or with its "
        "newest ones; all else begins anew",
    )


def start_of(typed: argparse.Namespace) -> Start | None:
    """Return the weights that `--start-from` names."""
    if typed.start_from is None:
        return None
    if getattr(typed, "resume", None) is not None:
        raise WrongUsage("--start-from: a run that is resumed has its own weights; leave it out")
    return find_start(typed.start_from)


def configured(typed: argparse.Namespace, start: Start | None, given: Sequence[Given]) -> Resolved:
    """Return the configuration that was typed, for these weights, with a few more values."""
    more = [*given, *([] if start is None else [start.given])]
    resolved = configure(typed.config, typed.set, [*flags(typed), *more])
    require_start(resolved.config.experiment, start)
    return resolved


def unknown_schedule(name: str) -> str:
    return f"--schedule: must be {either([*SCHEDULES])}, not {name!r}"


def flags(typed: argparse.Namespace) -> list[Given]:
    """The named flags that were typed, as values of the configuration."""
    given = []
    for flag, (path, _, _) in FLAGS.items():
        value = getattr(typed, flag.removeprefix("--").replace("-", "_"))
        if value is not None:
            given.append(Given(path, value, flag))
    if typed.schedule is not None:
        if typed.schedule not in SCHEDULES:
            raise WrongUsage(unknown_schedule(typed.schedule))
        schedule, barrier = SCHEDULES[typed.schedule]
        given.append(Given("experiment.schedule", schedule, "--schedule"))
        given.append(Given("machine.barrier", barrier, "--schedule"))
    return given


if __name__ == "__main__":
    sys.exit(main())
