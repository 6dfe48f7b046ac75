"""`hts-train`: one experiment, from its name to its configuration."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hts.cli import shell
from hts.cli.show_config import show_config
from hts.config import Given, Resolved, configure, ready_configs
from hts.determinism import numerics

EXAMPLES = """examples:
  hts-train --algo ppo --env gfootball:3v1 --show-config
  hts-train --config ppo-cartpole --seed 1 --set learning_rate=1e-3 --show-config

Values are taken from the defaults, then --config, then --set, then the other options; without
--config, from the ready configuration for this environment and algorithm, if there is one.
"""

FLAGS = {
    "--algo": ("experiment.algo", "NAME", "algorithm: ppo or a2c"),
    "--env": ("experiment.env", "ENV", "environment, such as gfootball:3v1 or gym:CartPole-v1"),
    "--seed": ("experiment.seed", "N", "every random number of the run follows from it"),
    "--steps": ("experiment.steps", "N", "environment steps over all replicas, such as 5e6"),
    "--envs": ("experiment.replicas", "N", "copies of the environment"),
    "--correction": ("experiment.correction", "NAME", "delayed, ratio, truncated_is or none"),
    "--executors": ("machine.executors", "N|auto", "processes that step environments"),
    "--actors": ("machine.actors", "N|auto", "processes that answer; 0: executors do it"),
    "--learners": ("machine.learners", "N", "workers that share an update"),
    "--device": ("machine.device", "NAME", "auto, cpu, cuda or cuda:N"),
}
"""Named flags that are values of the configuration: path, placeholder, help."""

SCHEDULES = {"hts": ("hts", "false"), "hts_barrier": ("hts", "true"), "sync": ("sync", "false")}
"""--schedule to experiment.schedule and machine.barrier: the barrier changes no digest."""


def parser() -> argparse.ArgumentParser:
    """The command line of `hts-train`."""
    made = shell.Parser(
        prog="hts-train",
        description="Train an agent: fast, and with the same result on any machine layout.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "--config",
        metavar="NAME|FILE",
        help=f"ready configuration or YAML file; ready: {', '.join(ready_configs())}",
    )
    for flag, (_, placeholder, text) in FLAGS.items():
        made.add_argument(flag, metavar=placeholder, help=text)
    made.add_argument(
        "--schedule",
        choices=tuple(SCHEDULES),
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
    made.add_argument("--run-dir", type=Path, metavar="DIR", help="new directory for the run")
    made.add_argument(
        "--show-config",
        action="store_true",
        help="print the resolved configuration with the origin of each value, and end",
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run("hts-train", lambda: _train(typed))


def _train(typed: argparse.Namespace) -> int:
    resolved = configure(typed.config, typed.set, _flags(typed))
    if typed.show_config:
        print(show_config(resolved, colour=sys.stdout.isatty()))
        return shell.DONE
    return _run(resolved, typed.run_dir)


def _flags(typed: argparse.Namespace) -> list[Given]:
    """The named flags that were typed, as values of the configuration."""
    given = []
    for flag, (path, _, _) in FLAGS.items():
        value = getattr(typed, flag.removeprefix("--").replace("-", "_"))
        if value is not None:
            given.append(Given(path, value, flag))
    if typed.schedule is not None:
        schedule, barrier = SCHEDULES[typed.schedule]
        given.append(Given("experiment.schedule", schedule, "--schedule"))
        given.append(Given("machine.barrier", barrier, "--schedule"))
    return given


def _run(resolved: Resolved, run_dir: Path | None) -> int:
    """Train, write the record of the run, and say how it ended."""
    numerics.prepare()
    from hts.runtime.train import train  # imports torch, whose numerics had to be set first

    return train(resolved, run_dir)


if __name__ == "__main__":
    sys.exit(main())
