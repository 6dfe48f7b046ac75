"""Tables of the HTS-RL paper from runs, with the paper's own numbers beside ours.

A row is an environment, or an environment and one value: of the machine, which must not change a
score, or of the experiment. Rows of the paper without a run of ours stand there empty, and so do
our cells where runs do not say enough. Over several seeds a cell is the mean, and the interval in
which it lies with 95 %, resampled over seeds.

score       the final metric: the mean over the evaluation episodes of a run's last ten policies;
            of its last 100 training episodes, where it was not evaluated, and then that is said
final time  the final metric of the policies that there were when the first run of the row was
            over: the paper's limit is the time of its fastest method
minutes     the required time metric, for both targets
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hts.errors import WrongUsage
from hts.report import evaluations
from hts.report.intervals import bootstrapped
from hts.report.printed import DIGEST, IN_TIME, MINUTES, SCORE, SPEED, TABLES, Table
from hts.report.recorded import Recorded
from hts.report.statistics import before, final, reached
from hts_envs.errors import WorldError
from hts_envs.registry import parse

_ENV, _SEED = "experiment.env", "experiment.seed"
_SCHEDULES = ("sync", "hts_barrier", "hts")


@dataclass(frozen=True)
class Row:
    """Runs that agree in the environment and in the table's value."""

    env: str
    value: str
    runs: list[Recorded] = field(default_factory=list)

    @property
    def limit(self) -> float:
        """Seconds, when the first of them was over."""
        return min((float(run.result["seconds"]) for run in self.runs), default=0.0)


@dataclass(frozen=True)
class Made:
    """A table in Markdown, and whether what must be equal in it is."""

    text: str
    equal: bool


def make(name: str, runs: Sequence[Recorded], *, all_environments: bool = False) -> Made:
    """The table of this name; WrongUsage where these runs do not make one.

    Runs of environments that the paper's table does not have are refused, unless asked for.
    """
    table = TABLES[name]
    if not all_environments:
        _require_printed(name, table, runs)
    rows = _rows(table, runs)
    schedules = _schedules(table, runs)
    heads = ["environment", *([_word(table.value)] if table.value else [])]
    heads += [_head(measure, schedule) for schedule in schedules for measure in table.ours]
    heads += [f"their {head}" for head in table.theirs]
    lines = [
        f"HTS-RL, {table.title}. Ours: {_what(runs)}; theirs: as printed.",
        "",
        _line(heads),
        "|" + "---|" * len(heads),
        *(_line(_cells(table, row, schedules)) for row in rows),
    ]
    if not table.same:
        return Made("\n".join(lines), equal=True)
    said, equal = compared(rows)
    return Made("\n".join([*lines, "", said]), equal)


def _require_printed(name: str, table: Table, runs: Sequence[Recorded]) -> None:
    printed = {_world(env): env for env, _ in table.rows}
    for run in runs:
        env, _ = _place(table, run)
        if _world(env) not in printed:
            raise WrongUsage(
                f"{run.path} is a run of {env}, which table {name} does not have; leave it out, or "
                f"add --all-environments (the table has: {', '.join(printed.values())})"
            )


def _rows(table: Table, runs: Sequence[Recorded]) -> list[Row]:
    """The paper's in its order, then ours that it does not have."""
    printed = {(_world(env), value): Row(env, value) for env, value in table.rows}
    others: dict[tuple[str, str], Row] = {}
    for run in runs:
        if not {"digest", "sps", "seconds"} <= run.result.keys():
            raise WrongUsage(f"{run.path}: this run has no result yet ({run.status})")
        env, value = _place(table, run)
        place = _world(env), value
        row = printed.get(place) or others.setdefault(place, Row(env, value))
        row.runs.append(run)
    ordered = sorted(others.values(), key=lambda row: _order(row.env, row.value))
    return [*printed.values(), *ordered]


def _order(env: str, value: str) -> tuple[str, int, str]:
    """Numbers as numbers."""
    return env, int(value) if value.isdecimal() else 0, value


def _place(table: Table, run: Recorded) -> tuple[str, str]:
    """The environment and the value that say in which row a run stands."""
    if _ENV not in run.config or (
        table.value[:1] not in ("", "?") and table.value not in run.config
    ):
        raise WrongUsage(f"{run.path}: its manifest does not say {table.value or _ENV}")
    env = str(run.config[_ENV])
    if not table.value:
        return env, ""
    if not table.value.startswith("?"):
        return env, str(run.config[table.value])
    option = table.value.removeprefix("?")
    head, _, query = env.partition("?")
    others = [pair for pair in query.split("&") if pair and pair.partition("=")[0] != option]
    value = getattr(parse(env).options, option, None)
    if value is None:
        raise WrongUsage(f"{run.path}: {head} has no option {option}")
    return "?".join([head, *(["&".join(others)] if others else [])]), str(value)


def _world(env: str) -> str:
    """The same for every way to write the same world."""
    try:
        return parse(env).canonical()
    except WorldError:  # of a package, or of somebody's own, that is not here
        return env


def schedule_of(run: Recorded) -> str:
    """As `--schedule` calls it."""
    schedule = str(run.config.get("experiment.schedule", "hts"))
    return "hts_barrier" if schedule == "hts" and run.config.get("machine.barrier") else schedule


def _schedules(table: Table, runs: Sequence[Recorded]) -> tuple[str, ...]:
    """Those that have columns of their own, or one nameless for all."""
    if not table.schedules:
        return ("",)
    there = {*table.schedules, *map(schedule_of, runs)}
    return tuple(name for name in _SCHEDULES if name in there)


def _word(value: str) -> str:
    return value.rpartition(".")[2].removeprefix("?")


def _head(measure: str, schedule: str) -> str:
    return f"{schedule}: {measure}" if schedule else measure


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(table: Table, row: Row, schedules: Sequence[str]) -> list[str]:
    cells = [row.env, *([row.value] if table.value else [])]
    targets = {_world(env): both for env, both in table.targets.items()}.get(_world(row.env), ())
    for schedule in schedules:
        runs = [run for run in row.runs if schedule in ("", schedule_of(run))]
        cell = _Cell(runs, row.limit, targets)
        cells += [_MEASURES[name](cell) if runs else "-" for name in table.ours]
    return [*cells, *table.rows.get((row.env, row.value), ("-",) * len(table.theirs))]


def _what(runs: Sequence[Recorded]) -> str:
    steps = sorted({int(run.config.get("experiment.steps", 0)) for run in runs})
    seeds = sorted({int(run.config.get(_SEED, 0)) for run in runs})
    many = " or ".join(f"{count:,}" for count in steps)
    seed = "seed" if len(seeds) == 1 else "seeds"
    cpus = {run.facts.get("cpu", "an unknown processor") for run in runs}
    return f"{many} steps, {seed} {', '.join(map(str, seeds))}, {' or '.join(sorted(cpus))}"


@dataclass(frozen=True)
class _Cell:
    """The runs that a cell of ours is about, and what its row asks of them."""

    runs: Sequence[Recorded]
    limit: float
    targets: tuple[float, ...]

    def speed(self) -> str:
        return _mean([float(run.result["sps"]) for run in self.runs], ",.0f")

    def digests(self) -> str:
        return "<br>".join(str(run.result["digest"])[:12] for run in self.runs)

    def score(self) -> str:
        """All digits of a single run's, since they may be compared; of several, an interval."""
        scores = [score for score in map(score_of, self.runs) if score is not None]
        if not scores:
            return "-"
        trained = "" if all(evaluations.read(run.path) for run in self.runs) else " (training)"
        return (repr(scores[0]) if len(scores) == 1 else _mean(scores, ".4g")) + trained

    def in_time(self) -> str:
        """The final metric of the policies that there were at the limit of the row."""
        means = []
        for run in self.runs:
            latest = before(run.path, self.limit)
            lines = [line for at, line in evaluations.read(run.path).items() if at <= latest]
            if not lines:
                return "-"
            means.append(float(np.mean(final(lines))))
        return f"{_mean(means, '.4g')} in {self.limit / 60.0:.3g} min"

    def minutes(self) -> str:
        """Until each target was reached."""
        return " / ".join(_required(self.runs, target) for target in self.targets) or "-"


def score_of(run: Recorded) -> float | None:
    """The final metric, or what its last training episodes came to."""
    lines = list(evaluations.read(run.path).values())
    if lines:
        return float(np.mean(final(lines)))
    found = run.result.get("score_mean")
    found = run.result.get("return_mean") if found is None else found
    return None if found is None else float(found)


def _required(runs: Sequence[Recorded], target: float) -> str:
    """When all of them had reached it; otherwise how many did."""
    found = [reached(run.path, target) for run in runs]
    times = [each.seconds / 60.0 for each in found if each is not None]
    if len(times) == len(runs):
        return _mean(times, ".3g")
    return f"- ({len(times)} of {len(runs)} seeds)" if times else "-"


def _mean(values: Sequence[float], how: str) -> str:
    """With its interval, where there are several."""
    interval = bootstrapped(np.array(values))
    if len(values) == 1:
        return f"{interval.mean:{how}}"
    return f"{interval.mean:{how}} ({interval.low:{how}} to {interval.high:{how}})"


_MEASURES: Mapping[str, Callable[[_Cell], str]] = {
    SPEED: _Cell.speed,
    SCORE: _Cell.score,
    DIGEST: _Cell.digests,
    IN_TIME: _Cell.in_time,
    MINUTES: _Cell.minutes,
}


def compared(rows: Sequence[Row]) -> tuple[str, bool]:
    """What of these rows could be compared, in a sentence, and whether it was equal.

    Runs of one experiment and seed that have come equally far are: digests, which speak of every
    observation, action and parameter, and what evaluations of the same policies say.
    """
    groups = [group for group in _comparable(rows) if len(group) > 1]
    if not groups:
        return "Nothing is compared: no two rows have a run of the same experiment and seed.", True
    apart = [why for group in groups for why in _apart(group)]
    if apart:
        return f"**The rows differ**: {'; '.join(apart)}. They must not: see `hts-diff`.", False
    policies = sum(len(_common(group)) for group in groups)
    counts = " or ".join(map(str, sorted({len(group) for group in groups})))
    whose = "; ".join(_named(group[0]) for group in groups)
    evaluated = (
        f"and the evaluations of {policies} policies, episode by episode"
        if policies
        else "while no policy was evaluated in all of them, so that no evaluation is compared"
    )
    return (
        f"Compared in {counts} rows: {whose}. Equal to the last bit: observations, actions and "
        f"parameters, by their digests, {evaluated}."
    ), True


def _comparable(rows: Sequence[Row]) -> list[list[Recorded]]:
    """One run of each row, for each experiment and seed."""
    groups: dict[tuple[str, str, int], dict[str, Recorded]] = {}
    for row in rows:
        for run in row.runs:
            updates = int(run.result.get("updates", 0))
            place = run.identity, str(run.config.get(_SEED, 0)), updates
            groups.setdefault(place, {}).setdefault(row.value, run)
    return [list(group.values()) for group in groups.values()]


def _named(run: Recorded) -> str:
    return f"{run.config[_ENV]}, seed {run.config.get(_SEED, 0)}"


def _apart(group: Sequence[Recorded]) -> list[str]:
    """What these runs differ in."""
    found = []
    if len({str(run.result["digest"]) for run in group}) > 1:
        found.append(f"{_named(group[0])}, by their digests")
    found += [
        f"{_named(group[0])}, in the evaluation of update {update}"
        for update, lines in _common(group).items()
        if any(line != lines[0] for line in lines)
    ]
    return found


def _common(group: Sequence[Recorded]) -> dict[int, list[Mapping[str, Any]]]:
    """The evaluations that all of them have, of equally many episodes."""
    read = [evaluations.read(run.path) for run in group]
    both = sorted(set.intersection(*(set(lines) for lines in read)))
    found: dict[int, list[Mapping[str, Any]]]
    found = {update: [lines[update] for lines in read] for update in both}
    return {
        update: lines
        for update, lines in found.items()
        if len({line.get("episodes") for line in lines}) == 1
    }
