"""The batched worlds on torch: names, devices, the shell, and row invariance."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hts_envs.batched.ball_balance import BallBalance
from hts_envs.batched.cartpole import CartPole
from hts_envs.batched.pendulum import Pendulum
from hts_envs.batched.shell import TorchWorld, device_trouble, pack, to_host, unpack
from hts_envs.contract import Array, BatchedWorld, Discrete, Observation, Place
from hts_envs.errors import BadName, BadOption, MissingPackages
from hts_envs.randomness import fold, fold_rows, uniform
from hts_envs.registry import make, parse
from tests.limits import HANG

TORCH_NAMES = ("cartpole", "pendulum", "ball_balance")
ALL = (*TORCH_NAMES, "ball_balance?observation=both")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One thread, as in every process of the machine; several wait for busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def build(name: str, replicas: int) -> BatchedWorld:
    world = make(f"batched:{name}", Place(replicas=replicas))
    assert isinstance(world, BatchedWorld)
    return world


def play(world: BatchedWorld, keys: Array, step: int) -> Array:
    """Actions that depend on a row's key and the step alone."""
    space = world.spaces.action
    numbers = uniform(fold_rows(keys, step), 3)
    if isinstance(space, Discrete):
        return np.asarray((numbers[:, :1] * space.n).astype(np.int64))
    return (numbers[:, : math.prod(space.shape)] * 3.0 - 1.5).astype(np.float32)[:, None]


def trajectories(name: str, keys: list[int], steps: int) -> list[bytes]:
    """Everything that each row returns in `steps` steps, ended rows reset with fresh seeds."""
    world = build(name, len(keys))
    named = np.array(keys, np.uint64)
    seen = world.reset(np.arange(len(keys)), fold_rows(named, 0))
    told: list[list[bytes]] = [[_bytes(seen, row)] for row in range(len(keys))]
    for step in range(1, steps + 1):
        result = world.step(play(world, named, step))
        ends = np.flatnonzero(result.terminated | result.truncated)
        for row in range(len(keys)):
            flags = result.terminated[row].tobytes() + result.truncated[row].tobytes()
            told[row] += [_bytes(result.observation, row), result.reward[row].tobytes(), flags]
        if len(ends):
            seen = world.reset(ends, fold_rows(named[ends], step))
            for place, row in enumerate(ends.tolist()):
                told[row].append(_bytes(seen, place))
    return [b"".join(parts) for parts in told]


def _bytes(observation: Observation, row: int) -> bytes:
    return b"".join(observation[name][row].tobytes() for name in sorted(observation))


class TestNames:
    def test_all_seven_are_listed_and_parsed(self) -> None:
        """Every name of the family resolves to itself, with options, as a batched world."""
        names = parse("batched:cartpole").family.names()
        assert tuple(names) == (*TORCH_NAMES, "half_cheetah", "ant", "walker2d", "humanoid")
        for name in names:
            spec = parse(f"batched:{name}")
            assert spec.name == name
            assert spec.batched

    @pytest.mark.parametrize("name", ["cartpol", "cart_pole", "CartPole"])
    def test_a_mistyped_name_gets_the_nearest(self, name: str) -> None:
        """A wrong name is refused with the right one."""
        with pytest.raises(BadName, match="did you mean 'cartpole'"):
            parse(f"batched:{name}")

    def test_no_name_lists_them(self) -> None:
        """The family alone is no environment, and says what is."""
        with pytest.raises(BadName, match=r"one of cartpole, pendulum, ball_balance, half_cheetah"):
            parse("batched:")

    def test_names_are_checked_without_torch_or_mujoco(self) -> None:
        """Parsing every name imports neither simulator."""
        code = (
            "import sys\n"
            "from hts_envs.registry import family, parse\n"
            "[parse(f'batched:{name}') for name in family('batched').names()]\n"
            "sys.exit(any(heavy in sys.modules for heavy in ('torch', 'mujoco', 'gymnasium')))\n"
        )
        assert subprocess.run([sys.executable, "-c", code], timeout=HANG).returncode == 0

    def test_mujoco_is_needed_for_its_names_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without MuJoCo its names say how to install it, and the others work."""
        find = importlib.util.find_spec

        def without(name: str, package: str | None = None) -> Any:
            return None if name == "mujoco" else find(name, package)

        monkeypatch.setattr(importlib.util, "find_spec", without)
        with pytest.raises(MissingPackages, match=r"Install it with: tools/setup.sh"):
            make("batched:ant")
        assert build("cartpole", 2).replicas == 2

    def test_mujoco_names_reach_mujoco(self) -> None:
        """A MuJoCo name is dispatched to a world with as many replicas as asked for."""
        pytest.importorskip("mujoco")
        world = build("half_cheetah", 2)
        assert world.replicas == 2
        assert world.spaces.action.shape == (6,)
        world.close()


class TestDevices:
    @pytest.mark.parametrize("text", ["gpu", "cuda:", "cuda:x", "CPU", ""])
    def test_what_is_no_device_is_refused(self, text: str) -> None:
        """Anything but cpu, cuda or cuda:N is refused by name, before torch sees it."""
        with pytest.raises(
            BadOption, match=f"batched:pendulum: .*cpu, cuda or cuda:N, got '{text}'"
        ):
            make(f"batched:pendulum?device={text}")

    def test_devices_that_are_there_and_not(self) -> None:
        """Whether a device is accepted depends on how many there are."""
        assert device_trouble("cpu", 0) == ""
        assert device_trouble("cuda", 1) == ""
        assert device_trouble("cuda:1", 2) == ""
        assert "torch sees no CUDA device" in device_trouble("cuda", 0)
        assert device_trouble("cuda:2", 2).endswith("the last one is 'cuda:1'")

    @pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
    def test_a_missing_device_is_one_sentence(self) -> None:
        """A device that is not there is the user's mistake, not a failure of torch."""
        with pytest.raises(BadOption, match="'cuda:0' is not there"):
            make("batched:cartpole?device=cuda:0")

    def test_the_one_block_that_leaves_a_device_holds_everything(self) -> None:
        """Arrays of mixed dtypes survive being packed into one block of bytes, in any order."""
        tensors = [
            torch.tensor([True, False, True]),
            torch.arange(15, dtype=torch.uint8).reshape(3, 5),
            torch.rand(3, 2, generator=torch.Generator().manual_seed(0)),
            torch.arange(3, dtype=torch.int64),
        ]
        for array, tensor, direct in zip(
            unpack(pack(tensors), tensors), tensors, to_host(tensors), strict=True
        ):
            np.testing.assert_array_equal(array, tensor.numpy())
            np.testing.assert_array_equal(array, direct)
            assert array.dtype == tensor.numpy().dtype


class TestRowInvariance:
    @pytest.mark.parametrize("name", ALL)
    def test_replica_count_and_place_change_no_bit(self, name: str) -> None:
        """A row returns the same bytes among 1, 2, 3, 5, 7, 8, 33 or 64, wherever it stands."""
        keys = [fold(7, row) for row in range(64)]
        steps = 12 if "?" in name else 120
        alone = dict(zip(keys, trajectories(name, keys, steps), strict=True))
        assert len(set(alone.values())) == 64
        for count in (1, 2, 3, 5, 7, 8, 33):
            chosen = keys[-count:][::-1]
            assert trajectories(name, chosen, steps) == [alone[key] for key in chosen], count

    @pytest.mark.parametrize("simulator", [CartPole(), Pendulum(), BallBalance()])
    def test_torch_threads_change_no_bit(self, simulator: Any) -> None:
        """Rows of an array long enough to be cut among threads equal rows computed apart."""
        rows = 70_001
        draws = uniform(fold_rows(np.arange(rows), 3), simulator.draws)
        actions = uniform(fold_rows(np.arange(rows), 4), 3)
        space = simulator.spaces.action
        given = torch.tensor(actions[:, : math.prod(space.shape)].astype(np.float32))
        given = given[:, 0].round().long() if isinstance(space, Discrete) else given
        start = simulator.start(torch.tensor(draws.T.copy()))
        torch.set_num_threads(2)
        whole = simulator.advance(start, given)
        torch.set_num_threads(1)
        for begin in range(0, rows, 997):
            part = slice(begin, begin + 13)
            apart = simulator.advance(start[:, part].clone(), given[part].clone())
            assert torch.equal(apart.state, whole.state[:, part])
            assert torch.equal(apart.reward, whole.reward[part])

    def test_other_seeds_start_elsewhere(self) -> None:
        """Two seeds give two starts, one seed the same one in any row."""
        world = build("ball_balance", 3)
        seen = world.reset(np.arange(3), np.array([5, 6, 5], np.uint64))["observation"]
        assert (seen[0] == seen[2]).all()
        assert (seen[0] != seen[1]).any()


class TestShell:
    @pytest.mark.parametrize("name", ALL)
    def test_what_is_returned_is_what_the_spaces_declare(self, name: str) -> None:
        """Shapes, dtypes and bounds of every array are the declared ones, over many episodes."""
        world = build(name, 6)
        rows = np.arange(6)
        seen = world.reset(rows, rows.astype(np.uint64))
        for step in range(60):
            for field, space in world.spaces.observation.items():
                assert seen[field].shape == (6, 1, *space.shape)
                assert seen[field].dtype == space.dtype
                assert (seen[field] >= np.array(getattr(space, "low", 0), np.float32)).all()
                assert (seen[field] <= np.array(getattr(space, "high", 0), np.float32)).all()
            result = world.step(play(world, rows, step))
            assert result.reward.shape == (6, 1)
            assert result.reward.dtype == np.float32
            assert result.terminated.dtype == result.truncated.dtype == np.bool_
            seen = result.observation
            ended = np.flatnonzero(result.terminated | result.truncated)
            if len(ended):
                fresh = world.reset(ended, fold_rows(ended, step))
                for field in seen:
                    seen[field][ended] = fresh[field]

    @pytest.mark.parametrize("name", ALL)
    def test_nothing_returned_is_changed_later(self, name: str) -> None:
        """Arrays of one step keep their bytes while the world goes on, and may be written to."""
        world = build(name, 4)
        first = world.reset(np.arange(4), np.arange(4, dtype=np.uint64))
        kept = {field: array.copy() for field, array in first.items()}
        second = world.step(play(world, np.arange(4), 0))
        for array in second.observation.values():
            array[...] = 0
        world.step(play(world, np.arange(4), 1))
        assert all((first[field] == kept[field]).all() for field in first)
        assert all((array == 0).all() for array in second.observation.values())
        written = build(name, 4)
        written.reset(np.arange(4), np.arange(4, dtype=np.uint64))
        written.step(play(written, np.arange(4), 0))
        third = written.step(play(written, np.arange(4), 1))
        again = build(name, 4)
        again.reset(np.arange(4), np.arange(4, dtype=np.uint64))
        again.step(play(again, np.arange(4), 0)).reward[...] = 9.0
        assert (
            again.step(play(again, np.arange(4), 1)).facts["return"] == third.facts["return"]
        ).all()

    def test_the_clock_truncates_and_facts_add_up(self) -> None:
        """A pendulum is truncated at step 200 exactly, and its facts hold return and length."""
        world = build("pendulum", 2)
        world.reset(np.arange(2), np.array([1, 2], np.uint64))
        total = np.zeros(2)
        for step in range(1, 201):
            result = world.step(play(world, np.arange(2), step))
            total += result.reward[:, 0].astype(np.float64)
            assert (result.truncated == (step == 200)).all()
            assert not result.terminated.any()
        assert world.traits.time_limit == 200
        np.testing.assert_array_equal(result.facts["return"], total)
        np.testing.assert_array_equal(result.facts["length"], [200.0, 200.0])

    def test_a_fall_at_the_limit_is_a_fall(self) -> None:
        """A row that ends both ways in one step is terminated and not truncated; others are."""
        simulator = CartPole()
        simulator.limit = 10  # pushed one way only, a pole falls after 8 to 10 steps
        world = TorchWorld(simulator, 64, torch.device("cpu"))
        world.reset(np.arange(64), np.arange(64, dtype=np.uint64))
        fallen = np.zeros(64, np.bool_)
        for step in range(1, 11):
            result = world.step(np.ones((64, 1), np.int64))
            assert not (result.terminated & result.truncated).any()
            again = np.flatnonzero(result.terminated | result.truncated)
            if step == 10:
                assert (result.terminated & ~fallen).any()
                assert (result.facts["length"][result.terminated & ~fallen] == 10).all()
            fallen |= result.terminated
            world.reset(again, again.astype(np.uint64))

    def test_a_reset_touches_its_rows_alone(self) -> None:
        """Resetting one row restarts its clock and state, and leaves the others where they are."""
        both = [build("pendulum", 3) for _ in range(2)]
        for world in both:
            world.reset(np.arange(3), np.arange(3, dtype=np.uint64))
            world.step(play(world, np.arange(3), 0))
        both[0].reset(np.array([1]), np.array([99], np.uint64))
        reset, kept = (world.step(play(world, np.arange(3), 1)) for world in both)
        same = (reset.observation["observation"] == kept.observation["observation"]).all((1, 2))
        assert same.tolist() == [True, False, True]
        assert reset.facts["length"].tolist() == [2.0, 1.0, 2.0]

    def test_calls_out_of_order_are_refused(self) -> None:
        """Steps before a reset, wrong shapes and impossible actions are the caller's mistakes."""
        world = build("cartpole", 2)
        with pytest.raises(AssertionError, match="row 0 was not reset"):
            world.step(np.zeros((2, 1), np.int64))
        world.reset(np.arange(2), np.arange(2, dtype=np.uint64))
        with pytest.raises(AssertionError, match=r"shape \(2,\), not \(2, 1\)"):
            world.step(np.zeros(2, np.int64))
        with pytest.raises(AssertionError, match=r"outside \[0, 2\)"):
            world.step(np.full((2, 1), 2))
        with pytest.raises(AssertionError, match="2 rows and 1 seeds"):
            world.reset(np.arange(2), np.zeros(1, np.uint64))
