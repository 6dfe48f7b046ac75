"""What the bench says: lines for people, and the same as one object for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from hts.bench.costs import Costs
from hts.bench.limits import schedule_of
from hts.bench.session import Outcome, cores

_ROW = "{:>9} {:>6} {:>8} {:>6} {:>8} {:>11} {:>7} {:>11} {:>11} {:>6} {:>6} {:>7} {:>9}"
_NAMES = ("executors", "actors", "learners", "blocks", "stepping", "schedule", "rollout")
HEADING = _ROW.format(*_NAMES, "steps/s", "limit", "ratio", "cores", "others", "us/sample")


def heading(outcome: Outcome) -> Iterator[str]:
    """An experiment, what a sample of it costs, and what follows from that."""
    experiment, costs = outcome.config.experiment, outcome.found.costs
    yield (
        f"{experiment.env}: {experiment.algo.name}, {experiment.replicas:,} replicas, rollout "
        f"{experiment.rollout:,}; {cores()} cores"
    )
    yield f"  costs   {_costs(costs, experiment.replicas)}"
    by_cpu = f"{outcome.limits.cpu:,.0f} steps/s by the CPU"
    yield f"  limit   {by_cpu}{_crowded(outcome)}{_waiting(outcome)}"
    if outcome.found.parts:
        yield f"  parts   {_parts(outcome.found.parts)}"
    yield f"  layout  {outcome.why}"


def _costs(costs: Costs, replicas: int) -> str:
    step = costs.step
    waiting = f", {step.waiting:.0%} of it waiting" if step.waiting > 0.02 else ""
    return (
        f"step {_us(step.mean)} (deviation {_us(step.deviation)}{waiting}), answer "
        f"{_us(costs.answer(replicas))} in batches of {replicas:,} and {_us(costs.answer(1))} "
        f"alone{_more(costs)}, learning {_us(costs.learning)}"
    )


def _more(costs: Costs) -> str:
    """What a sample asks besides: its value, where values are apart; more than once for a step, in
    short rollouts."""
    if costs.values:
        return f", its value {_us(costs.values)}"
    return f" ({costs.questions:.3g} for each step)" if costs.questions > 1.02 else ""


def _crowded(outcome: Outcome) -> str:
    crowded = outcome.limits.crowded
    return "" if crowded is None else f" ({crowded:,.0f} at its costs where every core computes)"


def _waiting(outcome: Outcome) -> str:
    found = outcome.limits
    if found.waiting is None:
        return ""
    return (
        f", {found.waiting:,.0f} by waiting (schedule {schedule_of(outcome.config)}; "
        f"{found.expected:,.0f} with answers and updates as measured)"
    )


def _parts(parts: dict[str, float]) -> str:
    """Each part of an observation, and the share of what is there for determinism and order."""
    listed = ", ".join(f"{name} {1e6 * seconds:.2f}" for name, seconds in parts.items())
    whole = sum(parts.values())
    ours = (parts["digest"] + parts["book"]) / whole
    return f"{listed} us: {1e6 * whole:.2f} in all, digest and book {ours:.1%} of it"


def row(outcome: Outcome) -> str:
    """One layout and what it did."""
    machine, reading = outcome.machine, outcome.reading
    who = (machine.executors, machine.actors, machine.learners, machine.blocks, machine.stepping)
    named = (*who, schedule_of(outcome.config), outcome.config.experiment.rollout)
    if reading is None:
        return _ROW.format(*named, "FAILED", "", "", "", "", "").rstrip()
    return _ROW.format(
        *named,
        f"{reading.steps_per_second:,.0f}",
        f"{outcome.limits.best:,.0f}",
        f"{outcome.ratio:.0%}",
        f"{reading.cores:.3g}",
        f"{reading.others:.2f}",
        f"{1e6 * reading.cores / reading.steps_per_second:.3g}",
    )


def memory(outcome: Outcome) -> str:
    """Private memory of every process of a layout."""
    assert outcome.reading is not None, "it ran"
    private = outcome.reading.private
    each = ", ".join(f"{name} {size / 1e6:,.0f}" for name, size in private.items())
    return (
        f"  memory  {each} MB private; {outcome.reading.storages / 1e6:,.0f} MB shared; "
        f"{(sum(private.values()) + outcome.reading.storages) / 1e6:,.0f} MB in all"
    )


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Everything, in seconds, bytes and steps per second."""
    costs, step = outcome.found.costs, outcome.found.costs.step
    return {
        "experiment": dataclasses.asdict(outcome.config.experiment),
        "machine": dataclasses.asdict(outcome.machine),
        "schedule": schedule_of(outcome.config),
        "why": outcome.why,
        "cores": cores(),
        "costs": {
            "step": step.mean,
            "step_cpu": step.cpu,
            "step_deviation": step.deviation,
            "step_shape": step.shape,
            "step_waiting": step.waiting,
            "inference": {str(size): seconds for size, seconds in costs.inference.items()},
            "learning": costs.learning,
            "questions": costs.questions,
            "values": costs.values,
            "parts": outcome.found.parts,
        },
        "limits": {**dataclasses.asdict(outcome.limits), "best": outcome.limits.best},
        "reading": outcome.reading and dataclasses.asdict(outcome.reading),
        "ratio": outcome.ratio,
        "failure": outcome.failure,
    }


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:.3g} us" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"
