"""The page of a run: one HTML file that holds everything it shows, and asks nobody for anything.

Whatever comes from a file may be anything; it reaches the page escaped, and the page's own policy
forbids scripts and the network besides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np

from hts.config import Given, flatten
from hts.config.resolve import resolve
from hts.errors import BadConfig
from hts.report import evaluations, statistics
from hts.report.command import arguments
from hts.report.curves import Series, columns, lines
from hts.report.evaluations import EVALUATIONS
from hts.report.intervals import bootstrapped
from hts.report.metrics import described
from hts.report.recorded import Recorded
from hts.report.style import CSS
from hts.report.svg import Line, chart, shares, short
from hts.report.waiting import Role, label, roles

_RESULTS = ("episode/return", "episode/score")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_CURVES = {
    "Training episodes, means over the latest 100": (
        "episode/score",
        "episode/return",
        "episode/shaped_return",
        "episode/length",
    ),
    "Learning": (
        "train/policy_loss",
        "train/value_loss",
        "train/critic_loss",
        "train/value",
        "train/entropy",
        "train/temperature",
        "train/kl",
        "train/clip_fraction",
        "train/explained_variance",
        "train/gradient_norm",
        "train/critic_gradient_norm",
        "train/policy_gradient_norm",
        "train/learning_rate",
    ),
    "Speed": ("time/steps_per_second", "machine/cores_busy", "machine/memory"),
}
_FROM_ZERO = ("time/", "machine/")
"""Amounts, of which half is half as high."""

_LATEST = 10


def page(run: Recorded, manifest: Mapping[str, Any]) -> str:
    """The whole file."""
    named = run.config.get("experiment.algo.name", ""), run.config.get("experiment.env", "")
    title = f"{named[0]} {named[1]}, seed {run.config.get('experiment.seed', '?')}"
    series = columns(run, "steps")
    parts = [
        _head(run, title, series),
        _experiment(run, manifest),
        *(_section(name, _charts(series, wanted)) for name, wanted in _CURVES.items()),
        _evaluation(run, series),
        _section("Time", _time(run, series)),
        _section("What happened", _happened(run, manifest)),
        _section("Again", _again(run)),
        _section("Versions", _table(("what", "which"), run.facts.items())),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{CSS}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _section(name: str, body: str) -> str:
    """Nothing at all where there is nothing to show."""
    return f"<section>\n<h2>{escape(name)}</h2>\n{body}\n</section>" if body else ""


def _head(run: Recorded, title: str, series: Mapping[str, Series]) -> str:
    status = run.status
    tone = "good" if status == "done" else "bad" if status.startswith("failed") else "soft"
    results = {
        **_evaluated(run),
        **{described(name).heading: _last(series, name) for name in _RESULTS},
    }
    amounts = {
        "steps": _last(series, "steps"),
        "steps per second": run.result.get("sps") or _last(series, "time/steps_per_second"),
        "seconds": _last(series, "time/seconds"),
        "episodes": _last(series, "episode/count"),
    }
    shown = _tiles(results, "tile headline") + _tiles(amounts, "tile")
    return (
        f'<header><h1>{escape(title)}</h1><p><b class="{tone}">{escape(status)}</b>, digest '
        f"<code>{escape(str(run.result.get('digest', 'not known yet')))}</code></p>"
        f'<p class="soft">experiment <code>{escape(run.identity)}</code> in '
        f'<code>{escape(run.path.name)}</code></p></header>\n<div class="tiles">{shown}</div>'
    )


def _tiles(values: Mapping[str, object], kind: str) -> str:
    return "".join(
        f'<div class="{kind}"><b>{_value(value)}</b><span>{name}</span></div>'
        for name, value in values.items()
        if value is not None
    )


def _evaluated(run: Recorded) -> dict[str, str]:
    """Return what `hts-eval` says of a run: the final metric, with its interval."""
    policies = list(evaluations.read(run.path).values())[-statistics.LAST :]
    try:
        values = np.array(statistics.final(policies))
    except (KeyError, TypeError, ValueError):  # a record of another form
        return {}
    if not len(values):
        return {}
    interval = bootstrapped(values)
    mean, low, high = (_value(float(end)) for end in (interval.mean, interval.low, interval.high))
    what = statistics.what_counts(policies).removesuffix("s")
    last = f"{len(policies)} policies" if len(policies) > 1 else "policy"
    of = f"{len(values)} episodes of the last {last}"
    return {f"Evaluation {what}, mean and 95 % interval of {of}": f"{mean} [{low}, {high}]"}


def _last(series: Mapping[str, Series], name: str) -> float | None:
    return float(series[name].y[-1]) if name in series else None


def _value(value: object) -> str:
    """A number as people read it; anything else as it is written."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return escape(value if isinstance(value, str) else json.dumps(value))
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _experiment(run: Recorded, manifest: Mapping[str, Any]) -> str:
    """What differs from the defaults, where it was given, and the rest behind a click."""
    defaults, origins = _defaults(run), manifest.get("origins")
    origins = origins if isinstance(origins, dict) else {}
    differing, same = [], []
    for path, value in run.config.items():
        row = (path.removeprefix("experiment."), _plain(value))
        if path.startswith("experiment.") and _plain(defaults.get(path)) != row[1]:
            was = _plain(defaults[path]) if path in defaults else ""
            differing.append((*row, was, str(origins.get(path, ""))))
        else:
            same.append(row)
    first = _table(("name", "value", "default", "given in"), differing)
    rest = _table(("name", "value"), same)
    return _section(
        "Experiment",
        f"<p>Seed {_value(run.config.get('experiment.seed'))}. What differs from the defaults:</p>"
        f"{first}<details><summary>everything else, and the machine</summary>{rest}</details>",
    )


def _defaults(run: Recorded) -> dict[str, Any]:
    """Of this algorithm and model; nothing where this version of the product knows neither."""
    chosen = [
        Given(path, run.config[path], "manifest.json")
        for path in ("experiment.algo.name", "experiment.model.name", "experiment.env")
        if path in run.config
    ]
    try:
        plain = flatten(resolve([]).config)
        return {**flatten(resolve([chosen]).config), **{g.path: plain[g.path] for g in chosen}}
    except (BadConfig, KeyError):
        return {}


def _plain(value: Any) -> str:
    """A value of the configuration, the same for lists and tuples."""
    return value if isinstance(value, str) else json.dumps(value)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Nothing where there are no rows. Each cell says what it is: a phone shows it as lines."""
    names = [escape(head) for head in heads]
    body = "".join("<tr>" + "".join(map(_cell, names, row)) + "</tr>" for row in rows)
    head = "".join(f"<th>{name}</th>" for name in names)
    kind = "wide" if len(names) > 2 else "narrow"
    made = f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return made if body else ""


def _cell(name: str, cell: str) -> str:
    return f'<td data-head="{name}">{escape(str(cell))}</td>'


def _charts(series: Mapping[str, Series], wanted: Iterable[str]) -> str:
    drawn = [_figure(name, series[name]) for name in wanted if name in series]
    return f'<div class="charts">{"".join(drawn)}</div>' if drawn else ""


def _figure(name: str, one: Series) -> str:
    title = described(name).label
    caption = f"{escape(title)} <span>last {short(float(one.y[-1]))}</span>"
    drawn = chart([Line(title, one.x, one.y)], name, from_zero=name.startswith(_FROM_ZERO))
    return f"<figure><figcaption>{caption}</figcaption>{drawn}</figure>"


def _evaluation(run: Recorded, series: Mapping[str, Series]) -> str:
    names = [name for name in series if name.startswith("eval/")]
    evaluated = list(lines(run, EVALUATIONS))[-_LATEST:]
    heads = list(dict.fromkeys(name for line in evaluated for name in line if _told(name)))
    rows = ([_plain(line.get(name, "")) for name in heads] for line in evaluated)
    return _section("Evaluation", _charts(series, names) + _latest(_table(heads, rows)))


def _told(name: str) -> bool:
    return name in ("update", "steps") or name.startswith("eval/")


def _latest(table: str) -> str:
    shown = f"<details><summary>the latest {_LATEST} policies</summary>{table}</details>"
    return shown if table else ""


def _time(run: Recorded, series: Mapping[str, Series]) -> str:
    """Who worked and who waited for whom, as the run told it: at the end, and on the way."""
    sentences = str(run.result.get("time") or "").split("; ")
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences if sentence)
    drawn = "".join(_budget(role) for role in roles(series))
    return said + (f'<div class="charts">{drawn}</div>' if drawn else "")


def _budget(role: Role) -> str:
    parts = [Line(kind, role.x, share) for kind, share in role.shares.items()]
    keys = "".join(
        f'<span><i class="key c{number}"></i>{escape(label(part.name))}</span>'
        for number, part in enumerate(parts)
    )
    return (
        f"<figure><figcaption>{escape(role.name)}</figcaption>"
        f'{shares(parts, role.name)}<div class="keys">{keys}</div></figure>'
    )


def _happened(run: Recorded, manifest: Mapping[str, Any]) -> str:
    """Legs, replaced processes, moves, what marks the digest, failures."""
    legs = [
        f"{'begun' if number == 0 else 'went on'} {leg.get('began')}"
        + (f" behind update {leg.get('behind'):,}" if number else "")
        + _extended(leg.get("extends"))
        for number, leg in enumerate(_items(manifest, "legs"))
        if isinstance(leg, dict) and isinstance(leg.get("behind"), int)
    ]
    told = [
        *legs,
        *(f"replaced: {each}" for each in _items(run.result, "replaced")),
        *(f"moved: {each}" for each in _items(run.result, "moved")),
        *(f"not the digest of an undisturbed run: {e}" for e in _items(run.result, "interrupted")),
        *(f"a case was written: failures/{path.name}" for path in _cases(run)),
        f"ended: {run.status}",
    ]
    return "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in told) + "</ul>"


def _extended(finished: object) -> str:
    """Return what was extended when a leg began, if a finished run was."""
    if not isinstance(finished, dict):
        return ""
    steps, digest = finished.get("steps"), finished.get("digest")
    return f": extends the run that was finished with {_value(steps)} steps and digest {digest}"


def _items(record: Mapping[str, Any], name: str) -> list[Any]:
    """A list of a record; an empty one where it is something else."""
    found = record.get(name)
    return found if isinstance(found, list) else []


def _cases(run: Recorded) -> list[Any]:
    return sorted((run.path / "failures").glob("*.safetensors"))


def _again(run: Recorded) -> str:
    """How everybody gets the same digest."""
    typed = arguments(run)
    if typed is None:
        return (
            f"<p>This version of the product reads the manifest as another experiment; commit "
            f"<code>{escape(run.facts.get('commit', 'unknown'))}</code> ran it.</p>"
        )
    return (
        "<p>The same run, with the same digest on the same numerics:</p>"
        f"<pre>hts-train {escape(typed)}</pre>"
        "<p>The same digest on every layout of the machine:</p>"
        f"<pre>hts-verify {escape(typed)} --executors 1,2 --actors 0,1</pre>"
    )
