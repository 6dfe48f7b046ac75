"""The same experiment on many machine layouts: are the digests equal, and if not, where not?"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hts.config import Experiment, Machine
from hts.determinism.divergence import Seen, first_divergence
from hts.memory.storage import Storage
from hts.runtime.assemble import Updated, plan
from hts.runtime.train import make_run
from hts_envs.registry import parse


@dataclass(frozen=True)
class Layout:
    """One row of the matrix."""

    name: str
    machine: Machine


@dataclass(frozen=True)
class Outcome:
    """What a layout made of the experiment."""

    layout: Layout
    updates: list[Updated]
    seconds: float

    @property
    def digest(self) -> str:
        return self.updates[-1].link.chain


def matrix(executors: Sequence[int], barriers: Sequence[bool], machine: Machine) -> list[Layout]:
    """The serial runner, which the others are compared with, and every combination."""
    layouts = [Layout("serial", dataclasses.replace(machine, serial=True, barrier=False))]
    for count in executors:
        for barrier in barriers:
            name = f"{count} executor{'s' if count > 1 else ''}{', barrier' if barrier else ''}"
            chosen = dataclasses.replace(machine, executors=count, barrier=barrier, serial=False)
            layouts.append(Layout(name, chosen))
    return layouts


def outcome(experiment: Experiment, layout: Layout, device: str) -> Outcome:
    """Run the experiment on this layout."""
    began = time.perf_counter()
    return Outcome(layout, _run(experiment, layout, device), time.perf_counter() - began)


def _run(
    experiment: Experiment,
    layout: Layout,
    device: str,
    watch: Callable[[int, Storage], None] | None = None,
) -> list[Updated]:
    spec = parse(experiment.env)
    found = plan(experiment, spec, device, layout.machine.jitter)
    if watch is not None:
        found = dataclasses.replace(found, watch=watch)
    run = make_run(found, spec, layout.machine)
    try:
        return list(run)
    finally:
        run.close()


def difference(experiment: Experiment, ours: Outcome, theirs: Outcome, device: str) -> str:
    """Where two outcomes part, after running both again up to there and looking closely."""
    pairs = zip(ours.updates, theirs.updates, strict=True)
    update = next(i for i, (a, b) in enumerate(pairs) if a.link.chain != b.link.chain)
    a, b = ours.updates[update].link, theirs.updates[update].link
    if a.rollout == b.rollout:
        return f"update {update + 1}: the rollouts are equal, the parameters made of them are not"
    upto = dataclasses.replace(experiment, steps=(update + 1) * experiment.rows)
    seen = [_seen(upto, outcome.layout, device, update) for outcome in (ours, theirs)]
    found = first_divergence(*seen)
    if found is None:
        return f"update {update + 1}: the rollouts differed, but not when both ran again"
    return f"update {update + 1}, {found.sentence()}"


def _seen(experiment: Experiment, layout: Layout, device: str, rollout: int) -> Seen:
    """The rollout of this number, as this layout makes it."""
    kept: list[Seen] = []

    def keep(number: int, storage: Storage) -> None:
        if number == rollout:
            arrays = {name: array.copy() for name, array in storage.arrays.items()}
            sizes = storage.sizes
            kept.append(Seen(storage.declared, arrays, sizes.history, sizes.steps))

    _run(experiment, layout, device, keep)
    return kept[0]
