"""`hts-bench`: how fast is a run, beside how fast it could be at best on this machine?"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hts import signals
from hts.bench.presets import PRESETS, Preset
from hts.cli import shell, train
from hts.config import Given, Resolved, configure
from hts.determinism import numerics
from hts.errors import WrongUsage
from hts_envs.spelling import hint

if TYPE_CHECKING:
    from hts.bench.session import Asked

DESCRIPTION = """\
Measure what a step, an answer and an update cost, say how fast this machine
could be at best, then train for some seconds and say how much of that was
reached. Takes what hts-train takes; --executors, --actors, --learners,
--schedule and --rollout take lists, and every combination is run.
"""

EPILOG = """\
presets:
{presets}

examples:
  hts-bench football
  hts-bench instant --executors 1,2 --actors 0,2
  hts-bench --env gym:CartPole-v1 --seconds 10 --json

Other programs on the same cores lower what is reached; the last column says how
much they took. exit code: 0 done, 1 something failed, 2 wrong usage
"""

LISTS = ("executors", "actors", "learners", "schedule", "rollout")
"""Flags that take a list here."""


def parser() -> argparse.ArgumentParser:
    """hts-train's command line, with a preset before it and lists in it."""
    width = max(map(len, PRESETS))
    listed = "\n".join(f"  {name:<{width}}  {preset.what}" for name, preset in PRESETS.items())
    made = train.parser("hts-bench", DESCRIPTION, EPILOG.format(presets=listed))
    made.add_argument("preset", nargs="?", metavar="PRESET", help=f"of {', '.join(PRESETS)}")
    made.add_argument("--rollout", metavar="N", help="steps of each replica between two versions")
    made.add_argument("--seconds", default="20", metavar="S", help="for each run (20)")
    made.add_argument(
        "--parts", action="store_true", help="what an observation costs, part by part"
    )
    made.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run("hts-bench", lambda: _bench(typed), listens=False)


def _bench(typed: argparse.Namespace) -> int:
    preset = _preset(typed.preset)
    seconds, resolved = _seconds(typed.seconds), _configs(typed, preset)
    numerics.prepare()
    from hts.bench.session import Asked
    from hts.runtime.preview import fitted

    signals.listen()
    configs = [fitted(each).config for each in resolved]
    asked = Asked(configs, seconds, typed.parts or preset.parts)
    return _print_json(asked) if typed.json else _print_table(asked)


def _preset(name: str | None) -> Preset:
    if name is None:
        return Preset("what was typed", ())
    if name not in PRESETS:
        option = train.option_for(name)
        close = f" (did you mean '{option} {name}'?)" if option else hint(name, PRESETS)
        raise WrongUsage(f"there is no preset {name!r}{close}")
    return PRESETS[name]


def _seconds(said: str) -> float:
    try:
        seconds = float(said)
    except ValueError:
        seconds = math.nan
    if not 1.0 <= seconds < 1e6:  # false for what is no number, too
        raise WrongUsage(f"--seconds: must be a number from 1 to 1000000, not {said!r}")
    return seconds


def _configs(typed: argparse.Namespace, preset: Preset) -> list[Resolved]:
    """One configuration for each combination of what was listed."""
    listed = {name: getattr(typed, name) or preset.lists.get(name) for name in LISTS}
    axes = {name: said.split(",") for name, said in listed.items() if said is not None}
    configs = []
    for values in itertools.product(*reversed(axes.values())):  # rollouts change last
        for name, value in zip(reversed(axes), values, strict=True):
            setattr(typed, name, value)
        rollout = [] if typed.rollout is None else [("experiment.rollout", typed.rollout)]
        flags = [Given(path, value, "--rollout") for path, value in rollout]
        sets = [*preset.sets, *typed.set]
        configs.append(configure(typed.config, sets, [*train.flags(typed), *flags]))
    if any(each.config.experiment.windows for each in configs):
        raise WrongUsage(
            "--algo pql cannot be measured by hts-bench; use tools/pql_speed, which takes the same"
        )
    return configs


def _print_table(asked: Asked) -> int:
    """Rows as they come; what holds for several of them stands above, once."""
    from hts.bench import tell
    from hts.bench.session import outcomes

    code, before = shell.DONE, None
    for outcome in outcomes(asked):
        if outcome.found is not before:
            print("\n".join(tell.heading(outcome)), f"\n{tell.HEADING}", sep="")
            before = outcome.found
        print(tell.row(outcome), flush=True)
        if outcome.reading is None:
            shell.tell("hts-bench", outcome.failure)
            code = shell.FAILED
        else:
            print(tell.memory(outcome), flush=True)
    return code


def _print_json(asked: Asked) -> int:
    from hts.bench import tell
    from hts.bench.session import outcomes

    found = [tell.as_json(outcome) for outcome in outcomes(asked)]
    print(json.dumps({"format": 1, "outcomes": found}, indent=2, allow_nan=False))
    return shell.FAILED if any(each["failure"] for each in found) else shell.DONE


if __name__ == "__main__":
    sys.exit(main())
