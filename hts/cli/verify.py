"""`hts-verify`: one experiment on many machine layouts; are the digests equal?"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import sys
import traceback
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hts import signals
from hts.cli import shell, train
from hts.config import Config, Experiment, Given, Machine, Resolved
from hts.config.check import check
from hts.config.extended import Count
from hts.determinism import numerics
from hts.errors import BadConfig, RoleFailed, WrongUsage
from hts.report.start import Start
from hts_envs.contract import Spaces
from hts_envs.errors import BadName, BadOption, MissingPackages
from hts_envs.options import coerce
from hts_envs.randomness import fold
from hts_envs.registry import parse

if TYPE_CHECKING:
    from hts.runtime.again import Setting
    from hts.runtime.verify import Outcome

DESCRIPTION = """\
Run the first updates of one experiment on many machine layouts, and compare
their digests with the serial runner's and with another seed's. Takes what
hts-train takes; --executors, --actors, --learners, --stepping and --schedule
take lists, and every combination is run (1,2 executors with 0,1 actors and 1,2
learners, as far as the experiment allows, where nothing is said).

With --kill, that many processes of every run are killed (SIGKILL) while it
works: executors, actors or the learner, at moments that follow from the seed.
With --interrupt, every run is stopped that many times, written to a checkpoint,
and goes on from it on the next layout of the list. No digest may show any of
it.

With --listen, the simulators of every layout dial in, such as those of
hts-executor --stay, and the serial runner's are built here. Nobody here can
build those of remote:; then the first layout is what the others are compared
with.
"""

EPILOG = """\
examples:
  hts-verify --env gfootball:3v1 --updates 2
  hts-verify --config smoke --executors 1,2 --actors 0,1,4 --schedule hts,sync
  hts-verify --config smoke --set shards=2 --learners 1,2 --jitter 5 --load
  hts-verify --config smoke --kill 3 --interrupt 2
  hts-verify --config smoke --listen tcp://127.0.0.1:5555 --kill 2

exit code: 0 all layouts agree and another seed does not, 1 otherwise,
           2 wrong usage
"""

AXES = ("executors", "actors", "learners", "stepping")
"""Flags that take a list here: values of the machine by the same name."""


@dataclasses.dataclass(frozen=True)
class Harm:
    """What is done to every run of the matrix."""

    kills: int
    stops: int


_NAME = "{:>9} {:>6} {:>8} {:>8}  {:<11}"
_ROW = "  {:<46}  {:<32} {:>7}  {}"


def parser() -> argparse.ArgumentParser:
    """hts-train's command line, with lists where the matrix varies."""
    made = train.parser("hts-verify", DESCRIPTION, EPILOG)
    made.add_argument("--stepping", metavar="NAME", help="of blocks: turns, threads or auto")
    made.add_argument(
        "--updates",
        metavar="N",
        help="of each run (4, behind those of random actions, and 2 more for each kill and "
        "interruption; or as many as it has)",
    )
    made.add_argument("--kill", metavar="N", help="kill so many processes of each run meanwhile")
    made.add_argument(
        "--interrupt", metavar="N", help="stop each run so often, and go on on the next layout"
    )
    made.add_argument("--jitter", metavar="MS", help="random delays up to this, everywhere")
    train.add_start(made)
    made.add_argument("--load", action="store_true", help="keep every core busy meanwhile")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run("hts-verify", lambda: _verify(typed), listens=False)


def _verify(typed: argparse.Namespace) -> int:
    start = train.start_of(typed)
    resolved, axes = _asked(typed, start)
    config = resolved.config
    harm = Harm(_count("--kill", typed.kill, 0), _count("--interrupt", typed.interrupt, 0))
    updates = _updates(typed.updates, config.experiment, harm)
    layouts = _layouts(config, axes)
    train.check_port(config.machine)
    numerics.prepare()
    from hts.runtime.again import Setting
    from hts.runtime.busy import busy_cores
    from hts.runtime.preview import fitted

    signals.listen()
    config = fitted(resolved).config
    layouts, spaces = _listening(config, layouts)
    plain = Setting(config.experiment, layouts[0], spaces=spaces, start=start)
    settings = list(_settings(plain, layouts, updates, harm))
    with busy_cores() if typed.load else contextlib.nullcontext():
        return _compare(settings, updates)


def _asked(typed: argparse.Namespace, start: Start | None) -> tuple[Resolved, dict[str, list[Any]]]:
    """The configuration without what varies, and the values of what does; all problems at once."""
    axes, problems = _axes(typed)
    barriers = _barriers(typed, problems)
    for name in AXES:
        setattr(typed, name, None)
    jitter = [Given("machine.jitter", typed.jitter, "--jitter")] if typed.jitter else []
    try:
        resolved = train.configured(typed, start, jitter)
    except BadConfig as error:
        raise BadConfig([*problems, *error.problems]) from None
    if resolved.config.experiment.is_paced_by_clock:
        problems.append(
            "experiment.algo.pacing: runs that the clock paces have digests that differ; use count"
        )
    if problems:
        raise BadConfig(problems)
    return resolved, {**axes, "barrier": barriers or [resolved.config.machine.barrier]}


def _axes(typed: argparse.Namespace) -> tuple[dict[str, list[Any]], list[str]]:
    """The lists that were typed, as values of the machine; and what is wrong in them."""
    axes: dict[str, list[Any]] = {}
    problems = []
    kinds = typing.get_type_hints(Machine, include_extras=True)
    for name in AXES:
        said = getattr(typed, name)
        for text in () if said is None else said.split(","):
            try:
                axes.setdefault(name, []).append(coerce(text.strip(), kinds[name]))
            except ValueError as error:
                problems.append(f"--{name}: {error}")
    return {name: list(dict.fromkeys(values)) for name, values in axes.items()}, problems


def _barriers(typed: argparse.Namespace, problems: list[str]) -> list[bool]:
    """With and without the barrier, as the schedules say; what was typed becomes the first one."""
    if typed.schedule is None:
        return []
    schedules = list(dict.fromkeys(typed.schedule.split(",")))
    unknown = [schedule for schedule in schedules if schedule not in train.SCHEDULES]
    for schedule in unknown:
        problems.append(train.unknown_schedule(schedule))
    if "sync" in schedules and len(schedules) > 1:
        problems.append("--schedule: sync is another experiment; verify it alone: --schedule sync")
    typed.schedule = None if unknown else schedules[0]
    return [schedule == "hts_barrier" for schedule in schedules]


def _count(flag: str, said: str | None, otherwise: int) -> int:
    if said is None:
        return otherwise
    try:
        return int(coerce(said, Count))
    except ValueError as error:
        raise WrongUsage(f"{flag}: {error}") from None


def _updates(said: str | None, experiment: Experiment, harm: Harm) -> int:
    """Of each run: as many as are asked for, or as many as it takes to do the harm."""
    usual = 4 + 2 * (harm.kills + harm.stops) + experiment.unlearnt
    updates = _count("--updates", said, min(usual, experiment.updates))
    if updates > experiment.updates:
        raise WrongUsage(
            f"--updates {said}: {experiment.steps:,} steps are {experiment.updates:,} updates; "
            "give more --steps"
        )
    if harm.stops >= updates:
        more = "--updates" if updates < experiment.updates else "--steps"
        raise WrongUsage(
            f"--interrupt {harm.stops}: between {updates:,} updates there are {updates - 1:,} "
            f"places to stop at; give more {more}"
        )
    return updates


def _layouts(config: Config, typed: Mapping[str, Sequence[Any]]) -> list[Machine]:
    """Every combination; one that cannot be is refused before anything runs."""
    experiment = config.experiment
    here = config.machine.dialled_in(experiment.replicas).start  # replicas that are not dialled in
    axes = {
        "executors": sorted({1, min(2, here or 1)}),
        "actors": [0, 1],
        "learners": sorted({1, min(2, experiment.shard_count)}),
        **typed,
    }
    layouts = [
        dataclasses.replace(config.machine, serial=False, **dict(zip(axes, values, strict=True)))
        for values in itertools.product(*axes.values())
    ]
    configs = [Config(experiment=experiment, machine=layout) for layout in layouts]
    problems = list(dict.fromkeys(problem for each in configs for problem in check(each)))
    if problems:
        raise BadConfig(problems)
    return layouts


def _listening(config: Config, layouts: list[Machine]) -> tuple[list[Machine], Spaces | None]:
    """The layouts with one port that simulators dial in at, run after run; and what the first of
    them says, where nobody here can build one."""
    from hts.remote.meet import meet
    from hts.runtime.assemble import shortage
    from hts.runtime.verify import port

    def say(sentence: str) -> None:
        shell.tell("hts-verify", sentence)

    where = port(config.machine)
    if where is None:
        return layouts, None
    layouts = [dataclasses.replace(layout, listen=where.address) for layout in layouts]
    if parse(config.experiment.env).family.name == "remote":
        return layouts, meet(where, say, partial(shortage, config.experiment))
    say(f"simulators dial in at {where.address}, once for each layout (hts-executor --stay)")
    return layouts, None


def _settings(
    plain: Setting, layouts: Sequence[Machine], updates: int, harm: Harm
) -> Iterator[Setting]:
    """A run for each layout, the harm that is done to it, and where it goes on after each stop."""
    from hts.runtime.disturb import Trouble

    able = [
        dataclasses.replace(layout, replacements=max(layout.replacements, harm.kills))
        for layout in layouts
    ]
    for place, layout in enumerate(able):
        seed = fold(plain.experiment.seed, place)
        elsewhere = (*able[place + 1 :], *able[: place + 1])
        trouble = Trouble(updates, harm.kills, harm.stops, elsewhere, seed)
        yield dataclasses.replace(plain, machine=layout, trouble=trouble)


def _compare(settings: Sequence[Setting], updates: int) -> int:
    """The table, a row for each layout as it ends; the first that differs is looked into."""
    from hts.runtime.devices import device_of
    from hts.runtime.verify import difference, reference

    experiment, alone = settings[0].experiment, reference(settings)
    print(f"{experiment.env}: {updates} updates of {experiment.rows:,} rows on each layout")
    under = numerics.facts(numerics.describe(device_of(alone.machine)))
    print(f"numerics: {', '.join(f'{name} {value}' for name, value in under.items())}")
    print(_ROW.format(_NAME.format(*AXES, "schedule"), "digest", "seconds", "").rstrip())
    name = "serial runner" if alone.machine.serial else "the first layout, undisturbed"
    first = _attempt(name, alone, updates)
    if first is None:
        return shell.FAILED
    agree = True
    for setting in settings:
        other = _attempt(_name(setting), setting, updates, first)
        if agree and other is not None and other.digest != first.digest:
            print(f"    {difference(alone, setting, (first, other))}", flush=True)
        agree = agree and other is not None and other.digest == first.digest
    agree = _other_seed(alone, updates, first) and agree
    print("equal on every layout" if agree else "NOT equal")
    return shell.DONE if agree else shell.FAILED


def _attempt(
    name: str, setting: Setting, updates: int, first: Outcome | None = None
) -> Outcome | None:
    """One layout, its row in the table; none where it failed."""
    from hts.runtime.verify import outcome

    try:
        found = outcome(setting, updates)
    except (WrongUsage, BadName, BadOption, MissingPackages):
        raise  # no layout can run this: the person who typed it is told
    except Exception as error:
        whole = str(error) if isinstance(error, RoleFailed) else traceback.format_exc()
        print(_ROW.format(name, "FAILED", "", "").rstrip(), flush=True)
        shell.tell("hts-verify", whole.rstrip())
        return None
    verdict = "" if first is None else "same" if found.digest == first.digest else "DIFFERENT"
    _row(name, found, verdict + _survived(found))
    for mark in found.marks:
        print(f"    {mark}", flush=True)
    return found


def _other_seed(alone: Setting, updates: int, first: Outcome) -> bool:
    """Equality means something: another seed has other rollouts, from the first one on."""
    from hts.runtime.verify import outcome

    seed = alone.experiment.seed ^ 1
    experiment = dataclasses.replace(alone.experiment, seed=seed)
    found = outcome(dataclasses.replace(alone, experiment=experiment), updates)
    differs = found.links[0].rollout != first.links[0].rollout
    verdict = "differs, as it must" if differs else "SAME: the seed does nothing"
    name = "serial runner" if alone.machine.serial else "the first layout"
    _row(f"{name}, seed {seed}", found, verdict)
    return differs


def _name(setting: Setting) -> str:
    """A layout in a few words, in columns."""
    machine = setting.machine
    schedule = "hts_barrier" if machine.barrier else setting.experiment.schedule
    return _NAME.format(*(getattr(machine, name) for name in AXES), schedule)


def _survived(found: Outcome) -> str:
    """What was done to it, in words."""
    counts = ((found.killed, "killed"), (found.stopped, "interrupted"))
    return "".join(f", {count} {what}" for count, what in counts if count)


def _row(name: str, found: Outcome, verdict: str) -> None:
    print(_ROW.format(name, found.digest, f"{found.seconds:.1f}", verdict).rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
