"""Costs, measured in a process of their own: with its numerics, and with nobody else's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hts.bench.costs import Budget, Costs, measure
from hts.bench.walks import StepCosts
from hts.config import Experiment
from hts.determinism import numerics
from hts.runtime.process import Child, Pipe, wait_message


@dataclass(frozen=True)
class Question:
    """What is to be measured, where networks compute, and for how long."""

    experiment: Experiment
    device: str
    budget: Budget
    parts: float = 0.0  # seconds for what an observation costs part by part


@dataclass(frozen=True)
class Found:
    """The costs of a sample, and the parts of an observation's where they were asked for."""

    costs: Costs
    parts: dict[str, float]


def measured(question: Question) -> Found:
    """What a sample of this experiment costs here and now."""
    (found,) = together(question, 1)
    return found


def together(question: Question, count: int) -> list[Found]:
    """The same, asked of so many processes at the same time: how each core does beside others."""
    children = [Child(f"measuring {number}", run, question) for number in range(count)]
    try:
        return [_read(wait_message([child])) for child in children]
    finally:
        for child in children:
            child.end()


def run(pipe: Pipe, question: Question) -> None:
    """The life of the process."""
    numerics.settle()
    from hts.bench.parts import observation_parts
    from hts.runtime.assemble import plan
    from hts_envs.registry import parse

    spec = parse(question.experiment.env)
    found = plan(question.experiment, spec, question.device)
    costs = measure(found, spec, question.budget)
    parts = {}
    if question.parts:
        parts = observation_parts(found, spec, costs.step, question.parts)
    pipe.send(
        durations=costs.step.durations.tolist(),
        cpu=costs.step.cpu,
        at_once=costs.step.at_once,
        inference=list(costs.inference.items()),
        learning=costs.learning,
        questions=costs.questions,
        values=costs.values,
        parts=parts,
    )
    pipe.receive()  # stays until it is ended


def _read(said: dict[str, Any]) -> Found:
    step = StepCosts(np.array(said["durations"]), said["cpu"], said["at_once"], ())
    inference = {int(size): float(seconds) for size, seconds in said["inference"]}
    costs = Costs(step, inference, said["learning"], said["questions"], said["values"])
    return Found(costs, said["parts"])
