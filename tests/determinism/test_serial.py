"""The serial runner: one experiment, one seed, one digest, in any process and any company."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from hts.config import A2C, PPO, Experiment
from hts.roles.local import BatchedBlock, WorldsBlock
from hts.runtime.assemble import Updated
from tests.fakes.runs import experiment, outcome, serial
from tests.limits import HANG

PRINTS = """
from hts.determinism import numerics
numerics.prepare()
from tests.fakes.runs import experiment, outcome
for seed in (7, 8):
    print(*(update.link.chain for update in outcome(experiment(seed=seed))))
"""


def elsewhere(hash_seed: str) -> list[list[str]]:
    """The digests of small runs with seeds 7 and 8 in a fresh process."""
    said = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRINTS],
        capture_output=True,
        text=True,
        timeout=HANG,
        env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
    )
    assert said.returncode == 0, said.stderr
    return [line.split() for line in said.stdout.splitlines()]


def chains(asked: Experiment) -> list[str]:
    return [update.link.chain for update in outcome(asked)]


def test_fresh_processes_agree_and_another_seed_does_not() -> None:
    """Two seeds, in two processes that hash differently, and here."""
    first = elsewhere("1")
    assert elsewhere("2") == first
    assert [chains(experiment(seed=seed)) for seed in (7, 8)] == first
    assert len({*first[0], *first[1]}) == 6


@pytest.mark.parametrize("algo", [A2C(), PPO(epochs=2, minibatches=2)], ids=["a2c", "ppo"])
def test_global_generators_are_neither_read_nor_moved(algo: A2C | PPO) -> None:
    """Rule 15: whatever state they are in, the digest is the same, and so is their state after."""
    digests = set()
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        before = (random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state())
        digests.add(tuple(chains(experiment(algo=algo))))
        assert random.getstate() == before[0]
        assert np.random.get_state()[1].tobytes() == before[1]
        assert torch.equal(torch.get_rng_state(), before[2])
    assert len(digests) == 1


def test_a_run_beside_another_is_undisturbed() -> None:
    """Two runs in one process, update by update in turn: each as if it were alone."""
    asked = (experiment(), experiment(seed=1))
    runs = [serial(one) for one in asked]
    beside = [[first.link.chain, second.link.chain] for first, second in zip(*runs, strict=True)]
    for run in runs:
        run.close()
    assert [list(column) for column in zip(*beside, strict=True)] == [chains(one) for one in asked]


@pytest.mark.parametrize(
    ("schedule", "expected"), [("hts", [(0, 1, 2), (1, 2, 3), (2, 3, 4)]), ("sync", [(0, 0, 1)])]
)
def test_the_lag_is_one(schedule: str, expected: list[tuple[int, int, int]]) -> None:
    """I3: rollout r is made with version r, applied to r + 1 and makes r + 2; in turn: no lag."""
    run = serial(experiment(schedule=schedule, updates=len(expected)))
    seen = []
    updates = iter(run)
    for rollout in range(len(expected)):
        behaviour, newest = run.versions[0].number, run.versions[-1].number
        next(updates)
        assert run.storages[rollout % 2].version == behaviour
        seen.append((behaviour, newest, run.versions[-1].number))
    assert seen == expected
    run.close()


def test_the_first_two_versions_are_the_same_parameters() -> None:
    """Nothing is learnt before rollout 1 begins, so both first rollouts are made with them."""
    run = serial(experiment())
    assert [version.number for version in run.versions] == [0, 1]
    assert torch.equal(run.versions[0].parameters, run.versions[1].parameters)
    run.close()


def test_actions_follow_from_the_version_and_nothing_newer() -> None:
    """The log-probabilities in a rollout are those of its own version, and of no other."""
    run = serial(experiment(updates=4, algo=PPO(learning_rate=0.01, minibatches=2)))
    updates = iter(run)
    for rollout in range(4):
        versions = list(run.versions)
        next(updates)
        storage = run.storages[rollout % 2]
        policy = run.learner.policy
        said = []
        for version in (*versions, run.versions[-1]):
            policy.load(version.parameters)
            with torch.inference_mode():
                seen = {"observation": storage.arrays["frames.observation"][:, :-1, 0]}
                seen["observation"] = seen["observation"].reshape(64, 1, 4)
                answer = policy.answer(seen)
                action = torch.from_numpy(storage.action.reshape(-1))
                found = policy.distribution.log_prob(answer.head, action).numpy()
            said.append(np.array_equal(found, storage.log_prob.reshape(-1)))
        same = torch.equal(versions[0].parameters, versions[1].parameters)
        assert said == [True, same, False]
    run.close()


@pytest.mark.parametrize(
    ("single", "batched"),
    [
        ("sleeper:?mean=0&length=7", "sleeper:?mean=0&length=7&batch=true"),
        (
            "sleeper:?mean=0&length=9&observation=6x5&actions=5",
            "sleeper:?mean=0&length=9&observation=6x5&actions=5&batch=true",
        ),
    ],
)
@pytest.mark.parametrize("stack", [1, 3])
def test_a_batched_world_gives_the_digest_of_single_ones(
    single: str, batched: str, stack: int
) -> None:
    """Six worlds one by one, or behind one call: every rollout, episode and parameter is equal.

    The chains are too, because how a world is stepped is no part of the experiment's identity.
    """

    def updates(env: str) -> list[Updated]:
        return outcome(experiment(env, replicas=6, frame_stack=stack))

    for one, many in zip(updates(single), updates(batched), strict=True):
        assert one.link == many.link
        assert one.episodes == many.episodes


def test_the_kinds_of_blocks_are_those_that_were_compared() -> None:
    """Six single worlds in turn there, one call for all six here."""
    kinds = []
    for env in ("sleeper:?mean=0", "sleeper:?mean=0&batch=true"):
        run = serial(experiment(env, replicas=6))
        kinds += [type(block) for block in run.blocks]
        run.close()
    assert kinds == [WorldsBlock, BatchedBlock]


def test_replicas_are_not_copies_of_each_other() -> None:
    """Every replica sees and does something else, in every rollout."""
    run = serial(experiment(replicas=8))
    for rollout, _ in enumerate(run):
        assert len(set(run.desk.parts(rollout))) == 8
    run.close()


def test_more_replicas_change_nothing_of_the_first_rollout_of_the_others() -> None:
    """A replica's part of rollout 0 follows from its own number and the seed alone."""
    digests = []
    for replicas in (4, 12):
        run = serial(experiment(replicas=replicas))
        next(iter(run))
        digests.append(run.desk.parts(0)[:4])
        run.close()
    assert digests[0] == digests[1]
