"""A table or figure of a paper from runs of this machine; tables with the paper's numbers beside.

    tools/reproduce hts-rl-table4 [--scale small|full] [--seeds 0..4] [--env ENV] [--out DIR]
    tools/reproduce pql-figure3

`small` ends after minutes on two cores, and says what of `full` it leaves out: rows, games, seeds,
steps. `full` makes the paper's steps and seeds: hours for each run on two cores. A run that is
there already is not made again; one that was interrupted goes on. Each run has a directory of its
own, DIR/ENVIRONMENT/ROW-sSEED, and a figure is a picture in DIR.

Exit code: 0 done, 1 a run failed, or rows differ that must not, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOOLS.parent))

# ruff: noqa: E402
from hts import signals
from hts.cli import shell
from hts.cli.train import seeds_in
from hts.errors import WrongUsage
from tools.reproducing.presets import FIGURE_3, PRESETS, Preset, Scale

COMMANDS = {"hts-rl-figure3": FIGURE_3}
SCALES = ("small", "full")
CURVES = ("--x",)  # pictures whose lines are called as the runs' directories are


@dataclass(frozen=True)
class Run:
    """One of the runs: its directory, and what hts-train takes for it."""

    folder: Path
    arguments: Sequence[str]


def main(argv: Sequence[str] | None = None) -> int:
    """What was named; every name with what it is about stands in the help."""
    every: Mapping[str, str] = {
        name: each.about for name, each in sorted({**PRESETS, **COMMANDS}.items())
    }
    about = "\n".join(f"  {name:<22}{text}" for name, text in every.items())
    reader = shell.Parser(
        prog="tools/reproduce",
        description=f"{__doc__}\nnames:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    reader.add_argument("name", choices=tuple(every), metavar="NAME", help="table or figure")
    reader.add_argument("--scale", choices=SCALES, help="(small)")
    reader.add_argument("--seeds", metavar="0..4|0,3,7", help="(small: 0; full: 0..4)")
    reader.add_argument("--env", help="another environment than the paper's")
    reader.add_argument("--out", type=Path, metavar="DIR", help="(runs/NAME-SCALE)")
    typed = reader.parse_args(argv)
    return shell.run("tools/reproduce", lambda: reproduce(typed))


def reproduce(typed: argparse.Namespace) -> int:
    """Run after run, then the table or the picture, then what is not in it."""
    if typed.name in COMMANDS:
        return simulate(typed)
    preset, scale = PRESETS[typed.name], typed.scale or "small"
    if typed.env is not None and preset.compares_envs:
        raise WrongUsage(f"--env: {typed.name} compares environments, so it has its own")
    folder = typed.out or Path("runs") / f"{typed.name}-{scale}"
    part: Scale = getattr(preset, scale)
    seeds = seeds_in(typed.seeds or part.seeds)
    made = list(runs(preset, part, folder, env=typed.env, seeds=seeds))
    for each in made:
        code = train(each)
        if code:
            return code
    code = 0
    for flags in preset.show:
        asked = flags.split()
        if asked[0] in CURVES:
            asked += ["--labels", ",".join(part.arms or preset.arms)]
        code = max(code, show(asked, [each.folder for each in made], folder))
    for line in left_out(preset, part, env=typed.env, seeds=seeds):
        print(f"{scale}: {line}")
    return code


def simulate(typed: argparse.Namespace) -> int:
    """A figure that takes no runs."""
    for name in ("scale", "seeds", "env", "out"):
        if getattr(typed, name) is not None:
            raise WrongUsage(f"--{name}: {typed.name} takes no runs, so there is nothing to choose")
    name, *flags = COMMANDS[typed.name].command
    return ended([TOOLS / name, *flags])


def runs(
    preset: Preset, part: Scale, folder: Path, *, env: str | None, seeds: Sequence[int]
) -> Iterator[Run]:
    """All of them: seed by seed, so that whoever interrupts has whole seeds."""
    for seed in seeds:
        for world in [env] if env else part.envs or preset.envs:
            for arm in part.arms or preset.arms:
                arguments = f"{preset.flags} {preset.arms[arm]} {part.flags}".split()
                name = re.sub(r"[^a-zA-Z0-9.]+", "-", world).strip("-")
                yield Run(
                    folder / name / f"{arm}-s{seed}",
                    ["--env", world, "--seed", str(seed), "--steps", str(part.steps), *arguments],
                )


def left_out(
    preset: Preset, part: Scale, *, env: str | None, seeds: Sequence[int]
) -> Iterator[str]:
    """What of the paper's is not in what was run, in sentences."""
    arms = [arm for arm in preset.arms if part.arms and arm not in part.arms]
    if arms:
        yield f"left out of the rows: {', '.join(arms)}."
    there = [env] if env else part.envs or preset.envs
    worlds = [each for each in preset.envs if each not in there]
    if worlds:
        yield f"left out of the environments: {', '.join(worlds)}."
    missing = [str(seed) for seed in seeds_in(preset.full.seeds) if seed not in seeds]
    if missing:
        yield f"left out of the seeds: {', '.join(missing)}."
    if part.steps < preset.full.steps:
        yield f"{part.steps:,} of {preset.full.steps:,} steps in each run."
    if part is not preset.full and preset.says:
        yield preset.says


def train(made: Run) -> int:
    """One run, from its begin or from where it stands; its exit code."""
    begun = (made.folder / "manifest.json").exists()
    how = ["--resume", made.folder] if begun else [*made.arguments, "--run-dir", made.folder]
    print(f"hts-train {' '.join(map(str, how))}", file=sys.stderr)
    return ended([TOOLS / "hts-train", *map(str, how)])


def ended(command: Sequence[str | Path]) -> int:
    """Its exit code; who interrupts this interrupts it too, and what it then does is waited for."""
    with subprocess.Popen(command) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)


def show(flags: Sequence[str], folders: Sequence[Path], folder: Path) -> int:
    """A table, or a picture with its numbers, of these runs alone."""
    name = "-".join(flags[:2] if flags[0] in CURVES else flags).strip("-")
    picture = ["--out", folder / f"{name}.png", "--overwrite"]
    other = ["--all-environments"] if "--table" in flags else picture
    code = ended([TOOLS / "hts-plot", *folders, *flags, *other])
    print(flush=True)
    return code


if __name__ == "__main__":
    signals.listen()
    sys.exit(main())
