"""`eval.jsonl`: how the policies of a run did, a line for each, in the order of their updates.

    {"update": 300, "steps": 76800, "episodes": 10, "returns": [...], "lengths": [...],
     "scores": [...], "eval/return": 231.4, "eval/length": 231.4, "eval/score": ...}

Returns are the worlds' own. Scores are there where worlds have them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch, which some who only look at files do without
    from hts.roles.evaluator import Played

EVALUATIONS = "eval.jsonl"


def line(update: int, steps: int, played: Sequence[Played]) -> dict[str, Any]:
    """What is written about a policy that has played these episodes."""
    seen: dict[str, list[float]] = {
        "return": [each.total for each in played],
        "length": [float(each.length) for each in played],
        "score": [each.score for each in played if each.score is not None],
    }
    return {
        "update": update,
        "steps": steps,
        "episodes": len(played),
        **{f"{name}s": values for name, values in seen.items()},
        **{f"eval/{name}": _mean(values) for name, values in seen.items() if values},
    }


def points(line: Mapping[str, Any]) -> dict[str, float]:
    """What of a line is drawn as curves, at its steps."""
    return {name: value for name, value in line.items() if name.startswith("eval/")}


def in_words(line: Mapping[str, Any]) -> str:
    """A line for a person."""
    parts = [f"evaluated at {line['steps']:,} steps: return {line['eval/return']:.4g}"]
    if "eval/score" in line:
        parts.append(f"score {line['eval/score']:.4g}")
    return ", ".join([*parts, f"length {line['eval/length']:.4g}, {line['episodes']} episodes"])


def read(run: Path) -> dict[int, dict[str, Any]]:
    """Every line by its update; what is not a whole line is left out."""
    return _lines(run)[0]


def add(run: Path, made: Mapping[str, Any]) -> None:
    """One line more, in its place: at the end, unless a later policy came before it."""
    there, whole = _lines(run)
    if made["update"] in there:
        return
    path = run / EVALUATIONS
    if whole and made["update"] > max(there, default=-1):
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(made) + "\n")
        return
    beside = path.with_name(f".{path.name}")
    ordered = sorted([*there.values(), made], key=lambda found: int(found["update"]))
    try:
        beside.write_text("".join(json.dumps(each) + "\n" for each in ordered), encoding="utf-8")
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _lines(run: Path) -> tuple[dict[int, dict[str, Any]], bool]:
    """The whole lines, and whether there is nothing else: whoever writes one may be killed."""
    found: dict[int, dict[str, Any]] = {}
    try:
        text = (run / EVALUATIONS).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return found, True
    lines = text.splitlines(keepends=True)
    for each in lines:
        with suppress(ValueError, KeyError, TypeError):
            if each.endswith("\n"):
                read_line = json.loads(each)
                found[int(read_line["update"])] = read_line
    return found, len(found) == len(lines)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
