"""Real cases: blocks that are stepped as an executor does, until they fail or are to stop."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

import numpy as np

from hts.config import Experiment
from hts.errors import WorldFailed
from hts.machine import Sizes
from hts.memory.storage import Storage
from hts.roles.blocks import Block
from hts.runtime.crew import make_blocks
from hts.soundness.case import Case, Failure, Kind, Question
from hts_envs.contract import Array, Box, Place, Spaces
from hts_envs.registry import make, parse
from tests.fakes.runs import experiment


@dataclass
class Stopped:
    """Where a block stopped, and why."""

    asked: Experiment
    replicas: range
    question: Question | None
    failure: Failure

    def case(self, row: int | None = None) -> Case:
        return Case.of(self.asked, self.replicas, self.question, self.failure, row=row)


def stopped(
    env: str, *, steps: int = 10**6, replicas: range = range(2, 5), squash: bool = False
) -> Stopped:
    """Rollouts of four steps with actions drawn from a seed, up to a failure or so many steps."""
    asked = experiment(env, replicas=replicas.stop, rollout=4, seed=11, squash=squash)
    spec = parse(env)
    spaces = make(spec, Place(0, 1, 0)).spaces
    storages = tuple(Storage(Sizes.of(asked, spaces), spaces) for _ in range(2))
    (block,) = make_blocks(asked, spec, spaces, [replicas])
    drawn = np.random.default_rng(3)
    question: Question | None = None
    past: dict[int, Array] = {}
    try:
        for at in range(steps + 1):
            rollout, step = divmod(at, 4)
            storage = storages[rollout % 2]
            if step == 0:
                _begin(block, storages, rollout, past)
            question = Question(storage, rollout, step, dict(past))
            storage.action[block.slice, step] = _actions(drawn, spaces, len(replicas))
            if at < steps:
                block.step(storage, step)
        failure = Failure(Kind.HANGS, "nothing was heard of it for 60 s")
    except Exception as error:
        why = error.__cause__ if isinstance(error, WorldFailed) else error
        failure = Failure(Kind.RAISES, "".join(traceback.format_exception(why)))
    return Stopped(asked, replicas, question, failure)


def _begin(
    block: Block, storages: tuple[Storage, ...], rollout: int, past: dict[int, Array]
) -> None:
    storage, older = storages[rollout % 2], storages[(rollout - 1) % 2]
    if rollout:
        past[rollout - 1] = older.action[block.slice].copy()
        block.take_over(storage, older)
    else:
        block.begin(storage)


def _actions(drawn: np.random.Generator, spaces: Spaces, replicas: int) -> Array:
    """Numbers go beyond their bounds, as those of a policy do."""
    shape = (replicas, spaces.agents, *spaces.action.shape)
    if isinstance(spaces.action, Box):
        return drawn.normal(0.0, 2.0, shape).astype(np.float32)
    return drawn.integers(0, 2, shape)
