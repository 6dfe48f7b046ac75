"""What is learnt from where episodes end, on whole runs, against a walk through every episode.

Each episode is played again on a world of its own, from its seed and its stored actions, one
replica, one step and one row at a time. Stacks are lists of frames, statistics are taken over all
frames at once, states begin as zeros, targets are summed as they are written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from hts.config import PPO
from hts.determinism.keys import episode_seed
from hts.runtime.serial import SerialRun
from hts_envs.contract import Array, Observation
from tests.fakes.runs import experiment, serial
from tests.fakes.small_worlds import Ending

SCALED = ("numbers", "clock")
REMEMBERS = {"recurrent": "lstm", "recurrent_units": 16, "sequence": 8}
KINDS: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "plain": ({}, {}),
    "short episodes, two agents": ({"agents": 2, "length": 3}, {}),
    "stacked": ({}, {"frame_stack": 3}),
    "normalised": ({}, {"normalise_observations": True}),
    "recurrent": ({}, {"recurrent": "gru", "recurrent_units": 16}),
    "all of it": (
        {"agents": 2},
        {"frame_stack": 3, "normalise_observations": True, **REMEMBERS},
    ),
}


@dataclass
class Rollout:
    """What a storage held, and what was learnt from it."""

    theta: torch.Tensor
    action: Array
    value: Array
    bootstrap: Array
    target: Array


@dataclass
class Player:
    """One replica, from its first episode on."""

    run: SerialRun
    replica: int
    world: Ending
    episode: int = -1
    frames: list[Observation] = field(default_factory=list)
    state: Array | None = None

    def reset(self) -> None:
        self.episode += 1
        seed = episode_seed(self.run.experiment.seed, self.replica, self.episode)
        self.frames = [self.world.reset(seed)]
        size = self.run.learner.policy.state_size
        self.state = np.zeros((1, self.world.spaces.agents, size), np.float32) if size else None

    def look(self, past: list[Observation]) -> Array:
        """The value of what is seen now; the state, if there is any, goes on by one step."""
        stack = self.run.experiment.frame_stack
        shown = [self.frames[0]] * stack + self.frames
        frames = [scaled(frame, past) for frame in shown[-stack:]]
        seen = {name: joined([frame[name] for frame in frames])[None] for name in frames[0]}
        with torch.inference_mode():
            answer = self.run.learner.policy.answer(seen, self.state)
        if answer.state is not None and self.state is not None:
            self.state = answer.state.numpy().reshape(self.state.shape)
        return answer.value.numpy()


def joined(frames: list[Array]) -> Array:
    if len(frames) == 1:
        return frames[0]
    return np.stack(frames, -1) if frames[0].ndim == 1 else np.concatenate(frames, -1)


def scaled(frame: Observation, past: list[Observation]) -> Observation:
    """By mean and deviation of all these frames of all agents."""
    found = dict(frame)
    for name in SCALED if past else ():
        rows = np.concatenate([seen[name] for seen in past]).astype(np.float64)
        far = (frame[name] - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-8)
        found[name] = np.clip(far, -10, 10).astype(np.float32)
    return found


@dataclass
class Walked:
    """What a walk says that one replica's rollout must hold, step by step."""

    seen: list[Observation] = field(default_factory=list)
    value: list[Array] = field(default_factory=list)
    behind: list[Array] = field(default_factory=list)  # zero where no value is needed
    reward: list[Array] = field(default_factory=list)
    flags: list[tuple[bool, bool]] = field(default_factory=list)

    def targets(self, gamma: float, gae_lambda: float) -> Array:
        """The lambda-return of each step: from the last one back, cut at every end."""
        found = [np.zeros(0)] * len(self.reward)
        for step in reversed(range(len(found))):
            terminated, truncated = self.flags[step]
            if terminated:
                follows = np.zeros(())
            elif truncated or step == len(found) - 1:
                follows = self.behind[step].astype(np.float64)
            else:
                value = self.value[step + 1].astype(np.float64)
                follows = (1 - gae_lambda) * value + gae_lambda * found[step + 1]
            found[step] = self.reward[step] + gamma * follows
        return np.stack(found)


def walk(player: Player, actions: Array, past: list[Observation]) -> Walked:
    """Play the steps of one rollout again."""
    found = Walked()
    for step, action in enumerate(actions):
        found.seen.append(player.frames[-1])
        found.value.append(player.look(past))
        seen, reward, terminated, truncated, _ = player.world.step(action)
        player.frames.append(seen)
        behind = np.zeros(len(reward), np.float32)
        if not terminated and (truncated or step == len(actions) - 1):
            state = player.state
            behind = player.look(past)
            player.state = state  # it has looked ahead only
        found.behind.append(behind)
        found.reward.append(reward)
        found.flags.append((terminated, truncated))
        if terminated or truncated:
            player.reset()
    return found


def played(run: SerialRun) -> list[Rollout]:
    """The whole run: what its storages held, and what was learnt from them."""
    found, updates = [], iter(run)
    for rollout in range(run.experiment.updates):
        behaviour = run.versions[0]
        next(updates)
        storage = run.storages[rollout % 2]
        target = run.learner._learning(storage, behaviour.scale).target
        kept = [storage.arrays[name].copy() for name in ("action", "value", "bootstrap")]
        found.append(Rollout(behaviour.parameters, *kept, target.reshape(storage.value.shape)))
    return found


def compare(rollout: Rollout, replica: int, walked: Walked, run: SerialRun) -> None:
    """One row at a time and batches of rows differ in the last digits."""
    algo = run.experiment.algo
    expected = {
        "value": np.stack(walked.value),
        "bootstrap": np.stack(walked.behind),
        "target": walked.targets(algo.gamma, algo.gae_lambda),
    }
    for name, array in expected.items():
        mine = getattr(rollout, name)[replica]
        np.testing.assert_allclose(mine, array, rtol=2e-4, atol=2e-5, err_msg=name)
    needed = expected["bootstrap"] != 0
    np.testing.assert_array_equal(rollout.bootstrap[replica] != 0, needed)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_learnt_is_what_a_walk_through_every_episode_says(kind: str) -> None:
    """Rules 1, 2, 3, 8, 9, 14 and 27: values, values behind truncations and rollouts, and targets
    of every step of four rollouts; with the rollout's own parameters and statistics, stacks that
    end at a reset, and a memory that begins there."""
    options, changes = KINDS[kind]
    env = "python:tests.fakes.small_worlds:Ending?" + "&".join(
        f"{name}={value}" for name, value in options.items()
    )
    algo = PPO(epochs=2, minibatches=2, learning_rate=0.01)
    run = serial(experiment(env.rstrip("?"), replicas=8, updates=4, algo=algo, **changes))
    rollouts = played(run)
    run.close()
    players = [Player(run, replica, Ending(**options)) for replica in range(8)]
    for player in players:
        player.reset()
    seen: list[Observation] = []
    published: list[list[Observation]] = [[], []]  # what versions 0 and 1 have seen: nothing
    ends: Counter[tuple[bool, bool]] = Counter()
    for number, rollout in enumerate(rollouts):
        run.learner.policy.load(rollout.theta)
        past = published[number] if run.experiment.normalise_observations else []
        for player in players:
            walked = walk(player, rollout.action[player.replica], past)
            compare(rollout, player.replica, walked, run)
            seen += walked.seen
            ends.update(walked.flags)
        published.append(list(seen))
    assert len(ends) == 4, "goes on, terminated, truncated, both"
    assert min(ends.values()) > 8
