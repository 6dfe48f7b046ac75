"""Keys: every random number of a run is a function of its name alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hts.determinism.keys import Purpose, episode_seed, episode_seeds, key, keys, stems
from hts_envs.contract import SEED_LIMIT
from hts_envs.randomness import extend


def test_keys_are_these_literal_numbers() -> None:
    """A change of the mixing, or of a purpose's number, changes every digest and is seen here."""
    assert key(0, Purpose.RESET) == 0xC8153F500DECD95A
    assert key(1, Purpose.ACTION, 2, 3, 4) == 0xA14702D644EED3E8
    assert key(2**64 - 1, Purpose.CHECK, 7, 10**6, 10**9) == 0x9FE24F16D49A2BD5
    assert episode_seed(0, 0, 0) == 1164882679755813556
    assert episode_seed(0, 0, 0, Purpose.EVALUATION) == 5799339155337748943
    assert episode_seed(12345, 6, 7) == 7745866467457018950


def test_purposes_keep_their_numbers() -> None:
    """The number of a purpose is part of every digest."""
    assert [(purpose.name, purpose.value) for purpose in Purpose] == [
        ("RESET", 1),
        ("ACTION", 2),
        ("MINIBATCH", 3),
        ("INITIALISATION", 4),
        ("EVALUATION", 5),
        ("REPLAY", 6),
        ("EXPLORATION", 7),
        ("CHECK", 8),
        ("EVALUATION_ACTION", 9),
        ("BUILD", 10),
    ]


def test_no_two_names_share_a_key() -> None:
    """Over a grid of every coordinate, 115,200 names give as many keys."""
    grid = itertools.product(range(8), Purpose, range(12), range(10), range(12))
    found = [key(*name) for name in grid]
    assert len(found) == 115_200
    assert len(set(found)) == len(found)


def test_seeds_are_never_added_to_replicas() -> None:
    """Seed 0 of replica 1 is not seed 1 of replica 0, for keys and for seeds of episodes."""
    assert key(0, Purpose.ACTION, 1) != key(1, Purpose.ACTION, 0)
    assert key(0, Purpose.ACTION, 0, 1) != key(0, Purpose.ACTION, 1, 0)
    assert key(0, Purpose.ACTION, 0, 0, 1) != key(0, Purpose.ACTION, 0, 1, 0)
    assert episode_seed(0, 1, 0) != episode_seed(1, 0, 0)
    assert episode_seed(0, 0, 1) != episode_seed(0, 1, 0)


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_rows_are_the_single_keys(seed: int) -> None:
    """What a batch is given is what each row would be given alone."""
    replicas, episodes, steps = np.arange(5), np.array([0, 3, 9, 2**40, 1]), np.arange(5) * 7
    rows = keys(seed, Purpose.ACTION, replicas, episodes, steps)
    assert rows.dtype == np.uint64
    assert rows.tolist() == [
        key(seed, Purpose.ACTION, r, int(e), int(s))
        for r, e, s in zip(range(5), episodes, steps, strict=True)
    ]
    seeds = episode_seeds(seed, replicas, episodes, Purpose.EVALUATION)
    assert seeds.dtype == np.uint64
    assert seeds.tolist() == [
        episode_seed(seed, r, int(e), Purpose.EVALUATION)
        for r, e in zip(range(5), episodes, strict=True)
    ]


def test_what_a_key_does_not_name_is_0() -> None:
    """Replica, episode and step, of a single key and of rows; and rows may have seeds of their own,
    or go on from what all steps of an episode begin with."""
    purpose, numbers = Purpose.ACTION, np.arange(5)
    assert keys(3, purpose).tolist() == [key(3, purpose)] == [key(3, purpose, 0, 0, 0)]
    assert keys(3, purpose, numbers).tolist() == [key(3, purpose, n, 0, 0) for n in range(5)]
    seeds = np.array([0, 7, 2**64 - 1], np.uint64)
    assert keys(seeds, purpose).tolist() == [key(int(seed), purpose) for seed in seeds]
    begun = stems(3, purpose, numbers, numbers + 1)
    expected = [key(3, purpose, n, n + 1, n * 7) for n in range(5)]
    assert extend(begun, numbers * 7).tolist() == expected
    for seed in (-1, 2**64):
        with pytest.raises(AssertionError, match="whole number"):
            keys(seed, purpose)


def test_training_and_evaluation_never_share_an_episode() -> None:
    """Their seeds are disjoint and within the contract, also when a simulator takes 31 bits."""
    names = list(itertools.product(range(4), range(20), range(100)))
    training = {episode_seed(*name) for name in names}
    evaluation = {episode_seed(*name, Purpose.EVALUATION) for name in names}
    assert len(training) == len(evaluation) == len(names)
    assert all(0 <= seed < SEED_LIMIT for seed in training | evaluation)
    assert not {seed % 2**31 for seed in training} & {seed % 2**31 for seed in evaluation}


def test_one_bit_of_a_name_changes_half_of_its_key() -> None:
    """Flipping any low bit of any coordinate flips 32 of the 64 bits on average."""
    base = (5, int(Purpose.ACTION), 3, 17, 400)
    flips = []
    for place, bit in itertools.product((0, 2, 3, 4), range(16)):
        changed = list(base)
        changed[place] ^= 1 << bit
        other = key(changed[0], Purpose.ACTION, *changed[2:])
        flips.append((key(5, Purpose.ACTION, 3, 17, 400) ^ other).bit_count())
    assert 30 < sum(flips) / len(flips) < 34
    assert min(flips) > 12


def test_each_bit_of_a_key_is_set_half_of_the_time() -> None:
    """Over 20,000 neighbouring steps no bit leans to one side by more than 5 deviations."""
    rows = keys(0, Purpose.ACTION, steps=np.arange(20_000))
    bits = (rows[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.all(np.abs(bits.mean(axis=0) - 0.5) < 5 * 0.5 / np.sqrt(20_000))


@pytest.mark.parametrize(
    "name", [(-1, 0, 0, 0), (2**64, 0, 0, 0), (0, -1, 0, 0), (0, 0, -1, 0), (0, 0, 0, -1)]
)
def test_names_outside_the_range_are_refused(name: tuple[int, int, int, int]) -> None:
    """A negative coordinate or too large a seed is a mistake of the caller."""
    seed, *rest = name
    with pytest.raises(AssertionError, match=r"counted from 0|whole number"):
        key(seed, Purpose.ACTION, *rest)


def test_only_resets_and_evaluation_have_episodes() -> None:
    """A seed of an episode cannot be asked for under the name of something else."""
    with pytest.raises(AssertionError, match="has no episodes"):
        episode_seed(0, 0, 0, Purpose.ACTION)
