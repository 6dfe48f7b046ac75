"""What a person at a terminal sees of a run: how far, how fast, how good, and who waits for whom.

`view` is a pure function from what is seen to lines; `Live` collects that, hears of every update
from the loop that listens, and is asked for lines by the terminal's own thread.
"""

from __future__ import annotations

import math
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hts.report.advice import advise
from hts.report.drawing import (
    Line,
    Piece,
    Style,
    bar,
    columns_of,
    fitted,
    percent,
    shortened,
    spark,
    spread,
    width_of,
)
from hts.report.metrics import described
from hts.report.terminal_chart import LEAST_ROWS, chart
from hts.report.vitals import ACTORS, EXECUTORS, LEARNER, SIMULATORS, WORKED, Kind, Vitals

_LABEL, _BAR_MOST, _CURVE_MOST = 11, 60, 120
_WIDE = 140  # columns from which on losses and the update stand side by side
_MESSAGES = 8  # rows above the view that a chart leaves free
_CURVE_POINTS = 960  # are kept; then every other one
_SPEED_SECONDS, _REMAINING_SECONDS = 3.0, 30.0
_LONG_SECONDS = 5.0  # without an update, from which on the filling of its rollout is shown
_WAITS = {
    LEARNER: ("for the learner", "yellow"),
    ACTORS: ("for actors", "cyan"),
    EXECUTORS: ("for executors", "magenta"),
    SIMULATORS: ("for simulators", "cyan"),
}
_WAITS_MOST = 2  # in words; the bar shows all
_LOSSES = (
    ("policy loss", "policy_loss"),
    ("value loss", "value_loss"),
    ("critic loss", "critic_loss"),
    ("mean value", "value"),
    ("entropy", "entropy"),
)
_UPDATE = (
    ("KL", "kl"),
    ("clipped", "clip_fraction"),
    ("explained", "explained_variance"),
)
_LAST = (
    *("progress", "title", "return", "pace", "filling"),
    *("advice", "kind", "score", "length", "update"),
)
"""What is kept where there are few rows; of what comes later, and what is not named, the first to
go is the last."""


@dataclass(frozen=True)
class Seen:
    """One moment of a run."""

    title: str
    steps: int
    of: int
    seconds: float = 0.0
    latest: float = 0.0  # steps in a second
    mean: float = 0.0
    left: float | None = None  # seconds
    status: str = ""  # where it does not simply go on
    chain: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    curve: Sequence[tuple[float, float]] = ()  # steps and return
    filling: tuple[int, int] | None = None  # steps taken of a long rollout, and its length
    vitals: Vitals | None = None


def view(seen: Seen, columns: int, rows: int, style: Style) -> list[Line]:
    """Return at most so many lines, none wider than that; a chart fills the rows that are free."""
    lines = list(_lines(seen, columns, style))
    free = rows - len(lines) - _MESSAGES
    if free >= LEAST_ROWS and len(seen.curve) > 1:
        lines = list(_lines(seen, columns, style, free))
    places = [_LAST.index(about) if about in _LAST else len(_LAST) for about, _ in lines]
    kept = sorted(sorted(range(len(lines)), key=places.__getitem__)[:rows])
    return [fitted(lines[at][1], columns) for at in kept]


def _lines(
    seen: Seen, columns: int, style: Style, chart_rows: int = 0
) -> Iterator[tuple[str, Line]]:
    """Each with what it is about, so that the least important can go."""
    digest = [Piece("digest ", "dim"), Piece(seen.chain[:12] or "-", "cyan")]
    room = columns - sum(columns_of(piece.text) for piece in digest) - 2
    title = [Piece(shortened(seen.title, room, style), "bold")]
    yield "blank", [Piece("")]
    yield "title", spread(title, digest, columns)
    yield "progress", _progress(seen, columns, style)
    if seen.metrics or seen.filling:
        yield "pace", _pace(seen)
    if seen.filling:
        yield "filling", _filling(*seen.filling)
    if seen.metrics:
        yield from _episodes(seen, columns, style, chart_rows)
        yield from _learning(seen, columns)
    if seen.vitals is not None and any(kind.shares for kind in seen.vitals.kinds):
        yield "blank", [Piece("")]
        for kind in seen.vitals.kinds:
            yield "kind", _kind(kind, columns, style)
    if seen.vitals is not None and seen.vitals.filled is not None:
        filled, seats = seen.vitals.filled
        yield "pace", [*_label("seats"), Piece(f"{filled} of {seats} filled", "bold")]
    if seen.vitals is not None and seen.metrics:
        for line in textwrap.wrap(advise(seen.vitals), columns)[:3]:
            yield "advice", [Piece(line, "yellow")]


def _progress(seen: Seen, columns: int, style: Style) -> list[Piece]:
    share = min(1.0, seen.steps / seen.of) if seen.of else 0.0
    left = "" if seen.left is None else f"  {duration(seen.left)} left"
    steps = f"{seen.steps:,} of {seen.of:,} steps"
    told = f" {percent(share):>5}  {steps}  {seen.status or left.strip()}"
    width = max(0, min(columns - columns_of(told), 2 * _BAR_MOST))
    shown = bar([(share, style.fill, "green"), (1 - share, style.wait, "dim")], width)
    return [*shown, Piece(told.rstrip())]


def _pace(seen: Seen) -> list[Piece]:
    pairs = [
        (f"{seen.latest:,.0f}", "now"),
        (f"{seen.mean:,.0f}", "mean"),
        (duration(seen.seconds), "passed"),
    ]
    if "update" in seen.metrics:
        pairs.append((f"{seen.metrics['update']:,.0f}", "updates"))
    return _labelled("steps/s", pairs)


def _filling(taken: int, length: int) -> list[Piece]:
    pairs = [(f"{taken:,}", f"of {length:,} steps taken"), (percent(taken / length), "filled")]
    return _labelled("rollout", pairs)


def _episodes(
    seen: Seen, columns: int, style: Style, chart_rows: int
) -> Iterator[tuple[str, Line]]:
    """Raw returns first: what the world gave, whatever was learnt from."""
    found = {name: seen.metrics.get(f"episode/{name}") for name in ("return", "score", "length")}
    if found["return"] is not None:
        shown = f"{_short(found['return'])}"
        begin = [*_label("return"), Piece(f"{shown:<9}", "bold")]
        room = 0 if chart_rows else min(_CURVE_MOST, columns - _LABEL - 9)
        values = [value for _, value in seen.curve]
        yield "return", [*begin, Piece(spark(values, room, style), "green")]
    if found["score"] is not None:
        yield "score", [*_label("score"), Piece(_short(found["score"]), "bold")]
    pairs = [(f"{seen.metrics.get('episode/count', 0):,.0f}", "episodes")]
    if found["length"] is not None:
        pairs.insert(0, (_short(found["length"]), "steps"))
    shaped = seen.metrics.get("episode/shaped_return")
    if shaped is not None:
        pairs.append((_short(shaped), "shaped return"))
    yield "length", _labelled("length", pairs)
    if chart_rows:
        returns = described("episode/return")
        names = (described("steps").title.lower(), f"{returns.heading} ({returns.axis})")
        for line in chart(seen.curve, names, (columns, chart_rows), style):
            yield "chart", line


def _learning(seen: Seen, columns: int) -> Iterator[tuple[str, Line]]:
    metrics = seen.metrics
    losses = [(_short(metrics[f"train/{n}"]), w) for w, n in _LOSSES if f"train/{n}" in metrics]
    update = [(_short(metrics[f"train/{n}"]), w) for w, n in _UPDATE if f"train/{n}" in metrics]
    if columns >= _WIDE:
        losses, update = losses + update, []
    if losses:
        yield "losses", _labelled("learning", losses)
    if update:
        yield "update", _labelled("update", update)


def _kind(kind: Kind, columns: int, style: Style) -> list[Piece]:
    """A bar of working and waiting, and the same in words."""
    waits = [(kind.share(c), *_WAITS[c]) for c in _WAITS if kind.share(c) >= 0.005]
    waits.sort(reverse=True)
    words = [Piece(f" working {percent(kind.share(WORKED)):>5}", "green")]
    for number, (share, role, tint) in enumerate(waits[:_WAITS_MOST]):
        begin = ", " if number else "  waiting "
        words.append(Piece(f"{begin}{role} {percent(share)}", tint))
    width = max(0, min(_BAR_MOST, columns - _LABEL - 3 - max(width_of(words), 41)))
    name = f"{kind.name} {kind.count}" if kind.count > 1 else kind.name
    shown = [(kind.share(WORKED), style.fill, "green")]
    shown += [(share, style.wait, tint) for share, _, tint in waits]
    return [Piece(f"{name:<{_LABEL + 2}}", "dim"), *bar(shown, width), *words]


def _label(word: str) -> list[Piece]:
    return [Piece(f"{word:<{_LABEL}}", "dim")]


def _labelled(label: str, pairs: Sequence[tuple[str, str]]) -> list[Piece]:
    """Numbers, each with its word behind it."""
    found = _label(label)
    for number, word in pairs:
        found += [Piece(number, "bold"), Piece(f" {word}   ", "dim")]
    return found


def _short(value: float) -> str:
    """A number in at most eight characters, as a person reads it."""
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """1:05, or 2:01:05, or 3d 2:01:05."""
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    clock = f"{minutes}:{whole % 60:02}"
    if whole >= 3600:
        clock = f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{days}d {clock}" if days else clock


class Live:
    """What is seen of a run from one moment to the next."""

    def __init__(self, title: str, updates: int, rows: int, style: Style) -> None:
        self._title = title
        self._of = updates * rows
        self._rows = rows
        self._style = style
        self._metrics: Mapping[str, float] = {}
        self._chain = ""
        self._curve: list[tuple[float, float]] = []
        self._updated = 0.0  # when the latest update was reported
        self._every, self._until = 1, 1  # updates between two points of the curve
        self._status = "getting ready"
        self._look: Callable[[], Vitals] | None = None
        self._looking = threading.Lock()
        self._vitals: Vitals | None = None
        self._began: tuple[float, int] | None = None
        self._first = 0  # steps that were taken before
        self._spent, self._now = 0.0, 0.0
        self._passed: deque[tuple[float, int]] = deque()

    def begin(self, look: Callable[[], Vitals], steps: int, spent: float) -> None:
        """The clock runs from here, behind so many steps that took so many seconds."""
        self._status, self._spent, self._now = "", spent, time.monotonic()
        self._began = (self._now, steps)
        self._updated, self._first = self._now, look().taken
        self._passed.append((self._now, self._first))
        self._look = look

    def update(self, metrics: Mapping[str, float], chain: str) -> None:
        """One more of them; nothing is drawn by this."""
        self._metrics, self._chain = metrics, chain
        self._updated = time.monotonic()
        self._until -= 1
        mean = metrics.get("episode/return", math.nan)
        if math.isfinite(mean) and self._until <= 0:
            self._until = self._every
            self._curve.append((metrics["steps"], mean))
            if len(self._curve) > _CURVE_POINTS:
                self._every *= 2
                self._curve = self._curve[::2]

    def ending(self, status: str) -> None:
        """It does not go on; from here on nobody is looked at."""
        with self._looking:
            self._status, self._look = status, None

    def lines(self, columns: int, rows: int) -> list[Line]:
        """How it is drawn now."""
        return view(self._seen(), columns, rows, self._style)

    def _seen(self) -> Seen:
        if self._began is None:
            return Seen(self._title, 0, self._of, status=self._status)
        since, behind = self._began
        steps = max(int(self._metrics.get("steps", 0)), behind)
        with self._looking:
            if self._look is not None:
                self._vitals = self._look()
                self._now = time.monotonic()
                self._passed.append((self._now, self._vitals.taken))
                while self._now - self._passed[0][0] > _REMAINING_SECONDS:
                    self._passed.popleft()
        taken = self._first if self._vitals is None else self._vitals.taken
        lately = self._speed(_REMAINING_SECONDS, taken)
        return Seen(
            self._title,
            steps,
            self._of,
            seconds=self._spent + self._now - since,
            latest=self._speed(_SPEED_SECONDS, taken),
            mean=(taken - self._first) / max(self._now - since, 1e-9),
            left=(self._of - taken) / lately if lately > 0 else None,
            status=self._status,
            chain=self._chain,
            metrics=self._metrics,
            curve=list(self._curve),
            filling=self._filling(taken),
            vitals=self._vitals,
        )

    def _filling(self, taken: int) -> tuple[int, int] | None:
        """Return how far the rollout has come that keeps the next update waiting for long."""
        in_rollout = taken % self._rows
        if self._status or not in_rollout or self._now - self._updated < _LONG_SECONDS:
            return None
        return in_rollout, self._rows

    def _speed(self, seconds: float, steps: int) -> float:
        """Steps in a second, over the latest seconds."""
        at, before = next(
            (each for each in self._passed if self._now - each[0] <= seconds), (self._now, steps)
        )
        return (steps - before) / (self._now - at) if self._now > at else 0.0
