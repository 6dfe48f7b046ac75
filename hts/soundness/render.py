"""A report for people: aligned, 80 columns, in words as well as in signs and colours."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from hts.soundness.findings import Finding, Level, Report

WIDTH = 80
_MARGIN = 12

_SIGNS = {Level.OK: "✓", Level.NOTE: "·", Level.WARNING: "!", Level.ERROR: "✗"}
_PLAIN_SIGNS = {Level.OK: "+", Level.NOTE: ".", Level.WARNING: "!", Level.ERROR: "x"}
_COLOURS = {Level.OK: "32", Level.NOTE: "36", Level.WARNING: "33", Level.ERROR: "31"}


def render(report: Report, *, colour: bool = False, unicode: bool = True) -> str:
    """The whole report as it is printed."""
    name, _, options = report.environment.partition("?")
    lines = [name, "", *(row("options", options.replace("&", " ")) if options else [])]
    if report.facts:
        lines += [*_world(report.facts), ""]
    lines += [line for finding in report.findings for line in _finding(finding, colour, unicode)]
    if report.profile:
        lines += ["", *_profile(report.profile)]
    if report.suggestion:
        lines += ["", *_suggestion(report.suggestion)]
    lines += ["", _verdict(report, colour)]
    text = "\n".join(lines)
    return text if unicode else text.encode("ascii", "replace").decode()


def _world(facts: dict[str, Any]) -> Iterator[str]:
    if facts["description"]:
        yield from row("world", str(facts["description"]))
    agents = f"{facts['agents']} agent" + ("s" if facts["agents"] != 1 else "")
    batched = f", {facts['replicas']} replicas in one call" if facts["batched"] else ""
    yield from row("agents", agents + batched)
    size = _bytes(facts["observation_bytes"])
    fields = facts["observation"].items()
    listed = ", ".join(
        _space(space) if name == "observation" else f"{name} {_space(space)}"
        for name, space in fields
    )
    yield from row("sees", f"{listed} ({size} a step)")
    yield from row("does", _space(facts["action"]))
    yield from row("traits", _traits(facts["traits"]))


def _space(space: dict[str, Any]) -> str:
    if "n" in space:
        return f"one of {space['n']}"
    if "nvec" in space:
        return "one of each of " + ", ".join(str(n) for n in space["nvec"])
    shape = "x".join(str(size) for size in space["shape"]) or "one"
    return f"{shape} {space['dtype']}"


def _traits(traits: dict[str, Any]) -> str:
    limit = traits["time_limit"]
    end = "terminates" if traits["clock_ends"] else "truncates"
    return ", ".join(
        [
            f"{end} after {limit} steps" if limit else "no time limit",
            f"frame skip {traits['frame_skip']}",
            "snapshots" if traits["snapshots"] else "no snapshots",
        ]
    )


def _finding(finding: Finding, colour: bool, unicode: bool) -> Iterator[str]:
    sign = (_SIGNS if unicode else _PLAIN_SIGNS)[finding.level]
    label = f"{sign} {finding.level.value:<8}"
    if finding.level is Level.ERROR:
        label = f"{sign} ERROR   "
    painted = f"\x1b[{_COLOURS[finding.level]}m{label}\x1b[0m" if colour else label
    first, *rest = row(label, finding.text)
    yield first.replace(label, painted, 1)
    yield from rest
    for line in finding.detail:
        yield " " * _MARGIN + f"  | {line}"[: max(20, WIDTH - _MARGIN)]


def row(label: str, text: str) -> list[str]:
    """A label, and its text beside it over as many lines as it needs."""
    wrapped = textwrap.wrap(text, WIDTH - _MARGIN - 2) or [""]
    return [f"  {label:<{_MARGIN - 2}}  {wrapped[0]}"[:WIDTH]] + [
        " " * (_MARGIN + 2) + line for line in wrapped[1:]
    ]


def _profile(profile: dict[str, Any]) -> Iterator[str]:
    heads = ("mean", "p50", "p99", "worst", "deviation")
    yield f"  {'times, ms':<10}" + "".join(f"{head:>11}" for head in heads) + f"{'count':>9}"
    for name in ("step", "reset"):
        cells = "".join(f"{profile[name][head] * 1e3:>11.4g}" for head in heads)
        yield f"  {name:<10}{cells}{profile[name]['count']:>9,}"
    busy, waiting = profile["cores_busy"], profile["waiting_share"]
    yield from row("speed", f"{profile['steps_per_second']:,.0f} steps/s in one process")
    yield from row("CPU", f"{busy:.2f} cores busy in a step; {waiting:.0%} of it is waiting")
    if profile["interrupted_share"] > 0.005:
        share = f"{profile['interrupted_share']:.1%} of steps, whose times are estimates"
        yield from row("disturbed", f"{share}: other programs run")
    if profile["reset_share"] is not None:
        length = profile["episode_length_mean"]
        text = f"{profile['reset_share']:.1%} of the time (episodes of {length:,.0f} steps)"
        yield from row("resets", text)
    memory = profile["memory_of_replica_bytes"]
    if memory is not None:
        told = f"about {_bytes(memory)}" if memory >= 1e5 else "less than 0.1 MB"
        yield from row("memory", f"{told} for one replica more")


def _suggestion(suggestion: dict[str, Any]) -> Iterator[str]:
    yield "  suggested machine"
    for name, label in (
        ("executors", "executors"),
        ("replicas", "replicas of each"),
        ("rollout", "rollout length"),
    ):
        first, *rest = textwrap.wrap(suggestion[f"{name}_why"], WIDTH - 30)
        yield f"  {label:<18}{suggestion[name]:>6}    {first}"
        yield from (" " * 30 + line for line in rest)


def _verdict(report: Report, colour: bool) -> str:
    counts = {level: sum(f.level is level for f in report.findings) for level in Level}
    if report.sound:
        told = f"sound: {counts[Level.OK]} checks passed, {counts[Level.WARNING]} warnings"
    else:
        told = f"UNSOUND: {counts[Level.ERROR]} errors, {counts[Level.WARNING]} warnings"
    level = Level.OK if report.sound else Level.ERROR
    painted = f"\x1b[1;{_COLOURS[level]}m{told}\x1b[0m" if colour else told
    return f"  {painted} ({report.seconds:.1f} s, seed {report.seed})"


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"
