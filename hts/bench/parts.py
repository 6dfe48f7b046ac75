"""What one observation costs, part by part, in the serial machine: CPU seconds for each sample.

    key        the number that its action is drawn with
    gather     out of the storage, as the network sees it
    network    the answer
    sampling   the action, with its probability
    values     those of the rollout, where they are computed apart
    write      everything into the storage, and episodes' ends and begins
    step       the simulator
    settings   the check that simulators left the settings of arithmetic alone
    digest     the hash of all of it
    book       what is left: tickets, loops, who is next, and what is told
    learning   all epochs of the update

Acting, stepping, learning and the whole are timed while a run goes on; key, gather, network,
sampling, step and digest alone, with all replicas in one batch. `write` is what is left of acting
and stepping then, and `book` what is left of the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hts.bench.costs import cpu_seconds, values_cost
from hts.bench.walks import StepCosts
from hts.determinism import settings
from hts.determinism.digest import replica_digest
from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.models.policy import uniforms
from hts.roles.blocks import Block
from hts.runtime.assemble import Plan
from hts.runtime.serial import SerialRun
from hts_envs.registry import Spec

_STEP = 1  # of the rollout: any but the first and the last
_FIRST = 3  # updates that are not counted


def observation_parts(found: Plan, spec: Spec, step: StepCosts, seconds: float) -> dict[str, float]:
    """The parts by name, in the order above; `seconds` is for all of them together, about."""
    share = seconds / 9
    run = SerialRun(found, spec)
    try:
        whole, acting, stepping, learning = _in_a_run(run, 4 * share)
        storage = run.storages[0]
        key = _offering(run.blocks[0], storage, share)
        kept = cpu_seconds(settings.are_kept, share) / len(run.blocks[0].replicas)
    finally:
        run.close()
    answered = _answering(found, storage, found.first_versions()[0], share)
    valued = {"values": values_cost(found, step, share)} if found.policy().values_apart else {}
    parts = {
        "key": key,
        **answered,
        **valued,
        "write": acting
        + stepping
        - sum([*answered.values(), *valued.values(), step.cpu, key, kept]),
        "step": step.cpu,
        "settings": kept,
        "digest": cpu_seconds(lambda: _hash(storage), share) / found.experiment.rows,
    }
    return {**parts, "book": whole - learning - sum(parts.values()), "learning": learning}


class _Timed:
    """In the place of an object's method: its calls, and the CPU seconds that they took."""

    def __init__(self, owner: Any, name: str) -> None:
        self.seconds = 0.0
        self._call: Callable[..., Any] = getattr(owner, name)
        setattr(owner, name, self)

    def __call__(self, *given: Any) -> Any:
        began = time.process_time()
        try:
            return self._call(*given)
        finally:
            self.seconds += time.process_time() - began


def _in_a_run(run: SerialRun, seconds: float) -> list[float]:
    """Of the whole, of acting, of stepping and of learning, for each row."""
    updates, rows = iter(run), 0
    for _ in range(_FIRST):
        next(updates)
    acting = [_Timed(run.actor, name) for name in ("act", "value", "values")]
    stepping = [_Timed(block, "step") for block in run.blocks]
    learning = [_Timed(run.learner, "update")]
    began, until = time.process_time(), time.perf_counter() + seconds
    while not rows or time.perf_counter() < until:
        next(updates)
        rows += run.experiment.rows
    whole = time.process_time() - began
    kinds = (acting, stepping, learning)
    return [each / rows for each in (whole, *(sum(t.seconds for t in kind) for kind in kinds))]


def _answering(found: Plan, storage: Storage, version: Version, seconds: float) -> dict[str, float]:
    """Gathering, the network and the draw, each for one row of all replicas' batch."""
    rows, policy = _rows(storage), found.policy(packs=True)
    policy.load(version.parameters)
    actions, count = policy.distribution, rows.count
    named, state = storage.key[rows.replicas, rows.steps], storage.state_before(rows)
    seen = version.scale.apply(storage.gather(rows))

    @torch.inference_mode()
    def network() -> torch.Tensor:
        return policy.head(seen, state)

    head = network()

    @torch.inference_mode()
    def draw() -> None:
        actions.draw(head, uniforms(named, policy.agents, actions.noise))

    calls = {
        "gather": lambda: version.scale.apply(storage.gather(rows)),
        "network": network,
        "sampling": draw,
    }
    return {name: cpu_seconds(call, seconds / 3) / count for name, call in calls.items()}


def _offering(block: Block, storage: Storage, seconds: float) -> float:
    """A key."""
    return cpu_seconds(lambda: block.offer(storage, _STEP), seconds) / len(block.replicas)


def _hash(storage: Storage) -> None:
    for replica in range(storage.sizes.replicas):
        replica_digest(storage, replica)


def _rows(storage: Storage) -> Rows:
    replicas = np.arange(storage.sizes.replicas)
    return Rows(replicas, np.full(len(replicas), _STEP))
