"""No place in a storage is read before it is written: garbage in every place changes no digest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hts.config import A2C, Conv
from hts.memory.storage import Storage
from tests.fakes.runs import experiment, serial

ENDING = "python:tests.fakes.small_worlds:Ending"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "vectors": (ENDING, {}),
    "clipped and scaled": (ENDING, {"clip_rewards": 1.0, "normalise_rewards": True}),
    "stacked, normalised, two agents": (
        f"{ENDING}?agents=2&action=vector",
        {"frame_stack": 3, "normalise_observations": True, "normalise_rewards": True},
    ),
    "five replicas in batches of eight": (ENDING, {"replicas": 5}),
    "recurrent": (ENDING, {"recurrent": "lstm", "recurrent_units": 16, "sequence": 8}),
    "a2c with weights": (ENDING, {"algo": A2C(), "correction": "truncated_is"}),
    "images, a batched world": (
        "sleeper:?mean=0&observation=36x36x1&dtype=uint8&length=5&batch=true",
        {"model": Conv(hidden=32), "frame_stack": 4},
    ),
}


def spoil(storage: Storage, seed: int) -> None:
    """What no reader could take for a number, an action, an age or an answer."""
    random = np.random.default_rng(seed)
    for array in storage.arrays.values():
        if array.dtype.kind == "f":
            array[:] = np.nan
        elif array.dtype.kind == "b":
            array[:] = random.random(array.shape) < 0.5
        else:
            array[:] = random.integers(100, 120, array.shape).astype(array.dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_in_a_released_storage_changes_nothing(kind: str) -> None:
    """Rule 10: both storages before the first step, and each again as soon as it was learnt from
    and its end was carried over; every link of four updates is the same."""
    env, changes = KINDS[kind]
    asked = experiment(env, updates=4, **{"replicas": 8, **changes})
    clean, spoilt = serial(asked), serial(asked)
    for seed, storage in enumerate(spoilt.storages):
        spoil(storage, seed)
    for update, (one, other) in enumerate(zip(clean, spoilt, strict=True)):
        assert one.link == other.link
        assert one.episodes == other.episodes
        # Rollout `update` was learnt from; the other storage was, one update before.
        spoil(spoilt.storages[(update + 1) % 2], update)
    clean.close()
    spoilt.close()


def test_garbage_in_what_is_read_is_noticed() -> None:
    """The same garbage in the storage that the next rollout begins from makes another run."""
    asked = experiment(ENDING, updates=2)
    clean, spoilt = serial(asked), serial(asked)
    runs = iter(clean), iter(spoilt)
    assert next(runs[0]).link == next(runs[1]).link
    spoilt.storages[0].age[:, -1] += 1
    assert next(runs[0]).link != next(runs[1]).link
    clean.close()
    spoilt.close()
