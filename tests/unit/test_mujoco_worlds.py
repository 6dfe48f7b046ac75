"""The batched MuJoCo worlds against Gymnasium's own environments, and against themselves."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

from hts_envs.batched.mujoco import NAMES, make
from hts_envs.batched.mujoco import world as world_module
from hts_envs.batched.mujoco.options import MujocoOptions
from hts_envs.batched.mujoco.simulation import PooledSimulation, ThreadedSimulation, load, simulate
from hts_envs.batched.mujoco.tasks import TASKS
from hts_envs.batched.mujoco.world import MujocoWorld
from hts_envs.contract import Array, Box, Place
from hts_envs.errors import BadOption, BrokenSimulator
from hts_envs.options import build
from hts_envs.randomness import fold, fold_rows, uniform

IDS = {
    "half_cheetah": "HalfCheetah-v5",
    "ant": "Ant-v5",
    "walker2d": "Walker2d-v5",
    "humanoid": "Humanoid-v5",
}


@contextmanager
def made(
    name: str, replicas: int, threads: int = 2, max_steps: int = 1000
) -> Iterator[MujocoWorld]:
    world = make(name, MujocoOptions(threads, max_steps), Place(replicas=replicas))
    try:
        yield world
    finally:
        world.close()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test fails if MuJoCo leaves a log in the working directory."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir()), "something was written into the working directory"


def gym_env(name: str) -> Any:
    """Gymnasium's environment; MuJoCo's notice about the cheetah's model is not ours to hear."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        return gymnasium.make(IDS[name])
    finally:
        mujoco.set_mju_user_warning(before)


def place_like(env: Any, world: MujocoWorld, row: int) -> Array:
    """Begin an episode of Gymnasium's at the positions and velocities of one of our rows."""
    env.reset(seed=0)
    mujoco.mj_resetData(env.unwrapped.model, env.unwrapped.data)
    simulation = world.simulation
    env.unwrapped.set_state(simulation.qpos[row].copy(), simulation.qvel[row].copy())
    return np.asarray(env.unwrapped._get_obs())


def actions(world: MujocoWorld, rows: list[int], step: int) -> Array:
    """Random actions that depend on the row's number and the step; calm and wild rows."""
    space = world.spaces.action
    assert isinstance(space, Box)
    keys = fold_rows(np.array(rows), step)
    drawn = uniform(keys, space.shape[0]) * 2.0 - 1.0
    calm = np.where(np.array(rows) % 2 == 0, 0.2, 1.0)[:, None]
    return (drawn * calm * space.high).astype(np.float32)[:, None]


def compare(world: MujocoWorld, envs: list[Any], steps: int) -> tuple[int, int]:
    """Run both side by side, every difference fails; how many rows ended by health and by clock."""
    rows = list(range(world.replicas))
    observed = world.reset(np.array(rows), np.array(rows) + 7)["observation"]
    for row, env in enumerate(envs):
        assert np.array_equal(observed[row, 0], place_like(env, world, row).astype(np.float32))
    ends = [0, 0]
    for step in range(steps):
        action = actions(world, rows, step)
        ours = world.step(action)
        for row, env in enumerate(envs):
            wanted, reward, terminated, truncated, info = env.step(action[row, 0])
            data = env.unwrapped.data
            assert np.array_equal(world.simulation.qpos[row], data.qpos), f"qpos, step {step}"
            assert np.array_equal(world.simulation.qvel[row], data.qvel), f"qvel, step {step}"
            assert np.array_equal(ours.observation["observation"][row, 0], np.float32(wanted))
            assert ours.reward[row, 0] == np.float32(reward), f"row {row}, step {step}"
            assert ours.terminated[row] == terminated, f"row {row}, step {step}"
            assert ours.truncated[row] == (truncated and not terminated)
            assert ours.facts["x_position"][row] == info["x_position"]
            if terminated or truncated:
                ends[int(truncated)] += 1
                seen = world.reset(np.array([row]), np.array([1000 * row + step]))["observation"]
                first = place_like(env, world, row)
                assert np.array_equal(seen[0, 0], first.astype(np.float32))
    return ends[0], ends[1]


@pytest.mark.parametrize("name", NAMES)
def test_bit_equal_to_gymnasium(name: str) -> None:
    """Over many episodes: state, observation, reward, both end flags and x are Gymnasium's bits."""
    with made(name, replicas=3) as world:
        envs = [gym_env(name) for _ in range(3)]
        by_health, by_clock = compare(world, envs, steps=1001)
        for env in envs:
            env.close()
    if name == "half_cheetah":
        assert (by_health, by_clock) == (0, 3)
    else:
        assert by_health > 0


@pytest.mark.parametrize("name", NAMES)
def test_return_is_the_float64_sum(name: str) -> None:
    """The facts' return is the sum of Gymnasium's float64 rewards, not of the float32 ones."""
    with made(name, replicas=1) as world:
        env = gym_env(name)
        world.reset(np.array([0]), np.array([3]))
        place_like(env, world, 0)
        total = 0.0
        for step in range(10):
            action = actions(world, [0], step)
            facts = world.step(action).facts
            total += env.step(action[0, 0])[1]
            assert facts["return"][0] == total
            assert facts["length"][0] == step + 1
        env.close()


def spaces_equal(world: MujocoWorld, env: Any) -> None:
    observation, action = world.spaces.observation["observation"], world.spaces.action
    assert isinstance(observation, Box)
    assert isinstance(action, Box)
    assert observation.shape == env.observation_space.shape
    assert action.shape == env.action_space.shape
    assert (env.action_space.low == np.float32(action.low)).all()
    assert (env.action_space.high == np.float32(action.high)).all()
    assert observation.dtype == action.dtype == "float32"


@pytest.mark.parametrize("name", NAMES)
def test_spaces_and_traits_are_gymnasiums(name: str) -> None:
    """Shapes, bounds, frame skip and time limit are those of the registered environment."""
    env = gym_env(name)
    with made(name, replicas=1) as world:
        spaces_equal(world, env)
        assert world.traits.frame_skip == env.unwrapped.frame_skip
        assert world.traits.time_limit == env.spec.max_episode_steps
    env.close()


@pytest.mark.parametrize("name", NAMES)
def test_first_noise_has_gymnasiums_bounds_and_spread(name: str) -> None:
    """First positions fill Gymnasium's uniform interval, velocities have their law's spread."""
    env = gym_env(name)
    scale = env.unwrapped._reset_noise_scale
    count = 400
    with made(name, replicas=count) as world:
        qpos, qvel = world._draw(np.arange(count, dtype=np.uint64))
    noise = qpos - env.unwrapped.init_qpos
    assert np.abs(noise).max() <= scale
    assert noise.min() < -0.98 * scale
    assert noise.max() > 0.98 * scale
    normal = name in ("half_cheetah", "ant")
    spread = scale if normal else scale / np.sqrt(3)
    assert abs(qvel.std() / spread - 1.0) < 0.05  # about five standard errors of 3,600 draws
    assert (np.abs(qvel).max() > scale) == normal
    env.close()


def trajectory(name: str, rows: list[int], threads: int) -> list[Array]:
    """What the rows of these numbers see in a world that holds them and nothing else."""
    with made(name, replicas=len(rows), threads=threads) as world:
        seeds = np.array([fold(9, row) for row in rows], np.uint64)
        seen = [world.reset(np.arange(len(rows)), seeds)["observation"]]
        for step in range(12):
            result = world.step(actions(world, rows, step))
            seen.append(result.observation["observation"])
            seen.append(np.repeat(result.reward[..., None], 2, axis=2))
            over = np.flatnonzero(result.terminated | result.truncated)
            if len(over):
                seeds = np.array([fold(step, rows[i]) for i in over], np.uint64)
                world.reset(over, seeds)
        return seen


@pytest.mark.parametrize("name", NAMES)
def test_a_row_depends_on_nothing_around_it(name: str) -> None:
    """Alone, among 3 or 8, in any order, on 1 or 2 threads: a row's bits are the same."""
    alone = {row: trajectory(name, [row], 1) for row in (0, 5)}
    for rows in ([0], [5, 2, 0], [3, 0, 1, 2, 7, 6, 5, 4]):
        for threads in (1, 2):
            seen = trajectory(name, rows, threads)
            for row in set(rows) & set(alone):
                place = rows.index(row)
                for one, many in zip(alone[row], seen, strict=True):
                    assert np.array_equal(one[0], many[place]), f"{row} of {rows}, {threads}"


@pytest.mark.parametrize("name", NAMES)
def test_seeds_alone_decide_an_episode(name: str) -> None:
    """Equal seeds begin equal episodes whatever came before; other seeds begin others."""
    with made(name, replicas=2) as world:
        first = world.reset(np.array([0, 1]), np.array([4, 5]))["observation"]
        for step in range(5):
            world.step(actions(world, [0, 1], step))
        again = world.reset(np.array([1, 0]), np.array([4, 5]))["observation"]
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize("name", ["half_cheetah", "ant"])
def test_reset_touches_only_its_rows(name: str) -> None:
    """Resetting one row leaves the state of the others as it was, and none is fine too."""
    with made(name, replicas=3) as world:
        world.reset(np.arange(3), np.arange(3))
        world.step(actions(world, [0, 1, 2], 0))
        before = world.simulation.qpos.copy()
        assert world.reset(np.array([], np.int64), np.array([]))["observation"].shape[0] == 0
        world.reset(np.array([1]), np.array([8]))
        after = world.simulation.qpos
        assert np.array_equal(before[[0, 2]], after[[0, 2]])
        assert not np.array_equal(before[1], after[1])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_returned_is_changed_later(name: str) -> None:
    """What a step returned is the caller's: the next step changes none of it."""
    with made(name, replicas=2) as world:
        seen = world.reset(np.arange(2), np.arange(2))["observation"]
        results = [world.step(actions(world, [0, 1], 0))]
        held = [seen, results[0].observation["observation"], results[0].reward]
        held += [results[0].terminated, results[0].truncated, *results[0].facts.values()]
        copies = [array.copy() for array in held]
        world.reset(np.arange(2), np.arange(2) + 50)
        world.step(actions(world, [0, 1], 1))
        for array, copy in zip(held, copies, strict=True):
            assert np.array_equal(array, copy)


def test_the_clock_truncates() -> None:
    """The time limit is the option's, and ends a row as truncated, not as terminated."""
    with made("half_cheetah", replicas=2, max_steps=3) as world:
        world.reset(np.arange(2), np.arange(2))
        flags = [world.step(actions(world, [0, 1], step)).truncated.tolist() for step in range(3)]
    assert flags == [[False, False], [False, False], [True, True]]


def fall(max_steps: int) -> tuple[int, bool, bool]:
    """Step one wild walker until its episode ends: after how many steps, and with which flags."""
    with made("walker2d", replicas=1, max_steps=max_steps) as world:
        world.reset(np.array([0]), np.array([1]))
        for step in range(max_steps):
            result = world.step(actions(world, [1], step))
            if result.terminated[0] or result.truncated[0]:
                return step + 1, bool(result.terminated[0]), bool(result.truncated[0])
    raise AssertionError("the clock did not end the episode")


def test_a_fall_on_the_last_step_is_a_fall() -> None:
    """Where health and clock end an episode at the same step, it is terminated and that alone."""
    steps, *flags = fall(1000)
    assert flags == [True, False]
    assert fall(steps) == (steps, True, False)
    assert fall(steps - 1) == (steps - 1, False, True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_state_that_blows_up_is_named(name: str, threads: int) -> None:
    """Not-a-number in one row raises with its number; no log is written (see the fixture)."""
    with made(name, replicas=5, threads=threads) as world:
        world.reset(np.arange(5), np.arange(5))
        world.simulation.qvel[3] = np.nan
        with pytest.raises(BrokenSimulator, match=r"replica 3 .*QVEL"):
            world.step(actions(world, list(range(5)), 0))
        world.reset(np.arange(5), np.arange(5))
        world.step(actions(world, list(range(5)), 0))


@pytest.mark.parametrize("name", ["half_cheetah", "ant"])
def test_an_error_of_mujoco_is_named(name: str) -> None:
    """An error that MuJoCo raises in one row becomes BrokenSimulator with the row's number."""
    model = load(world_module._model_file(TASKS[name].model))
    model.opt.integrator = 99
    simulation = simulate(model, 2, 1, TASKS[name].derived)
    with pytest.raises(BrokenSimulator, match=r"replica 0 .*integrator"):
        simulation.advance(np.zeros((2, model.nu)), 1)
    simulation.close()


def test_a_row_must_be_reset_before_it_goes_on() -> None:
    """Stepping a row that has ended, or was never begun, is refused."""
    with made("walker2d", replicas=2, max_steps=1) as world:
        world.reset(np.array([0]), np.array([0]))
        with pytest.raises(AssertionError, match="row 1 was not reset"):
            world.step(actions(world, [0, 1], 0))
        world.reset(np.array([1]), np.array([0]))
        world.step(actions(world, [0, 1], 0))
        with pytest.raises(AssertionError, match="row 0 was not reset"):
            world.step(actions(world, [0, 1], 0))


def test_an_action_of_another_shape_is_refused() -> None:
    """An action without the axis of agents is refused, not broadcast."""
    with made("walker2d", replicas=2) as world:
        world.reset(np.arange(2), np.arange(2))
        with pytest.raises(AssertionError, match="an action of shape"):
            world.step(np.zeros((2, 6), np.float32))


def test_which_simulation_serves_which_task() -> None:
    """Tasks without contact forces run on MuJoCo's own pool, the others on threads of ours."""
    kinds = {}
    for name in NAMES:
        with made(name, replicas=1, threads=0) as world:
            kinds[name] = type(world.simulation)
    pooled, threaded = PooledSimulation, ThreadedSimulation
    wanted = {"half_cheetah": pooled, "walker2d": pooled, "ant": threaded, "humanoid": threaded}
    assert kinds == wanted


def test_options_are_checked() -> None:
    """Options are typed and bounded, and both are put together in one sentence."""
    assert build(MujocoOptions, {"threads": "2"}, "batched:ant") == MujocoOptions(threads=2)
    with pytest.raises(
        BadOption, match=r"threads must be a whole number from 0.*max_steps must be .* from 1"
    ):
        build(MujocoOptions, {"threads": "-1", "max_steps": "0"}, "batched:ant")


def test_a_missing_model_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gymnasium without the model file gives one sentence with the path that was looked for."""
    task = dataclasses.replace(TASKS["ant"], model="spider.xml")
    monkeypatch.setitem(TASKS, "ant", task)
    with pytest.raises(BrokenSimulator, match=r"no model spider\.xml"):
        make("ant", MujocoOptions(), Place())


def test_names_and_options_need_no_mujoco() -> None:
    """Naming the worlds imports neither MuJoCo nor gymnasium."""
    code = (
        "import sys, hts_envs.batched.mujoco as m; "
        "assert m.NAMES and m.MujocoOptions; "
        "assert not {'mujoco', 'gymnasium'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
