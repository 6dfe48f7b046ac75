"""What one sample costs on this machine: step, answer, update, each alone on one thread.

CPU time is that of all threads of this process, so that another program on the same cores does
not count. Durations of steps that the system interrupted are corrected for it (see
hts.soundness.profile). Nothing here is exact: it is what limits are computed from.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from hts.bench.walks import StepCosts, measure_worlds
from hts.config import PPO, Experiment
from hts.determinism import numerics
from hts.determinism.strategy import LARGEST_BATCH
from hts.machine import Sizes
from hts.memory.storage import Rows, Storage
from hts.models.policy import Policy, uniforms
from hts.roles.learner import Learner
from hts.runtime.assemble import Plan
from hts.soundness.subject import actions
from hts_envs.randomness import fold_rows, uniform
from hts_envs.registry import Spec

BATCHES = (1, 4, 8, 16, 32, 64, 256, 1024, 4096)


@dataclass(frozen=True, eq=False)
class Costs:
    """What a sample costs: one step of one replica, with the rows of all of its agents."""

    step: StepCosts
    inference: Mapping[int, float]  # CPU seconds for each row, by rows in the batch
    learning: float  # CPU seconds for each row, all epochs of one update
    questions: float = 1.0  # for each sample: its own, and its share of those behind the rollout
    values: float = 0.0  # CPU seconds for each sample, where a rollout's values are computed apart

    def answer(self, batch: float) -> float:
        """CPU seconds of the network for each row when so many are answered together."""
        sizes = sorted(self.inference)
        return float(np.interp(batch, sizes, [self.inference[size] for size in sizes]))

    def acting(self, batch: float) -> float:
        """CPU seconds of its step and its answers when so many are answered together."""
        return self.step.cpu + self.answer(batch) * self.questions + self.values

    def sample(self, batch: float) -> float:
        """CPU seconds of everything that one sample needs."""
        return self.acting(batch) + self.learning


@dataclass(frozen=True)
class Budget:
    """Seconds for each measurement, about; the first calls of each come on top."""

    steps: float = 2.0
    inference: float = 1.0
    learning: float = 2.0
    worlds: int = 1  # single ones, stepped in turn as an executor does: each finds a cold cache


def measure(found: Plan, spec: Spec, budget: Budget = Budget()) -> Costs:
    """Everything, with worlds of its own that are closed before the network is looked at."""
    step = measure_worlds(spec, found.experiment.replicas, budget.steps, budget.worlds)
    numerics.settle()  # networks are measured in this process next
    return with_networks(found, step, budget)


def with_networks(found: Plan, step: StepCosts, budget: Budget) -> Costs:
    """The costs of answering and learning beside those of stepping."""
    inference = measure_inference(found, step, budget.inference)
    learning, experiment = measure_learning(found, step, budget.learning), found.experiment
    # Behind the last step of a rollout its value is asked for, but by algorithms with a replay.
    behind = 0.0 if experiment.windows else 1.0 / experiment.rollout
    if not found.policy().values_apart:
        return Costs(step, inference, learning, 1.0 + behind)
    values = values_cost(found, step, budget.inference / len(BATCHES))
    return Costs(step, inference, learning, values=values)


def measure_inference(found: Plan, step: StepCosts, seconds: float) -> dict[int, float]:
    """The network and the draw of an action, in batches up to all replicas at once."""
    replicas = found.experiment.replicas
    sizes = sorted({min(size, replicas) for size in BATCHES})
    policy, version = found.policy(packs=True), found.first_versions()[0]
    policy.load(version.parameters)
    storage = filled(found, step, 1)
    costs = {}
    for size in sizes:
        rows = Rows(np.arange(size), np.zeros(size, np.int64))
        answer = _answering(policy, storage, rows)
        costs[size] = cpu_seconds(answer, seconds / len(sizes)) / size
    return costs


def values_cost(found: Plan, step: StepCosts, seconds: float) -> float:
    """CPU seconds of a sample's value, and its share of those behind a rollout, where values are
    computed apart from actions."""
    replicas, policy = found.experiment.replicas, found.policy()
    policy.load(found.first_versions()[0].parameters)
    steps = min(found.experiment.rollout, max(1, LARGEST_BATCH // replicas))
    seen = filled(found, step, steps).gather(Rows(range(replicas), range(steps)))
    batch = {name: array[:LARGEST_BATCH] for name, array in seen.items()}
    value = torch.inference_mode()(lambda: policy.value(batch))
    each = cpu_seconds(value, seconds) / min(LARGEST_BATCH, replicas * steps)
    return each * (1.0 + 1.0 / found.experiment.rollout)


def _answering(policy: Policy, storage: Storage, rows: Rows) -> Callable[[], object]:
    """A call that answers these rows, which were gathered before."""
    seen, state = storage.gather(rows), storage.state_before(rows)
    named, actions = storage.key[rows.replicas, rows.steps], policy.distribution

    @torch.inference_mode()
    def answer() -> object:
        head = policy.head(seen, state)
        return actions.draw(head, uniforms(named, policy.agents, actions.noise))

    return answer


def measure_learning(found: Plan, step: StepCosts, seconds: float) -> float:
    """CPU seconds for each row of an update, or of one of its minibatches where time is short."""
    deadline = time.perf_counter() + seconds
    whole = found.experiment
    part, times = _part(whole)
    first = _update_seconds(found, part, step, 0.0) * times
    left = deadline - time.perf_counter()
    if left < first:
        return first / part.rows
    if 2.0 * first * whole.rows / part.rows < left:
        part, times = whole, 1
    return _update_seconds(found, part, step, left) * times / part.rows


def _part(whole: Experiment) -> tuple[Experiment, int]:
    """One epoch of one minibatch of the same size where it can be cut out, and of how many."""
    algo = whole.algo
    if not isinstance(algo, PPO):
        return whole, 1
    once = dataclasses.replace(algo, epochs=1, minibatches=1)
    for name in ("replicas", "rollout"):
        size = getattr(whole, name)
        if size % algo.minibatches == 0:
            cut = {name: size // algo.minibatches}
            return dataclasses.replace(whole, algo=once, **cut), algo.epochs
    return whole, 1


def _update_seconds(found: Plan, experiment: Experiment, step: StepCosts, seconds: float) -> float:
    """CPU seconds of one update of this experiment."""
    planned = dataclasses.replace(found, experiment=experiment)
    storage = filled(planned, step, experiment.rollout)
    learner = Learner(experiment, planned.policy())
    versions = planned.first_versions()
    storage.version = versions[0].number
    return cpu_seconds(lambda: learner.update(storage, versions[0], versions[-1], 0), seconds)


def filled(found: Plan, step: StepCosts, steps: int) -> Storage:
    """A storage as a random policy might fill it, with observations that were really seen."""
    sizes = dataclasses.replace(Sizes.of(found.experiment, found.spaces), steps=steps)
    storage = Storage(sizes, found.spaces)
    for array in storage.declared:
        kind, _, name = array.name.partition(".")
        if kind == "frames":
            pick = np.arange(array.shape[0] * array.shape[1]) % len(step.seen)
            seen = np.stack([observation[name] for observation in step.seen])
            storage.arrays[array.name][:] = seen[pick].reshape(array.shape)
    replicas = found.experiment.replicas
    named = fold_rows(np.arange(replicas * steps))
    storage.key[:] = named.reshape(replicas, steps)
    storage.age[:] = np.arange(steps + 1) + found.experiment.frame_stack
    storage.action[:] = actions(found.spaces, named).reshape(storage.action.shape)
    storage.reward[:] = uniform(named, 1).reshape(replicas, steps, 1)
    storage.log_prob[:] = -1.0
    return storage


def cpu_seconds(call: Callable[[], object], seconds: float) -> float:
    """The median CPU time of a call, after a first one that does not count."""
    deadline = time.perf_counter() + seconds
    call()
    spent: list[float] = []
    while not spent or time.perf_counter() < deadline:
        begun = time.process_time()
        call()
        spent.append(time.process_time() - begun)
    return float(np.median(spent))
