"""Predictions and claims, as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hts.bench import claims as claim
from hts.bench.predict import BOUND, NEAR, SCHEDULES, Advice, Prediction, Simulator, shortest
from hts.report.picture import COLOURS, Frame, Look, Stroke, draw

_CLAIM_1 = ((16, 1, 2.0), (16, 4, 2.0), (16, 16, 2.0), (16, 64, 2.0), (16, 4, 0.5), (64, 4, 2.0))
"""Replicas, alpha, rate: as in figures 3a and 3b of the paper."""
_CLAIM_2 = (1, 4, 8, 16, 32, 36, 38, 40)
"""Actors, as in figure 3c: each sends 100 times in a second, the learner takes 4,000."""
_SENT, _LEARNT = 100.0, 4000.0
_DASHES = {"hts": "-", "hts_barrier": "--", "sync": ":"}


def heading(simulator: Simulator, cores: int) -> str:
    """What is known of the simulator, and what is assumed beside it."""
    times = simulator.times
    parts = [f"a step takes {_ms(times.seconds)}, deviation {_ms(times.deviation)}"]
    if simulator.rows > 1:
        parts.append(f"for {simulator.rows:,} replicas at once")
    if times.length:
        parts.append(f"a reset {_ms(times.reset)}, every {times.length:,.0f} steps")
    parts.append(f"{_ms(simulator.cpu)} of it computes")
    parts.append(f"an answer takes {_ms(simulator.answer)}, learning {_ms(simulator.learning)}")
    core = "1 core" if cores == 1 else f"{cores:,} cores"
    return f"{'; '.join(parts)}; {core}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds else "nothing"


def table(found: Sequence[Prediction]) -> str:
    """Steps per second: a block for each schedule, a column for each length of rollout."""
    alphas = sorted({each.alpha for each in found})
    heads = "".join(f"{f'rollout {alpha:,}':>15} " for alpha in alphas)
    lines = []
    for how in SCHEDULES:
        lines.append(f"{how:<11}{heads}{BOUND:>15}")
        for replicas in sorted({each.replicas for each in found}):
            row = [each for each in found if each.replicas == replicas]
            shown = [each for each in row if each.how == how] + [_bound(row)]
            lines.append(f"{replicas:>9,}  " + "".join(map(_cell, shown)).rstrip())
    if any(each.computing for each in found):
        lines.append("* the cores compute all the time: this is their limit")
    return "\n".join(lines)


def _bound(row: Sequence[Prediction]) -> Prediction:
    return next(each for each in row if each.how == BOUND)


def _cell(each: Prediction) -> str:
    return f"{each.steps_per_second:>15,.0f}{'*' if each.computing else ' '}"


def advice(found: Sequence[Prediction], chosen: Advice, cores: int) -> str:
    """What to choose, and why no more."""
    near = f"{1 - NEAR:.0%}"
    rate = f"{chosen.steps_per_second:,.0f} steps/s"
    lines = [
        f"choose: {_replicas(chosen.replicas)}, rollout {chosen.rollout:,}, schedule hts: {rate}"
    ]
    if chosen.ends:
        why = _why(found, cores)
        lines.append(f"  more than {_replicas(chosen.replicas)} bring less than {near} more, {why}")
    else:
        lines.append("  more replicas would help: the largest number that was looked at is best")
    shorter = any(each.alpha < chosen.rollout for each in found)
    lines.append(
        f"  a shorter rollout costs more than {near}; a longer one learns from older data"
        if shorter
        else "  no shorter rollout was looked at"
    )
    others = [shortest(found, how, chosen.replicas) for how in SCHEDULES if how != "hts"]
    lines += [f"  with the same replicas {_beside(each, chosen)}" for each in others]
    return "\n".join(lines)


def _beside(each: Prediction, chosen: Advice) -> str:
    ratio = each.steps_per_second / chosen.steps_per_second
    than = "as fast" if abs(ratio - 1) < 0.005 else f"{ratio:.0%} of it"
    return f"{each.how} reaches {each.steps_per_second:,.0f} at rollout {each.alpha:,}: {than}"


def _replicas(count: int) -> str:
    return f"{count:,} replica{'' if count == 1 else 's'}"


def _why(found: Sequence[Prediction], cores: int) -> str:
    most = max(each.replicas for each in found)
    computing = any(each.computing for each in found if each.how == "hts" and each.replicas == most)
    if computing:
        return f"because {'one core computes' if cores == 1 else f'{cores:,} cores compute'}"
    return "because updates take the time"


def picture(path: Path, found: Sequence[Prediction]) -> None:
    """Steps per second over replicas: colours are lengths of rollout, dashes are schedules."""
    alphas = sorted({each.alpha for each in found})
    strokes = [_stroke(found, BOUND, alphas[0], Look("#999999", "-", 5.0))]
    for alpha in dict.fromkeys([alphas[-1], alphas[0]]):
        colour = COLOURS[0] if alpha == alphas[-1] else COLOURS[1]
        strokes += [_stroke(found, how, alpha, Look(colour, dash)) for how, dash in _DASHES.items()]
    frame = Frame(
        title="predicted throughput", x="replicas", y="steps per second", logarithmic=True
    )
    draw(path, frame, strokes)


def _stroke(found: Sequence[Prediction], how: str, alpha: int, look: Look) -> Stroke:
    ours = [each for each in found if each.how == how and each.alpha == alpha]
    x = np.array([each.replicas for each in ours], float)
    label = f"{how} bound" if how == BOUND else f"{how}, rollout {alpha:,}"
    return Stroke(label, x, np.array([each.steps_per_second for each in ours]), look=look)


def claims() -> dict[str, list[dict[str, Any]]]:
    """Both claims, formula beside simulation; None where an expectation is infinite."""
    first = []
    for replicas, alpha, rate in _CLAIM_1:
        setting = claim.Synchronised(replicas=replicas, alpha=alpha, rate=rate)
        states = 100 * replicas * alpha
        first.append(
            {
                "replicas": replicas,
                "alpha": alpha,
                "rate": rate,
                "states": states,
                "formula": claim.seconds_by_formula(setting, states),
                "simulation": claim.seconds_by_simulation(setting, states),
            }
        )
    second = []
    for actors in _CLAIM_2:
        lags = [
            of(actors, _SENT, _LEARNT) for of in (claim.lag_by_formula, claim.lag_by_simulation)
        ]
        formula, simulation = (lag if math.isfinite(lag) else None for lag in lags)
        second.append({"actors": actors, "formula": formula, "simulation": simulation})
    return {"claim_1": first, "claim_2": second}


def claims_in_words(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Two tables."""
    lines = [
        "claim 1: expected time of 100 rollouts, all replicas waiting for the slowest",
        "replicas  rollout  steps/s of one    formula  simulation",
        *(
            f"{row['replicas']:>8}  {row['alpha']:>7}  {row['rate']:>14g}  "
            f"{row['formula']:>9.1f}  {row['simulation']:>10.1f}"
            for row in found["claim_1"]
        ),
        "",
        f"claim 2: how old asynchronous data is, {_SENT:g} /s of each actor, {_LEARNT:g} /s learnt",
        "actors    formula  simulation   here",
        *(
            f"{row['actors']:>6}  {_lag(row['formula'])}  {_lag(row['simulation'])}      1"
            for row in found["claim_2"]
        ),
    ]
    return "\n".join(lines)


def _lag(lag: float | None) -> str:
    return f"{'unbounded' if lag is None else f'{lag:.3f}':>10}"
