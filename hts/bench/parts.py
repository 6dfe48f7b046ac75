"""What one observation costs, part by part, in the serial machine: CPU seconds for each sample.

    key        the number that its action is drawn with
    gather     out of the storage, as the network sees it
    network    the answer
    sampling   the action, with its probability
    write      everything into the storage
    step       the simulator
    digest     the hash of all of it
    book       what is left of acting: tickets, loops, who is next
    learning   all epochs of the update

Each is timed alone, with all replicas in one batch. `book` is the difference between a whole
update and the rest, and has the error of them all.
"""

from __future__ import annotations

import numpy as np
import torch

from hts.bench.costs import cpu_seconds, measure_learning
from hts.bench.walks import StepCosts
from hts.determinism.digest import replica_digest
from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.models.policy import uniforms
from hts.roles.actor import Actor
from hts.roles.blocks import Block
from hts.runtime.assemble import Plan
from hts.runtime.crew import make_blocks
from hts.runtime.serial import SerialRun
from hts_envs.registry import Spec

_STEP = 1  # of the rollout: any but the first and the last


def observation_parts(found: Plan, spec: Spec, step: StepCosts, seconds: float) -> dict[str, float]:
    """The parts by name, in the order above; `seconds` is for all of them together, about."""
    share, rows = seconds / 8, found.experiment.rows
    run = SerialRun(found, spec)
    try:
        updates = iter(run)
        next(updates)  # takes over from nobody
        whole = cpu_seconds(lambda: next(updates), 2 * share) / rows
        storage = run.storages[0]
    finally:
        run.close()
    version = found.first_versions()[0]
    answered = _answering(found, storage, version, share)
    learning = measure_learning(found, step, share)
    everyone = range(found.experiment.replicas)
    (block,) = make_blocks(found.experiment, spec, found.spaces, [everyone])
    try:
        key, stepped = _stepping(block, storage, share)
    finally:
        block.close()
    act = _acting(found, storage, version, share)
    parts = {
        "key": key,
        **answered,
        "write": act - sum(answered.values()) + stepped - step.cpu - key,
        "step": step.cpu,
        "digest": cpu_seconds(lambda: _hash(storage), share) / rows,
    }
    return {**parts, "book": whole - learning - sum(parts.values()), "learning": learning}


def _answering(found: Plan, storage: Storage, version: Version, seconds: float) -> dict[str, float]:
    """Gathering, the network and the draw, each for one row of all replicas' batch."""
    rows, policy = _rows(storage), found.policy(packs=True)
    policy.load(version.parameters)
    actions, count = policy.distribution, len(rows)
    named, state = storage.key[rows.replicas, rows.steps], storage.state_before(rows)
    seen = version.scale.apply(storage.gather(rows))

    @torch.inference_mode()
    def network() -> torch.Tensor:
        return policy.answer(seen, state).head

    head = network()

    @torch.inference_mode()
    def draw() -> None:
        noise = torch.from_numpy(uniforms(named, policy.agents, actions.noise)).to(policy.device)
        actions.log_prob(head, actions.sample(head, noise)).cpu()

    calls = {
        "gather": lambda: version.scale.apply(storage.gather(rows)),
        "network": network,
        "sampling": draw,
    }
    return {name: cpu_seconds(call, seconds / 3) / count for name, call in calls.items()}


def _acting(found: Plan, storage: Storage, version: Version, seconds: float) -> float:
    """An actor's whole work for one row, from the storage and into it."""
    actor = Actor(found.policy, 1, found.experiment.replicas)
    storage.version, rows = version.number, _rows(storage)
    return cpu_seconds(lambda: actor.act(storage, rows, version), seconds) / len(rows)


def _stepping(block: Block, storage: Storage, seconds: float) -> tuple[float, float]:
    """A key, and a step of the simulator with everything that is written of it."""
    count = len(block.replicas)
    block.begin(storage)
    key = cpu_seconds(lambda: block.offer(storage, _STEP), seconds / 2) / count
    return key, cpu_seconds(lambda: block.step(storage, _STEP), seconds / 2) / count


def _hash(storage: Storage) -> None:
    for replica in range(storage.sizes.replicas):
        replica_digest(storage, replica)


def _rows(storage: Storage) -> Rows:
    replicas = np.arange(storage.sizes.replicas)
    return Rows(replicas, np.full(len(replicas), _STEP))
