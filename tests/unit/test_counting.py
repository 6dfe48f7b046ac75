"""The counting world: every loss, tear and swap of an observation or action is caught by name."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hts_envs.contract import Array, BatchedWorld, Place, World
from hts_envs.counting import (
    FIELDS,
    HEAD,
    expected_action,
    expected_end,
    expected_reward,
    follows,
    verify,
)
from hts_envs.errors import BadName, BadOption, BrokenSimulator
from hts_envs.registry import make, parse

SEED = 0x1234_5678_9ABC_DEF0


def build(options: str = "length=12") -> World:
    world = make(f"counting:?{options}")
    assert isinstance(world, World)
    return world


def walk(world: World, seed: int, steps: int) -> list[Array]:
    """The observations of the first steps of an episode, answered as they ask."""
    seen = [world.reset(seed)["observation"]]
    for _ in range(steps):
        seen.append(world.step(expected_action(seen[-1])).observation["observation"])
    return seen


class TestEpisodes:
    @pytest.mark.parametrize("options", ["", "agents=3&width=40", "width=17&actions=2", "length=1"])
    def test_whole_episodes_prove_themselves(self, options: str) -> None:
        """Through 30 episodes every observation verifies, follows, and foretells what comes."""
        world = build(options)
        ends = set()
        lengths = []
        for seed in range(30):
            before, total = world.reset(seed)["observation"], 0.0
            verify(before)
            while True:
                action, end = expected_action(before), expected_end(before)
                result = world.step(action)
                after = result.observation["observation"]
                verify(after)
                follows(before, action, after)
                assert (result.reward == expected_reward(before)).all()
                assert (end.terminated == result.terminated).all()
                assert (end.truncated == result.truncated).all()
                total += float(result.reward.mean())
                before = after
                if result.terminated or result.truncated:
                    break
                assert result.facts == {}
            assert result.facts["return"] == pytest.approx(total)
            lengths.append(result.facts["length"])
            ends.add((result.terminated, result.truncated))
        assert ends == {(True, False), (False, True)}
        assert len(set(lengths)) > 5 or options == "length=1"

    def test_seeds_and_heads(self) -> None:
        """The head holds the whole seed, the agent, the step and the action before."""
        seen = walk(build("agents=2&length=60"), SEED, 3)
        head = dict(zip(FIELDS, seen[3][1, :HEAD].tolist(), strict=True))
        assert head["seed_high"] << 32 | head["seed_low"] == SEED
        assert (head["agent"], head["step"], head["actions"]) == (1, 3, 19)
        assert head["previous"] == expected_action(seen[2])[1]
        assert (seen[0][:, FIELDS.index("previous")] == -1).all()

    def test_equal_seeds_and_other_seeds(self) -> None:
        """One seed gives the same numbers in two worlds, whatever ran before; another, others."""
        one, two = build(), build()
        walk(two, 9, 1)
        for a, b in zip(walk(one, 4, 1), walk(two, 4, 1), strict=True):
            assert (a == b).all()
        assert (walk(one, 4, 0)[0] != walk(one, 5, 0)[0]).any()

    def test_spaces_are_honoured_and_nothing_aliases(self) -> None:
        """int64 of the declared width and bounds, actions within the space, arrays that last."""
        world = build("agents=2&width=24&length=40&actions=5")
        seen = world.reset(1)["observation"]
        kept = [(seen, seen.copy())]
        asked = set()
        for _ in range(10):
            assert (seen.shape, seen.dtype) == ((2, 24), np.dtype(np.int64))
            assert seen.min() >= -1
            asked |= set(expected_action(seen).tolist())
            result = world.step(expected_action(seen))
            assert (result.reward.shape, result.reward.dtype) == ((2,), np.dtype(np.float32))
            seen = result.observation["observation"]
            kept.append((seen, seen.copy()))
        assert all((array == copy).all() for array, copy in kept)
        assert asked <= set(range(5))
        assert len(asked) > 2

    def test_batched_leading_axes(self) -> None:
        """The pure functions give for stacked observations what they give one by one."""
        seen = np.stack(walk(build("agents=2&length=40"), 2, 6))
        for function in (expected_action, expected_reward):
            stacked = function(seen)
            assert stacked.shape == (7, 2)
            assert stacked.tolist() == [[float(function(a)) for a in row] for row in seen]
        verify(seen)
        follows(seen[:-1], expected_action(seen[:-1]), seen[1:])


def _answer(world: World, observations: list[Array]) -> None:
    for seen in observations:
        world.step(expected_action(seen))


class TestRefusals:
    def test_a_wrong_action_names_step_agent_and_seed(self) -> None:
        """The world raises on any action but the right one, of any agent, saying where."""
        world = build("agents=2&length=60")
        action = expected_action(walk(world, SEED, 4)[-1])
        wrong = action.copy()
        wrong[1] = (wrong[1] + 1) % 19
        sentence = (
            f"counting: step 4 of the episode with seed {SEED}, agent 1: "
            f"received action {wrong[1]}, but its observation asks for {action[1]}"
        )
        with pytest.raises(BrokenSimulator, match=f"^{re.escape(sentence)}$"):
            world.step(wrong)

    def test_answers_of_another_step_or_replica_are_refused(self) -> None:
        """Stale and swapped answers are caught within a few steps at the latest."""
        for swap in (walk(build("length=60"), 1, 20), walk(build("length=60"), 2, 20)):
            world = build("length=60")
            world.reset(1)
            with pytest.raises(BrokenSimulator, match="received action"):
                _answer(world, swap[1:])

    def test_a_world_is_not_stepped_beyond_its_end(self) -> None:
        """Neither after the last step nor before the first reset."""
        world = build("length=1")
        with pytest.raises(BrokenSimulator, match="row 0 is stepped after its end"):
            world.step(np.array([0]))
        last = walk(world, 3, 1)[-1]
        with pytest.raises(BrokenSimulator, match="row 0 is stepped after its end"):
            world.step(expected_action(last))

    @pytest.mark.parametrize("width", [16, 31])
    def test_every_single_element_that_tears_is_caught(self, width: int) -> None:
        """Changing any one element makes verify raise, and name it or the head that it mirrors."""
        seen = walk(build(f"width={width}&length=60"), 3, 5)[-1]
        for element in range(width):
            torn = seen.copy()
            torn[0, element] ^= 1
            with pytest.raises(BrokenSimulator, match="is torn: element") as caught:
                verify(torn)
            named = int(str(caught.value).split("element ")[1].split()[0])
            if element >= HEAD:
                assert named == element
            elif element != FIELDS.index("checksum"):
                assert named == HEAD + element
                assert FIELDS[element] in str(caught.value)

    def test_every_half_written_observation_is_caught(self) -> None:
        """The beginning of one step with the rest of the step before is torn, wherever it is."""
        old, new = walk(build("width=40&length=60"), 3, 6)[-2:]
        same = (old == new)[0]
        for cut in range(1, 40):
            torn = np.concatenate((new[:, :cut], old[:, cut:]), axis=1)
            if same[:cut].all():
                verify(torn)
                continue
            with pytest.raises(BrokenSimulator, match="observation 0 is torn"):
                verify(torn)
        stack = np.stack((old, torn))
        with pytest.raises(BrokenSimulator, match="observation 1 is torn"):
            verify(stack)

    def test_an_end_of_another_episode_is_caught(self) -> None:
        """An untorn observation that starts with old counters, or stands past its end, is not."""
        seen = walk(build("length=60"), 3, 4)[-1]
        with pytest.raises(BrokenSimulator, match="another one's counters"):
            verify(forged(seen, step=0))
        with pytest.raises(BrokenSimulator, match="stands outside its episode"):
            verify(forged(seen, step=int(seen[0, FIELDS.index("length")]) + 1))

    def test_gaps_swaps_and_wrong_actions_do_not_follow(self) -> None:
        """A lost step, a repeated one, another episode, agent or action is told apart by name."""
        seen = walk(build("agents=2&length=60"), 3, 5)
        action = expected_action(seen[2])
        follows(seen[2], action, seen[3])
        with pytest.raises(BrokenSimulator, match="steps are missing"):
            follows(seen[2], action, seen[4])
        with pytest.raises(BrokenSimulator, match="steps are missing"):
            follows(seen[2], action, seen[2])
        with pytest.raises(BrokenSimulator, match="it answers another action"):
            follows(seen[2], (action + 1) % 19, seen[3])
        with pytest.raises(BrokenSimulator, match="its seed_low is another"):
            follows(seen[2], action, walk(build("agents=2&length=60"), 8, 3)[3])
        with pytest.raises(BrokenSimulator, match="its agent is another"):
            follows(seen[2], action, seen[3][::-1])
        with pytest.raises(BrokenSimulator, match="its checksum is another"):
            follows(seen[2], action, forged(seen[3], checksum=5))


def forged(seen: Array, **changes: int) -> Array:
    """The observation with another head, and the payload that belongs to it."""
    from hts_envs.counting import _payload

    head = seen[:, :HEAD].copy()
    for field, value in changes.items():
        head[:, FIELDS.index(field)] = value
    return np.concatenate((head, _payload(head, seen.shape[1])), axis=1)


class TestSnapshots:
    def test_what_follows_a_restore_is_the_same(self) -> None:
        """From a snapshot, another world goes on bit-equal to the end, return included."""
        one, two = build("agents=2&length=90"), build("agents=2&length=90")
        seen = walk(one, 6, 5)[-1]
        state = one.snapshot()
        two.reset(1)
        assert (two.restore(state)["observation"] == seen).all()
        ended = False
        while not ended:
            a, b = one.step(expected_action(seen)), two.step(expected_action(seen))
            seen = a.observation["observation"]
            assert (seen == b.observation["observation"]).all()
            assert (a.reward == b.reward).all()
            assert a[2:] == b[2:]
            ended = a.terminated or a.truncated


class TestBatch:
    def test_rows_equal_worlds_of_their_own(self) -> None:
        """Each row returns the numbers, flags and facts of a single world with its seed."""
        batch = make("counting:?batch=true&agents=2&length=5", Place(replicas=4))
        assert isinstance(batch, BatchedWorld)
        worlds = [build("agents=2&length=5") for _ in range(4)]
        seen = batch.reset(np.arange(4), np.arange(4, dtype=np.uint64))["observation"]
        for row, world in enumerate(worlds):
            assert (world.reset(row)["observation"] == seen[row]).all()
        for step in range(30):
            action = expected_action(seen)
            result = batch.step(action)
            seen = result.observation["observation"].copy()
            for row, world in enumerate(worlds):
                alone = world.step(action[row])
                assert (alone.observation["observation"] == seen[row]).all()
                assert (alone.reward == result.reward[row]).all()
                flags = (bool(result.terminated[row]), bool(result.truncated[row]))
                assert (alone.terminated, alone.truncated) == flags
                if any(flags):
                    assert alone.facts == {name: of[row] for name, of in result.facts.items()}
                    fresh = batch.reset(np.array([row]), np.array([step], np.uint64))
                    seen[row] = fresh["observation"][0]
                    assert (world.reset(step)["observation"] == seen[row]).all()


class TestNames:
    def test_it_has_no_names(self) -> None:
        """Anything behind the colon is refused, with how to write it."""
        assert list(parse("counting:").family.names()) == [""]
        assert parse("counting:?batch=true").batched
        with pytest.raises(BadName, match=r"write counting: or counting:\?option=value"):
            parse("counting:up")

    @pytest.mark.parametrize("options", ["width=15", "agents=0", "actions=1", "length=0"])
    def test_wrong_options_are_refused(self, options: str) -> None:
        """Values out of range name their option."""
        with pytest.raises(BadOption, match=f"option {options.split('=')[0]}"):
            parse(f"counting:?{options}")
