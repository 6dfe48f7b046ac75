"""`gym:` names, options and worlds."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import load_env_creator

from hts_envs import quiet
from hts_envs.contract import Discrete, World
from hts_envs.errors import BadName, BadOption, BrokenSimulator, MissingPackages
from hts_envs.gym import WITHOUT
from hts_envs.options import describe
from hts_envs.registry import family, make, parse
from hts_envs.signature import signature_of
from hts_envs.source import declared

needs_mujoco = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mujoco", "imageio")),
    reason="the extra [mujoco] is not installed",
)


def act(action: int) -> Any:
    return np.array([action])


def made(name: str) -> World:
    world = make(name)
    assert isinstance(world, World)
    return world


@pytest.mark.parametrize(
    ("typed", "full"),
    [
        ("gym:CartPole-v1", "CartPole-v1"),
        ("gym:CartPole", "CartPole-v1"),
        ("gym:ale_py:ALE/Pong-v5", "ale_py:ALE/Pong-v5"),
    ],
)
def test_names(typed: str, full: str) -> None:
    """Full ids, ids without a version, and ids behind the package that registers them."""
    assert parse(typed).name == full


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("gym:", "names no environment"),
        ("gym:CartPol-v1", "did you mean 'CartPole-v1'"),
        ("gym:CartPole-v9", "did you mean 'CartPole-v1'"),
        ("gym:Taxi-v3", "did you mean 'Taxi-v4'"),
        ("gym:a b", "is not an id"),
        ("gym:nosuchpackage:Foo-v0", "there is no package 'nosuchpackage'"),
        ("gym:Some/Thing-v0", "gym:package:Some/Thing-v0"),
    ],
)
def test_bad_names(typed: str, sentence: str) -> None:
    """One sentence with the nearest right name, for whatever is wrong with it."""
    with pytest.raises(BadName, match=sentence):
        parse(typed)


def test_listed_names_resolve() -> None:
    """What the family shows people is there, each in its newest version."""
    found = family("gym")
    names = found.names()
    assert {"CartPole-v1", "Ant-v5", "LunarLander-v3", "FrozenLake-v1"} <= set(names)
    assert "CartPole-v0" not in names
    assert all(found.resolve(name) == name for name in names)


def test_options_are_the_constructor_s() -> None:
    """Typed from the constructor, with the registered values as defaults, and listed with them."""
    spec = parse("gym:FrozenLake8x8-v1?is_slippery=no&max_episode_steps=50")
    assert spec.options.is_slippery is False
    assert spec.options.map_name == "8x8"
    assert {option.name for option in describe(type(spec.options))} >= {"map_name", "is_slippery"}
    world = make(spec)
    assert isinstance(world, World)
    assert world.traits.time_limit == 50
    assert world.spaces.observation["observation"] == Discrete(64)


def test_an_option_reaches_the_environment() -> None:
    """A changed constructor argument changes what the world does."""

    def first_reward(name: str) -> float:
        world = made(name)
        world.reset(0)
        return float(world.step(act(0)).reward[0])

    assert first_reward("gym:CartPole-v1") == 1.0
    assert first_reward("gym:CartPole-v1?sutton_barto_reward=true") == 0.0


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("gym:CartPole-v1?suton_barto=1", "did you mean 'sutton_barto_reward'"),
        ("gym:CartPole-v1?max_episode_steps=0", "must be none or a whole number from 1, not 0"),
        ("gym:CartPole-v1?render_mode=human", "has no option 'render_mode'"),
        ("gym:Pendulum-v1?g=heavy", "must be a number"),
    ],
)
def test_bad_options(typed: str, sentence: str) -> None:
    """Unknown, out of range, of the wrong type: refused when the name is checked."""
    with pytest.raises(BadOption, match=sentence):
        parse(typed)


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1", "Taxi-v4"])
def test_canonical_names_parse_to_the_same(name: str) -> None:
    """Every option spelled out is the same world again."""
    spec = parse(f"gym:{name}")
    assert parse(spec.canonical()) == spec


def test_nothing_stands_between_the_adapter_and_the_environment() -> None:
    """Gymnasium's wrappers that check, order and count every step are left out."""
    world: Any = made("gym:CartPole-v1")
    assert world._env is world._env.unwrapped


@pytest.mark.parametrize("limit", [None, 30])
def test_a_world_steps_as_gymnasium_does(limit: int | None) -> None:
    """Bit by bit, ends included, what `gymnasium.make` builds, over many episodes."""
    query = f"?max_episode_steps={limit}" if limit else ""
    world = made(f"gym:CartPole-v1{query}")
    env: Any = gymnasium.make("CartPole-v1", max_episode_steps=limit)
    assert world.traits.time_limit == (limit or 500)
    draw = np.random.default_rng(0)
    for seed in range(20):
        ours = world.reset(seed)["observation"]
        theirs, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            assert np.array_equal(ours[0], theirs)
            action = int(draw.integers(2))
            step = world.step(act(action))
            theirs, reward, terminated, truncated, _ = env.step(action)
            ours = step.observation["observation"]
            assert (step.reward[0], step.terminated, step.truncated) == (
                reward,
                terminated,
                truncated,
            )
            ended = terminated or truncated


def test_the_time_limit_can_be_taken_away() -> None:
    """`none` removes the clock, and the trait says that there is none."""
    world = made("gym:MountainCar-v0?max_episode_steps=none")
    assert world.traits.time_limit is None
    world.reset(0)
    assert not any(world.step(act(1)).truncated for _ in range(250))


@pytest.mark.parametrize(
    ("name", "command"),
    [
        pytest.param(
            "LunarLander-v3",
            r"needs Box2D, .*pip install swig && pip install \"gymnasium\[box2d\]\"",
            marks=pytest.mark.skipif(
                importlib.util.find_spec("Box2D") is not None, reason="Box2D is installed"
            ),
        ),
        pytest.param(
            "phys2d/CartPole-v1",
            "needs jax, .*pip install jax",
            marks=pytest.mark.skipif(
                importlib.util.find_spec("jax") is not None, reason="jax is installed"
            ),
        ),
    ],
)
def test_missing_packages_are_named_with_their_command(name: str, command: str) -> None:
    """What Gymnasium says about a missing simulator becomes one sentence."""
    with pytest.raises(MissingPackages, match=command):
        make(f"gym:{name}")


@pytest.mark.parametrize(
    ("name", "computed"),
    [
        ("Pendulum-v1", set()),
        ("FrozenLake-v1", {"success_rate"}),
        pytest.param("HalfCheetah-v5", {"default_camera_config"}, marks=needs_mujoco),
    ],
)
def test_options_read_from_the_source(name: str, computed: set[str]) -> None:
    """They are the ones of the imported constructor, but for those with a computed default."""
    found = gymnasium.spec(name)
    assert isinstance(found.entry_point, str)
    read = signature_of(declared(found.entry_point), "x", without=WITHOUT)
    imported = signature_of(load_env_creator(found.entry_point), "x", without=WITHOUT)
    expected = [o for o in describe(imported.record()) if o.name not in computed]
    assert describe(read.record()) == expected
    assert len(expected) + len(computed) == len(describe(imported.record()))


def test_options_of_a_simulator_that_is_not_installed_are_checked() -> None:
    """A wrong option is refused as such, before anybody is asked to install anything."""
    assert parse("gym:LunarLander-v3?wind_power=5").options.wind_power == 5.0
    with pytest.raises(BadOption, match="did you mean 'gravity'"):
        parse("gym:LunarLander-v3?gravty=5")


@pytest.mark.parametrize("entry", ["gymnasium.core:NoSuchClass", "gymnasium.nowhere:Env", "no:f"])
def test_a_source_that_cannot_be_found_leaves_everything_open(entry: str) -> None:
    """Where neither import nor source tells, further keywords are all that is offered."""
    stand_in = declared(entry)
    assert [option.name for option in describe(signature_of(stand_in, "x").record())] == [
        "keywords"
    ]
    with pytest.raises(NotImplementedError):
        stand_in()


def test_mujoco_that_is_not_installed_is_offered_as_an_extra() -> None:
    """In a process that cannot import mujoco the sentence has this project's own command."""
    code = (
        "import sys; sys.modules['mujoco'] = None\n"
        "import hts_envs, hts_envs.errors as e\n"
        "try: hts_envs.make('gym:HalfCheetah-v5')\n"
        "except e.MissingPackages as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "gym:HalfCheetah-v5: needs mujoco" in done.stdout
    assert "Install it with: tools/setup.sh" in done.stdout
    assert done.stderr == ""


def test_a_retired_environment_is_refused_in_one_sentence() -> None:
    """An id that Gymnasium keeps only to say where it went is passed on as that sentence."""
    with pytest.raises(BadName, match="cannot be built: The mujoco v2 and v3") as info:
        make("gym:HalfCheetah-v2")
    assert "\n" not in str(info.value)


def test_an_environment_that_refuses_its_arguments_is_broken() -> None:
    """What a constructor raises is the cause of one sentence."""
    with pytest.raises(BrokenSimulator, match="gym:FrozenLake-v1 could not be built") as info:
        make("gym:FrozenLake-v1?map_name=7x7")
    assert isinstance(info.value.__cause__, KeyError)


@pytest.mark.parametrize("name", ["gym:CartPole-v0", "gym:ale_py:ALE/Pong-v5"])
def test_nothing_is_printed_at_users(name: str) -> None:
    """Neither an old version nor a simulator's own banner says anything, with all warnings on."""
    code = f"import hts_envs; w = hts_envs.make({name!r}); w.reset(0); w.close()"
    command = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


@needs_mujoco
def test_mujoco_worlds() -> None:
    """float64 observations are cast once to float32, and equal Gymnasium's own after that cast."""
    name = "HalfCheetah-v5"
    world = made(f"gym:{name}?reset_noise_scale=0.2&frame_skip=2")
    with quiet.building():
        env: Any = gymnasium.make(name, reset_noise_scale=0.2, frame_skip=2)
    assert world.spaces.observation["observation"].dtype == "float32"
    assert world.traits.time_limit == 1000
    theirs, _ = env.reset(seed=3)
    ours = world.reset(3)["observation"]
    for k in range(20):
        assert np.array_equal(ours[0], theirs.astype(np.float32))
        action = np.full((1, 6), 0.1 * (k % 7), np.float32)
        step = world.step(action)
        theirs, reward, *_ = env.step(action[0])
        ours = step.observation["observation"]
        assert step.reward[0] == np.float32(reward)


@needs_mujoco
def test_mujoco_is_quiet_about_words_of_its_model_files(tmp_path: Any) -> None:
    """No notice on the screen and no log file in the current directory."""
    code = "import hts_envs; hts_envs.make('gym:HalfCheetah-v5').reset(0)"
    command = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout + done.stderr == ""
    assert list(tmp_path.iterdir()) == []
