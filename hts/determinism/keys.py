"""Every random number of a run has a name, and its name is all that it depends on.

    key = f(run seed, purpose, replica, episode, step)

The integers are mixed one after the other (`hts_envs.randomness.fold`), so nothing depends on
which process asks, in what order, or how many rows are asked for at once, and neighbouring names
are no nearer to each other than distant ones: seed 0 of replica 1 is not seed 1 of replica 0.

The numbers of the purposes are part of every digest: a purpose may be added, never renumbered.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from hts_envs.contract import SEED_LIMIT, Array
from hts_envs.randomness import fold, fold_rows

_WORD = 2**64


class Purpose(IntEnum):
    """What a random number is for."""

    RESET = 1  # the seeds of the episodes that are trained on
    ACTION = 2
    MINIBATCH = 3
    INITIALISATION = 4
    EVALUATION = 5  # the seeds of the episodes that are evaluated on
    REPLAY = 6
    EXPLORATION = 7
    CHECK = 8  # the actions that an examined simulator is given
    EVALUATION_ACTION = 9
    BUILD = 10  # what a simulator may draw while it is built


def key(seed: int, purpose: Purpose, replica: int = 0, episode: int = 0, step: int = 0) -> int:
    """The 64-bit key of one random decision."""
    assert 0 <= seed < _WORD, f"a seed is a whole number in [0, 2**64), got {seed}"
    assert replica >= 0, f"replicas are counted from 0, got {replica}"
    assert episode >= 0, f"episodes are counted from 0, got {episode}"
    assert step >= 0, f"steps are counted from 0, got {step}"
    return fold(seed, purpose, replica, episode, step)


def keys(
    seed: Array | int,
    purpose: Purpose,
    replicas: Array | int = 0,
    episodes: Array | int = 0,
    steps: Array | int = 0,
) -> Array:
    """The same for rows of replicas: uint64, one key for each; a plain integer is every row's."""
    if isinstance(seed, int):
        assert 0 <= seed < _WORD, f"a seed is a whole number in [0, 2**64), got {seed}"
    return fold_rows(seed, int(purpose), replicas, episodes, steps)


def stems(seed: int, purpose: Purpose, replicas: Array, episodes: Array) -> Array:
    """What the keys of all steps of these episodes begin with: `extend` adds the step."""
    return fold_rows(seed, int(purpose), replicas, episodes)


def episode_seed(
    run_seed: int, replica: int, episode: int, purpose: Purpose = Purpose.RESET
) -> int:
    """What `World.reset` is given, in [0, SEED_LIMIT): even in training, odd in evaluation.

    The lowest bit keeps the two disjoint for certain, also in a simulator that takes only the
    lowest 31 bits of a seed.
    """
    assert purpose in _PARITY, f"{purpose!r} has no episodes"
    mixed = key(run_seed, purpose, replica, episode)
    return (mixed % (SEED_LIMIT // 2)) * 2 + _PARITY[purpose]


def episode_seeds(
    run_seed: int,
    replicas: Array | int,
    episodes: Array | int,
    purpose: Purpose = Purpose.RESET,
) -> Array:
    """The same for rows of replicas: uint64, as `BatchedWorld.reset` takes them."""
    assert purpose in _PARITY, f"{purpose!r} has no episodes"
    mixed = keys(run_seed, purpose, replicas, episodes)
    half = mixed % np.uint64(SEED_LIMIT // 2)
    return np.asarray(half * np.uint64(2) + np.uint64(_PARITY[purpose]))


_PARITY = {Purpose.RESET: 0, Purpose.EVALUATION: 1}
