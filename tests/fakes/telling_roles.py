"""The real actor and learner, which also write down what they find in their process.

The folder is named by HTS_TEST_FOLDER; each role writes one file, named after its process.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from hts.config import Experiment
from hts.memory.storage import Storage
from hts.memory.versions import Published, Version
from hts.roles import learner
from hts.roles.executor import Answering
from hts.runtime import answering as real
from hts.runtime.jitter import Jitter
from hts.runtime.learners import Computing
from hts.runtime.shared import Inference, Shared, Terms
from tests.fakes.births import name_of

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG")


def hashed(parameters: torch.Tensor) -> str:
    """A name for these bits."""
    return hashlib.sha256(parameters.numpy().tobytes()).hexdigest()


def numerics() -> dict[str, object]:
    """What floating-point numbers depend on, in this process."""
    return {
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "deterministic": torch.get_deterministic_debug_mode(),
        "fills": torch.utils.deterministic.fill_uninitialized_memory,
        "tf32": [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32],
        "benchmark": torch.backends.cudnn.benchmark,
        "variables": [os.environ.get(name) for name in VARIABLES],
    }


def tell(first: torch.Tensor) -> None:
    """Write it down, with the parameters that this process starts from."""
    name = name_of(os.getpid())
    found = {**numerics(), "parameters": hashed(first)}
    Path(os.environ["HTS_TEST_FOLDER"], name).write_text(json.dumps(found))


def answering(terms: Terms, inference: Inference, shared: Shared, pause: Jitter) -> Answering:
    """Answers as the real one does, and tells with its first answer."""
    answer = real.answering(terms, inference, shared, pause)
    published = Published(shared.versions, tuple(terms.memory.blueprint.scaled))
    told = False

    def tell_first(blocks: Sequence[int]) -> None:
        nonlocal told
        if not told:
            told = True
            tell(published.read(0).parameters)
        answer(blocks)

    return tell_first


class Learner(learner.Learner):
    """Learns as the real one does, and tells with its first update."""

    def __init__(
        self, experiment: Experiment, shared: Shared, computing: Computing, beside: object = None
    ) -> None:
        policy = computing.make_policy()
        super().__init__(experiment, policy, computing.workers, computing.padding)

    def update(
        self, storage: Storage, behaviour: Version, newest: Version, updates: int
    ) -> tuple[Version, dict[str, float]]:
        """The real update."""
        if not updates:
            tell(behaviour.parameters)
        return super().update(storage, behaviour, newest, updates)


def failing(terms: Terms, inference: Inference, shared: Shared, pause: Jitter) -> Answering:
    """Answers three times, then raises."""
    answer = real.answering(terms, inference, shared, pause)
    left = 3

    def fail(blocks: Sequence[int]) -> None:
        nonlocal left
        if not left:
            raise ArithmeticError("the actor's own words")
        left -= 1
        answer(blocks)

    return fail


class Ahead(learner.Learner):
    """Learns with the parameters of one version later than it says."""

    def __init__(
        self, experiment: Experiment, shared: Shared, computing: Computing, beside: object = None
    ) -> None:
        policy, limit = computing.make_policy(), computing.ratio_error_limit
        super().__init__(experiment, policy, computing.workers, computing.padding, limit)

    def update(
        self, storage: Storage, behaviour: Version, newest: Version, updates: int
    ) -> tuple[Version, dict[str, float]]:
        """The real update, which takes the newest parameters for those that acted."""
        wrong = dataclasses.replace(newest, number=behaviour.number)
        return super().update(storage, wrong, newest, updates)
