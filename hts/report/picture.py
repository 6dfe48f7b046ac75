"""Pictures of curves, in files: drawn without a display, and the same bytes for the same curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hts.errors import WrongUsage
from hts.report.waiting import label
from hts_envs.contract import Array
from hts_envs.errors import MissingPackages, install_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hts.report.waiting import Role

ENDINGS = (".png", ".svg", ".pdf")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart by colour-blind people too."""

_WIDTH, _HEIGHT = 8.0, 4.6  # inches
_BESIDE = 28  # letters of a label that a legend inside the picture may have
_DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Look:
    """How a line is drawn, where that has a meaning."""

    colour: str
    dash: str
    width: float = 1.6


@dataclass(frozen=True, eq=False)
class Stroke:
    """One line of a picture, with its interval where it has one."""

    label: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    look: Look | None = None


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What stands around the lines."""

    title: str
    x: str
    y: str
    logarithmic: bool = False  # both axes


def checked(path: Path, *, overwrite: bool) -> Path:
    """Where a picture may go; WrongUsage says why not there."""
    if path.suffix.lower() not in ENDINGS:
        raise WrongUsage(f"--out {path}: must end with one of {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise WrongUsage(f"--out {path}: there is no directory {path.parent}")
    if path.exists() and not overwrite:
        raise WrongUsage(f"--out {path} already exists; choose another or add --overwrite")
    return path


def draw(path: Path, frame: Frame, strokes: Sequence[Stroke]) -> None:
    """Lines, and their intervals."""
    below = max(len(stroke.label) for stroke in strokes) > _BESIDE or len(strokes) > 6
    figure = _figure(_HEIGHT + (0.24 * len(strokes) + 0.2 if below else 0.0))
    axes = figure.add_subplot()
    for number, stroke in enumerate(strokes):
        _line(axes, stroke, number)
    _around(axes, frame)
    if below:
        figure.legend(loc="outside lower left", frameon=False, fontsize=9)
    else:
        axes.legend(loc="best", frameon=False, fontsize=9)
    _save(figure, path)


def draw_waiting(path: Path, x: str, roles: Sequence[Role]) -> None:
    """The shares of each role's time, one above the other: a row for each role."""
    figure = _figure(0.6 + 2.0 * len(roles))
    rows = figure.subplots(len(roles), sharex=True, squeeze=False)[:, 0]
    for axes, role in zip(rows, roles, strict=True):
        labels = [label(kind) for kind in role.shares]
        axes.stackplot(role.x, *role.shares.values(), labels=labels, colors=COLOURS, alpha=0.8)
        _around(axes, Frame(title=role.name, x="", y="share of time"))
        axes.set_ylim(0.0, 1.0)
        axes.margins(x=0.0)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
    rows[-1].set_xlabel(x)
    _save(figure, path)


def _figure(height: float) -> Figure:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        how = install_command("plots")
        raise MissingPackages(f"pictures need matplotlib, which is not here; {how}") from None
    figure = Figure(figsize=(_WIDTH, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    """Undated, and with the same names inside: the same bytes every time."""
    from matplotlib import rc_context

    dated = _DATES.get(path.suffix.lower())
    with rc_context({"svg.hashsalt": "hts", "svg.fonttype": "none"}):
        try:
            figure.savefig(path, metadata={dated: None} if dated else {})
        except OSError as error:
            raise WrongUsage(f"--out {path}: it cannot be written: {error.strerror}") from None


_DATES = {".svg": "Date", ".pdf": "CreationDate"}


def _line(axes: Axes, stroke: Stroke, number: int) -> None:
    dash = _DASHES[number // len(COLOURS) % len(_DASHES)]
    look = stroke.look or Look(COLOURS[number % len(COLOURS)], dash)
    colour, mark = look.colour, "o" if len(stroke.x) == 1 else ""
    (line,) = axes.plot(stroke.x, stroke.y, look.dash, marker=mark, label=_shown(stroke.label))
    line.set(color=colour, linewidth=look.width)
    if stroke.low is None or stroke.high is None:
        return
    if len(stroke.x) == 1:
        around = [stroke.y - stroke.low, stroke.high - stroke.y]
        axes.errorbar(stroke.x, stroke.y, around, color=colour, capsize=3)
    else:
        axes.fill_between(stroke.x, stroke.low, stroke.high, color=colour, alpha=0.2, linewidth=0)


def _shown(label: str) -> str:
    """A label that is no formula, does not hide itself, and fits on a line."""
    plain = label.replace("$", r"\$")
    plain = f" {plain}" if plain.startswith("_") else plain
    return plain if len(plain) <= 100 else f"{plain[:60]} ... {plain[-35:]}"


def _around(axes: Axes, frame: Frame) -> None:
    from matplotlib.ticker import EngFormatter, NullFormatter, StrMethodFormatter

    axes.set_title(_shown(frame.title), fontsize=11, loc="left")
    axes.set_xlabel(frame.x)
    axes.set_ylabel(_shown(frame.y))
    if frame.logarithmic:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
