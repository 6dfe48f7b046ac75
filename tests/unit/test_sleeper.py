"""The sleeper: how long its steps take, what it shows, and that both forms agree."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
import torch

from hts_envs.contract import Array, BatchedWorld, Place, World
from hts_envs.errors import BadName, BadOption
from hts_envs.randomness import fold, fold_rows
from hts_envs.registry import make, parse
from hts_envs.sleeper import SleeperOptions, durations, episode_lengths, gamma, pattern

DRAWS = 40_000
OBSERVATIONS = ("4", "1", "84x84x4", "84x84x4&dtype=uint8", "7&dtype=uint8")


def build(options: str) -> World:
    world = make(f"sleeper:?{options}")
    assert isinstance(world, World)
    return world


def build_batch(options: str, replicas: int) -> BatchedWorld:
    world = make(f"sleeper:?batch=true&{options}", Place(replicas=replicas))
    assert isinstance(world, BatchedWorld)
    return world


def act(*parts: int, actions: int = 2) -> Array:
    return np.array([fold(*parts) % actions])


def episode(world: World, seed: int, actions: int = 2) -> list[bytes]:
    """Everything that one episode returns, with actions from its seed."""
    told = [world.reset(seed)["observation"].tobytes()]
    for step in range(10_000):
        result = world.step(act(seed, step, actions=actions))
        told += [result.observation["observation"].tobytes(), result.reward.tobytes()]
        assert not result.truncated
        if result.terminated:
            return told
    raise AssertionError("the episode does not end")


class TestGamma:
    @pytest.mark.parametrize("shape", [0.3, 1.0, 2.5, 16.0, 400.0])
    def test_mean_and_variance(self, shape: float) -> None:
        """Mean and variance of 40,000 draws are the shape, within five standard errors."""
        drawn = gamma(fold_rows(np.arange(DRAWS), 5), shape)
        spread = math.sqrt(shape / DRAWS)
        assert abs(drawn.mean() - shape) < 5 * spread
        fourth = 3 * shape**2 + 6 * shape  # central moment
        assert abs(drawn.var() - shape) < 5 * math.sqrt((fourth - shape**2) / DRAWS)
        assert (drawn >= 0).all()

    @pytest.mark.parametrize("shape", [0.3, 1.0, 2.5, 16.0])
    def test_distribution(self, shape: float) -> None:
        """The largest distance from the gamma distribution function is that of a true sample."""
        drawn = np.sort(gamma(fold_rows(np.arange(DRAWS), 6), shape))
        wanted = torch.special.gammainc(torch.tensor(shape).double(), torch.tensor(drawn)).numpy()
        steps = np.arange(DRAWS + 1) / DRAWS
        distance = max(np.abs(steps[1:] - wanted).max(), np.abs(steps[:-1] - wanted).max())
        assert distance < 1.63 / math.sqrt(DRAWS)  # the Kolmogorov-Smirnov bound at 1 %

    @pytest.mark.parametrize("shape", [0.3, 2.5])
    def test_a_draw_is_a_function_of_its_key(self, shape: float) -> None:
        """A key's draw has the same bits alone, among others, and in another order."""
        keys = fold_rows(np.arange(1000), 7)
        together = gamma(keys, shape)
        assert (gamma(keys[::-1].copy(), shape)[::-1] == together).all()
        assert [gamma(keys[i : i + 1], shape)[0] for i in range(200)] == together[:200].tolist()
        assert len(np.unique(together)) == 1000

    def test_durations_have_the_mean_and_follow_seed_and_step(self) -> None:
        """Durations are seconds of the asked mean, differ by step and by seed, and repeat."""
        options = SleeperOptions(mean=3.0, shape=4.0)
        first = durations(options, 1, np.arange(20_000))
        assert first.mean() == pytest.approx(0.003, rel=0.02)
        assert first.std() == pytest.approx(0.0015, rel=0.03)
        assert (durations(options, 1, np.arange(5, 9)) == first[5:9]).all()
        assert (durations(options, 2, np.arange(20_000)) != first).all()


class TestTime:
    @pytest.mark.parametrize(
        ("work", "clock"), [("sleep", "perf_counter"), ("burn", "thread_time")]
    )
    def test_steps_take_their_durations(self, work: str, clock: str) -> None:
        """Asleep by the wall clock, burning by the thread's own: no less than what was drawn."""
        world = build(f"mean=0.5&shape=4&work={work}&length=90&lengths=fixed")
        world.reset(8)
        read = getattr(time, clock)
        options = SleeperOptions(mean=0.5, shape=4.0)
        for step, asked in enumerate(durations(options, 8, np.arange(90))):
            begun = read()
            world.step(act(step))
            assert read() - begun >= asked

    def test_sleeping_uses_no_processor(self) -> None:
        """Forty steps of 5 ms asleep use less than half of the processor time of burning them."""
        spent = {}
        for work in ("sleep", "burn"):
            world = build(f"mean=5&shape=100&length=50&lengths=fixed&work={work}")
            world.reset(1)
            begun = time.thread_time()
            for step in range(40):
                world.step(act(step))
            spent[work] = time.thread_time() - begun
        assert spent["sleep"] < 0.5 * spent["burn"]

    @pytest.mark.parametrize(
        ("work", "clock"), [("sleep", "perf_counter"), ("burn", "thread_time")]
    )
    def test_a_batch_takes_the_longest_or_the_sum(self, work: str, clock: str) -> None:
        """A batch sleeps until its slowest row is ready, and burns for all of its rows."""
        world = build_batch(f"mean=0.5&work={work}&length=50&lengths=fixed", 4)
        seeds = np.arange(4, dtype=np.uint64)
        world.reset(np.arange(4), seeds)
        options = SleeperOptions(mean=0.5)
        read = getattr(time, clock)
        for step in range(20):
            each = durations(options, seeds, np.full(4, step))
            begun = read()
            world.step(np.zeros((4, 1), np.int64))
            assert read() - begun >= (each.max() if work == "sleep" else each.sum())

    def test_the_kind_of_work_changes_nothing_else(self) -> None:
        """Instant, sleeping and burning worlds return the same bytes for the same seed."""
        told = [
            episode(build(f"{how}&length=5"), 21)
            for how in ("mean=0", "mean=0.1", "mean=0.1&work=burn&shape=0.5")
        ]
        assert told[0] == told[1] == told[2]


class TestEpisodes:
    @pytest.mark.parametrize("observation", OBSERVATIONS)
    def test_equal_seeds_and_other_seeds(self, observation: str) -> None:
        """One seed gives the same bytes in two worlds; another seed gives others."""
        name = f"mean=0&observation={observation}&actions=5"
        one, two = build(name), build(name)
        assert episode(one, 3, 5) == episode(two, 3, 5)
        episode(two, 8, 5)
        assert episode(one, 3, 5) == episode(two, 3, 5)
        assert episode(one, 3, 5)[0] != episode(two, 4, 5)[0]

    def test_an_observation_depends_on_the_last_action(self) -> None:
        """After the same step, another action shows another observation."""
        world = build("mean=0&observation=8")
        seen = []
        for action in (0, 1):
            world.reset(5)
            seen.append(world.step(np.array([action])).observation["observation"])
        assert (seen[0] != seen[1]).any()

    @pytest.mark.parametrize("actions", [2, 3, 18])
    @pytest.mark.parametrize("dtype", ["float32", "uint8"])
    def test_the_clue_tells_the_rewarded_action(self, actions: int, dtype: str) -> None:
        """The first element alone tells which action earns 1; any other earns 0; all occur."""
        world = build(f"mean=0&length=300&lengths=fixed&actions={actions}&dtype={dtype}")
        seen = world.reset(2)["observation"]
        asked = set()
        top = 255.0 if dtype == "uint8" else 1.0
        for step in range(300):
            right = math.ceil(float(seen[0, 0]) / top * (actions - 1) - 1e-6)
            asked.add(right)
            played = right if step % 2 else (right + 1) % actions
            result = world.step(np.array([played]))
            assert result.reward.tolist() == [float(step % 2)]
            seen = result.observation["observation"]
        assert asked == set(range(actions))
        assert result.terminated
        assert result.facts == {"return": 150.0, "length": 300.0}

    @pytest.mark.parametrize(
        ("number", "choice"), [(-1.0, 0), (-0.35, 0), (-0.33, 1), (0.33, 1), (0.34, 2), (1.0, 2)]
    )
    def test_a_number_is_the_part_that_it_lies_in(self, number: float, choice: int) -> None:
        """Of three: the same bytes and rewards as the choice, alone and behind one call."""
        name = "mean=0&length=90&lengths=fixed&actions=3"
        chosen, drawn = build(name), build(f"{name}&control=number")
        batch = build_batch(f"{name}&control=number", 2)
        seeds = np.full(2, 4, np.uint64)
        first = [chosen.reset(4), drawn.reset(4), batch.reset(np.arange(2), seeds)]
        assert len({seen["observation"][:1].tobytes() for seen in first}) == 1
        number_of_two = np.full((2, 1, 1), number, np.float32)
        for _ in range(80):
            by_choice = chosen.step(np.array([choice]))
            by_number = drawn.step(np.array([[number]], np.float32))
            by_row = batch.step(number_of_two)
            assert by_choice.reward == by_number.reward == by_row.reward[0]
            seen = [each.observation["observation"] for each in (by_choice, by_number, by_row)]
            assert len({each[:1].tobytes() for each in seen}) == 1

    @pytest.mark.parametrize("lengths", ["geometric", "uniform", "fixed"])
    def test_lengths_have_the_asked_mean_and_spread(self, lengths: Any) -> None:
        """Lengths are at least 1, with the mean and the variance of their distribution."""
        options = SleeperOptions(length=20, lengths=lengths)
        drawn = episode_lengths(options, np.arange(DRAWS, dtype=np.uint64))
        variance = {"geometric": 20.0 * 19.0, "uniform": (39.0**2 - 1) / 12, "fixed": 0.0}[lengths]
        assert drawn.min() == (20 if lengths == "fixed" else 1)
        assert abs(drawn.mean() - 20) <= 5 * math.sqrt(variance / DRAWS)
        assert drawn.var() == pytest.approx(variance, rel=0.05)

    @pytest.mark.parametrize("lengths", ["geometric", "uniform", "fixed"])
    def test_a_mean_of_one_is_one_step(self, lengths: Any) -> None:
        """With a mean length of 1, every episode ends at its first step."""
        options = SleeperOptions(length=1, lengths=lengths)
        assert (episode_lengths(options, np.arange(100, dtype=np.uint64)) == 1).all()

    def test_episodes_end_at_their_length(self) -> None:
        """An episode's length is the one drawn from its seed."""
        world = build("mean=0&length=7")
        seeds = np.arange(50, dtype=np.uint64)
        drawn = episode_lengths(SleeperOptions(length=7), seeds)
        for seed, length in zip(seeds, drawn, strict=True):
            assert (len(episode(world, int(seed))) - 1) // 2 == length

    @pytest.mark.parametrize("observation", OBSERVATIONS)
    def test_spaces_are_honoured_and_nothing_aliases(self, observation: str) -> None:
        """Arrays have the declared shape, dtype and bounds, and outlive the next steps."""
        world = build(f"mean=0&observation={observation}")
        space: Any = world.spaces.observation["observation"]
        kept = []
        seen = world.reset(1)["observation"]
        rewards = []
        for step in range(30):
            assert (seen.shape, seen.dtype) == ((1, *space.shape), np.dtype(space.dtype))
            assert seen.min() >= space.low
            assert seen.max() <= space.high
            kept.append((seen, seen.copy()))
            result = world.step(act(step))
            rewards.append((result.reward, result.reward.copy()))
            assert (result.reward.shape, result.reward.dtype) == ((1,), np.dtype("float32"))
            seen = (
                world.reset(step)["observation"]
                if result.terminated
                else (result.observation["observation"])
            )
        assert all((array == copy).all() for array, copy in kept + rewards)

    def test_an_impossible_action_is_refused(self) -> None:
        """Actions outside the space are the caller's mistake, in both forms."""
        world, batch = build("mean=0"), build_batch("mean=0", 2)
        world.reset(0)
        with pytest.raises(AssertionError, match="action 2 is not in the action space"):
            world.step(np.array([2]))
        batch.reset(np.arange(2), np.arange(2, dtype=np.uint64))
        with pytest.raises(AssertionError, match="impossible action"):
            batch.step(np.array([[0], [-1]]))


class TestSnapshots:
    @pytest.mark.parametrize("mean", [0, 0.05])
    def test_what_follows_a_restore_is_the_same(self, mean: float) -> None:
        """From a snapshot, another world goes on bit-equal to the end, return included."""
        name = f"mean={mean}&length=150&lengths=fixed&observation=6"
        one, two = build(name), build(name)
        one.reset(77)
        for step in range(70):
            seen = one.step(act(step)).observation
        state = one.snapshot()
        assert len(state) < 64
        two.reset(5)
        assert (two.restore(state)["observation"] == seen["observation"]).all()
        for step in range(70, 150):
            a, b = one.step(act(step)), two.step(act(step))
            assert (a.observation["observation"] == b.observation["observation"]).all()
            assert (a.reward, a.terminated, a.facts) == (b.reward, b.terminated, b.facts)
        assert a.facts["length"] == 150.0


class TestBatch:
    @pytest.mark.parametrize("observation", OBSERVATIONS)
    def test_rows_equal_worlds_of_their_own(self, observation: str) -> None:
        """Each row returns the bytes, flags and facts of a single world with its seed."""
        name = f"mean=0&length=6&observation={observation}&actions=3"
        batch, rows = build_batch(name, 5), np.arange(5)
        worlds = [build(name) for _ in rows]
        seen = batch.reset(rows, fold_rows(rows, 0) >> np.uint64(1))["observation"]
        for row, world in enumerate(worlds):
            assert (world.reset(fold(row, 0) >> 1)["observation"] == seen[row]).all()
        for step in range(1, 40):
            actions = np.array([act(row, step, actions=3) for row in range(5)])
            result = batch.step(actions)
            assert result.observation["observation"].dtype == seen.dtype
            for row, world in enumerate(worlds):
                alone = world.step(actions[row])
                assert (
                    alone.observation["observation"] == result.observation["observation"][row]
                ).all()
                assert alone.reward == result.reward[row]
                assert (alone.terminated, False) == (result.terminated[row], result.truncated[row])
                if alone.terminated:
                    facts = {fact: float(values[row]) for fact, values in result.facts.items()}
                    assert alone.facts == facts
                    fresh = batch.reset(np.array([row]), np.array([step], np.uint64))
                    assert (world.reset(step)["observation"] == fresh["observation"][0]).all()


class TestNames:
    def test_options_are_read_and_batches_declared(self) -> None:
        """A shape is written with x, the canonical name can be typed again, batch is declared."""
        spec = parse("sleeper:?observation=84x84x4&dtype=uint8&mean=0.5")
        assert spec.options.observation == (84, 84, 4)
        assert parse(spec.canonical()) == spec
        assert not spec.batched
        assert parse("sleeper:?batch=true").batched

    @pytest.mark.parametrize(
        "options",
        ["mean=-1", "shape=0", "work=nap", "observation=0", "length=0", "actions=1", "dtype=int8"],
    )
    def test_wrong_options_are_refused(self, options: str) -> None:
        """Values out of range or of no known kind name their option."""
        with pytest.raises(BadOption, match=f"option {options.split('=')[0]}"):
            parse(f"sleeper:?{options}")

    def test_it_has_no_names(self) -> None:
        """Anything behind the colon is refused, with how to write it."""
        assert list(parse("sleeper:").family.names()) == [""]
        with pytest.raises(BadName, match=r"write sleeper: or sleeper:\?option=value"):
            parse("sleeper:fast")

    def test_patterns_of_other_shapes_are_no_constant(self) -> None:
        """The pattern behind the observations varies over its elements."""
        assert len(np.unique(pattern(SleeperOptions(observation=(84, 84))))) > 200
