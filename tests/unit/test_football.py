"""The football family, against the real engine and against gfootball's own environment."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from hts_envs import football
from hts_envs.contract import Box, Observation, Place, Step, World
from hts_envs.errors import BadName, BadOption, BrokenSimulator, MissingPackages
from hts_envs.football import FAMILY, engine
from hts_envs.football.engine import ACTIONS, draw
from hts_envs.football.scenarios import SCENARIOS, Scenario, resolve
from hts_envs.football.scenarios import options as options_of
from hts_envs.football.world import FootballWorld
from hts_envs.registry import make, parse
from tests.limits import HANG

pytest.importorskip("gfootball_engine")

RIGHT, SHOT = ACTIONS.index("right"), ACTIONS.index("shot")


def built(text: str) -> FootballWorld:
    world = make(text)
    assert isinstance(world, FootballWorld)
    return world


def actions(seed: int, agents: int, steps: int) -> Any:
    return np.random.default_rng(seed).integers(len(ACTIONS), size=(steps, agents))


def episode(world: World, seed: int, chosen: Any) -> list[Step]:
    """The reset as a step, then a step for each row of `chosen` or until the end."""
    zeros = np.zeros(world.spaces.agents, np.float32)
    steps = [Step(world.reset(seed), zeros, False, False, {})]
    for row in chosen:
        steps.append(world.step(row))
        if steps[-1].terminated or steps[-1].truncated:
            break
    return steps


def same(ours: Observation, theirs: Observation) -> bool:
    return ours.keys() == theirs.keys() and all(
        ours[name].dtype == theirs[name].dtype and np.array_equal(ours[name], theirs[name])
        for name in ours
    )


def equal(ours: list[Step], theirs: list[Step]) -> bool:
    return len(ours) == len(theirs) and all(
        same(a.observation, b.observation) and np.array_equal(a.reward, b.reward) and a[2:] == b[2:]
        for a, b in zip(ours, theirs, strict=True)
    )


# --- names and options -------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda each: each.short)
def test_names(scenario: Scenario) -> None:
    """Short and full names, with or without `academy_`, mean the same scenario."""
    bare = scenario.full.removeprefix("academy_")
    assert {resolve(name) for name in (scenario.short, bare, scenario.full)} == {scenario.full}
    assert parse(f"gfootball:{scenario.short}").name == scenario.full
    assert scenario.short in FAMILY.names()


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda each: each.short)
def test_the_table_repeats_the_files(scenario: Scenario) -> None:
    """Players, duration and independence of the engine's clock stand in the scenario files."""
    for number in (0, 1):
        builder = engine.Builder(engine.library(), number)
        engine.script(scenario.full).build_scenario(builder)
        config = builder.config()
        said = config.controllable_left_players, config.controllable_right_players
        assert said == (scenario.left, scenario.right)
        assert config.game_duration == scenario.duration
        assert not config.deterministic
        assert not config.control_all_players


def test_bad_names() -> None:
    """A mistyped scenario is answered with the nearest right one, a missing one with an example."""
    with pytest.raises(BadName, match="did you mean '3v1'"):
        parse("gfootball:3v2")
    with pytest.raises(BadName, match="needs a scenario, such as gfootball:3v1"):
        parse("gfootball:")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("agents=5", "agents must be a whole number from 1 to 4, not 5"),
        ("agents=0", "agents must be a whole number from 1 to 4, not 0"),
        ("right_agents=3", "right_agents must be a whole number from 0 to 2, not 3"),
        ("representation=smm", "must be extracted, simple115v2, pixels or raw, not 'smm'"),
        ("rewards=checkpoints", "must be scoring or scoring,checkpoints, not"),
        ("clock=stops", "must be ends or truncates, not 'stops'"),
        ("agent=2", "did you mean 'agents'"),
        ("representation=pixels&right_agents=1", "right_agents must be 0 with it"),
    ],
)
def test_bad_options(query: str, words: str) -> None:
    """What the scenario or gfootball cannot do is refused before anything is started."""
    with pytest.raises(BadOption, match=words):
        parse(f"gfootball:3v1?{query}")


def test_options_travel() -> None:
    """Options made for a scenario can be pickled, and their canonical name parses to themselves."""
    spec = parse("gfootball:3v1?agents=3&rewards=scoring,checkpoints")
    assert pickle.loads(pickle.dumps(spec.options)) == spec.options
    assert parse(spec.canonical()).options == spec.options
    assert dataclasses.asdict(spec.options)["agents"] == 3


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that lacks a shared library is told with the package manager's command."""

    def broken(_: str) -> Any:
        raise ImportError("libSDL2-2.0.so.0: cannot open shared object file")

    engine.library.cache_clear()
    monkeypatch.setattr(engine.importlib, "import_module", broken)
    with pytest.raises(MissingPackages, match=r"libSDL2-2.*sudo apt-get install -y libsdl2"):
        engine.library()
    monkeypatch.undo()
    engine.library.cache_clear()


def test_what_to_use_instead() -> None:
    """The sentence about the way out names an environment of EnvPool and what it lacks."""
    assert "envpool:gfootball/academy_3_vs_1_with_keeper-v1" in FAMILY.instead()
    assert "one player" in FAMILY.instead()


# --- the contract ------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda each: each.short)
def test_every_scenario_plays(scenario: Scenario) -> None:
    """Each scenario resets and steps with everybody led, and keeps its declared spaces."""
    made = options_of(scenario)(
        representation="raw", agents=scenario.left, right_agents=scenario.right
    )
    world = FootballWorld(scenario, made)
    agents = scenario.left + scenario.right
    steps = episode(world, 3, actions(0, agents, 5))
    for step in steps:
        assert step.reward.shape == (agents,)
        assert step.reward.dtype == np.float32
        assert set(step.observation) == set(world.spaces.observation)
        for name, space in world.spaces.observation.items():
            value = step.observation[name]
            assert isinstance(space, Box)
            assert value.shape == (agents, *space.shape), name
            assert value.dtype == space.dtype, name
            assert value.min() >= space.low, name
            assert value.max() <= space.high, name
    world.close()


def test_facts() -> None:
    """The facts of an ended episode are its raw return, its length and the score."""
    world = built("gfootball:empty_goal_close?rewards=scoring,checkpoints")
    steps = episode(world, 1, [np.array([RIGHT])] * 20 + [np.array([SHOT])] * 60)
    facts = steps[-1].facts
    assert steps[-1].terminated
    assert facts["length"] == len(steps) - 1
    assert facts["score"] == facts["return"] == 1.0
    assert facts["shaped_return"] == pytest.approx(2.0)
    assert all(not step.facts for step in steps[:-1])
    world.close()


def test_nothing_aliases() -> None:
    """What a step returned stays as it is while the world goes on."""
    for representation in ("extracted", "simple115v2", "raw"):
        world = built(f"gfootball:3v1?agents=2&representation={representation}")
        kept = [world.reset(0)]
        rewards = []
        for row in actions(1, 2, 6):
            step = world.step(row)
            kept.append(step.observation)
            rewards.append(step.reward)
        copies = [{name: value.copy() for name, value in each.items()} for each in kept]
        for each in kept:
            for value in each.values():
                value[...] = 1  # what is the caller's may be written to, and nothing else changes
        again = [world.reset(0), *(world.step(row).observation for row in actions(1, 2, 6))]
        assert all(same(a, b) for a, b in zip(copies, again, strict=True))
        world.close()


def test_wrong_calls() -> None:
    """A step before a reset, with too few actions or with none that exists is refused."""
    world = built("gfootball:3v1?agents=2")
    with pytest.raises(AssertionError, match="begins with reset"):
        world.step(np.zeros(2, np.int64))
    world.reset(0)
    with pytest.raises(AssertionError, match="one action for each agent"):
        world.step(np.zeros(1, np.int64))
    for wrong in (len(ACTIONS), -1):
        with pytest.raises(KeyError):
            world.step(np.array([0, wrong]))
    world.close()


# --- determinism -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["3v1?agents=2", "11v11_stochastic?right_agents=1", "corner"])
def test_an_episode_is_its_seed(name: str) -> None:
    """Same seed, same episode, whatever this engine or another did before; another seed differs."""
    world = built(f"gfootball:{name}&representation=raw".replace("corner&", "corner?"))
    chosen = actions(0, world.spaces.agents, 40)
    first = episode(world, 11, chosen)
    other = episode(world, 12, chosen)
    assert equal(first, episode(world, 11, chosen))
    assert not equal(first, other)
    world.close()
    stranger = built("gfootball:5v5?agents=4&right_agents=4")  # takes over the engine
    episode(stranger, 5, actions(1, 8, 10))
    stranger.close()
    world = built(f"gfootball:{name}&representation=raw".replace("corner&", "corner?"))
    assert equal(first, episode(world, 11, chosen))
    fresh = built(f"gfootball:{name}&representation=raw".replace("corner&", "corner?"))
    assert equal(first, episode(fresh, 11, chosen))
    fresh.close()
    world.close()


def test_two_at_once() -> None:
    """Two worlds of a process that take turns do not disturb each other."""
    one, two = built("gfootball:3v1"), built("gfootball:rsk")
    chosen = actions(3, 1, 12)
    alone = episode(one, 1, chosen), episode(two, 2, chosen)
    together = [one.reset(1)], [two.reset(2)]
    for row in chosen[: min(map(len, alone)) - 1]:
        together[0].append(one.step(row).observation)
        together[1].append(two.step(row).observation)
    for steps, seen in zip(alone, together, strict=True):
        assert all(same(a.observation, b) for a, b in zip(steps, seen, strict=False))
    one.close()
    two.close()


def test_draws() -> None:
    """The three values behind an episode vary independently and fit the engine."""
    draws = [draw(seed) for seed in range(400)]
    assert len({each.engine_seed for each in draws}) == 400
    assert all(0 <= each.engine_seed < 2**31 for each in draws)
    pairs = [(each.reverse, each.episode) for each in draws]
    assert {pairs.count(pair) > 60 for pair in set(pairs)} == {True}
    assert len(set(pairs)) == 4


def test_engines_are_reused() -> None:
    """A closed world gives its engine back, once, and a forgotten one does too."""
    world = built("gfootball:3v1")
    idle = len(engine._idle)
    core = world._match._core
    world.close()
    world.close()
    assert len(engine._idle) == idle + 1
    again = built("gfootball:corner")
    assert again._match._core is core
    del again, world
    assert len(engine._idle) == idle + 1


# --- snapshots ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["3v1?rewards=scoring,checkpoints", "11v11_stochastic?agents=2&right_agents=1", "5v5?agents=4"],
)
def test_snapshots(name: str) -> None:
    """What follows a restore is bit-equal: in the same world, an older one and a new one."""
    text = f"gfootball:{name}&representation=raw"
    world = built(text)
    agents = world.spaces.agents
    begun = episode(world, 21, actions(0, agents, 9))
    state = world.snapshot()
    chosen = actions(5, agents, 40)
    after = [begun[-1].observation, *_steps(world, chosen)]
    again = [world.restore(state), *_steps(world, chosen)]
    busy = built(text)
    episode(busy, 8, actions(2, agents, 15))
    elsewhere = [busy.restore(state), *_steps(busy, chosen)]
    new = built(text)
    in_new = [new.restore(state), *_steps(new, chosen)]
    for other in (again, elsewhere, in_new):
        assert _alike(after, other)
    for each in (world, busy, new):
        each.close()


def _steps(world: World, chosen: Any) -> list[Any]:
    taken: list[Any] = []
    for row in chosen:
        taken.append(world.step(row))
        if taken[-1].terminated:
            break
    return taken


def _alike(ours: list[Any], theirs: list[Any]) -> bool:
    return same(ours[0], theirs[0]) and equal(ours[1:], theirs[1:])


def test_snapshots_keep_what_is_ours() -> None:
    """Tally, checkpoints and the end of an episode are part of a snapshot."""
    world = built("gfootball:empty_goal?rewards=scoring,checkpoints")
    world.reset(2)
    for _ in range(30):
        world.step(np.array([RIGHT]))
    assert world._checkpoints is not None
    collected = list(world._checkpoints.collected)
    assert collected[0] > 0
    state = world.snapshot()
    first = _steps(world, [np.array([RIGHT])] * 70 + [np.array([SHOT])] * 100)[-1]
    over = world.snapshot()
    world.restore(state)
    assert world._checkpoints.collected == collected
    second = _steps(world, [np.array([RIGHT])] * 70 + [np.array([SHOT])] * 100)[-1]
    assert first.facts == second.facts
    assert first.facts["length"] > 30
    world.restore(over)
    with pytest.raises(AssertionError, match="begins with reset"):
        world.step(np.array([0]))
    world.close()


def test_wrong_snapshots() -> None:
    """A snapshot of another world, or half of one, is refused and does not reach the engine."""
    world = built("gfootball:3v1")
    world.reset(0)
    state = world.snapshot()
    other = built("gfootball:3v1?agents=2")
    with pytest.raises(BrokenSimulator, match="with 1 and 0 led players, this world is"):
        other.restore(state)
    with pytest.raises(BrokenSimulator, match="cut short"):
        world.restore(state[:-1])
    with pytest.raises(BrokenSimulator, match="not a snapshot"):
        world.restore(b"HTS")
    other.close()
    world.close()


# --- the clock ---------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", ["ends", "truncates"])
def test_full_time(clock: str) -> None:
    """Rule 7: full time is part of the game, so it is an end; or a truncation where that is asked
    for; never both. The world says which."""
    world = built(f"gfootball:1v1?clock={clock}")
    steps = episode(world, 4, np.zeros((600, 1), np.int64))
    assert len(steps) - 1 == world.traits.time_limit == 501
    assert world.traits.clock_ends == (clock == "ends")
    assert (steps[-1].terminated, steps[-1].truncated) == (clock == "ends", clock == "truncates")
    world.close()


def test_a_goal_at_full_time_is_no_truncation() -> None:
    """An episode that the game ends at its last step is terminated, and not truncated too."""
    world = built("gfootball:empty_goal_close?clock=truncates")
    chosen = [np.array([RIGHT])] * 20 + [np.array([SHOT])] * 60
    steps = episode(world, 1, chosen)
    world._match.duration = len(steps) - 2  # now the goal falls at the last step of the match
    again = episode(world, 1, chosen)
    assert len(again) == len(steps)
    assert (again[-1].terminated, again[-1].truncated) == (True, False)
    world._match.duration -= 1
    earlier = episode(world, 1, chosen)
    assert (earlier[-1].terminated, earlier[-1].truncated) == (False, True)
    world.close()


# --- pictures ----------------------------------------------------------------------------------

OURS = """
import os
import numpy as np
from hts_envs.errors import BrokenSimulator
from hts_envs.football import engine
from hts_envs.registry import make
engine.WIDTH, engine.HEIGHT = 384, 216  # in software, a smaller picture is drawn sooner
os.environ["DISPLAY"] = ":77"  # a display that is not there must not matter
world = make("gfootball:3v1?representation=pixels&agents=2")
assert os.environ["DISPLAY"] == ":77"
seen = [world.reset(5)["observation"], world.step(np.array([5, 0])).observation["observation"]]
assert seen[0].shape == (2, 72, 96, 3) and seen[0].dtype == np.uint8
assert seen[0].std() > 10 and not np.array_equal(seen[0], seen[1])
assert np.array_equal(seen[0][0], seen[0][1])
state = world.snapshot()
after = world.step(np.array([5, 12])).observation["observation"]
assert np.array_equal(world.restore(state)["observation"], seen[1])
assert np.array_equal(world.step(np.array([5, 12])).observation["observation"], after)
assert np.array_equal(world.reset(5)["observation"], seen[0])
try:
    make("gfootball:3v1?representation=pixels")
except BrokenSimulator as error:
    assert "one world with representation=pixels" in str(error)
else:
    raise AssertionError("two renderers in a process")
world.close()
make("gfootball:3v1?representation=pixels").close()
print([int(each[0].astype(int).sum()) for each in (*seen, after)])
"""

THEIRS = """
import numpy as np
from hts_envs.football import reference
from hts_envs.football.engine import Setup
from hts_envs.football.scenarios import SCENARIOS, resolve
theirs = reference.environment(Setup(SCENARIOS[resolve("3v1")], 2, 0, False), 5)
theirs._config["render_resolution_x"], theirs._config["render_resolution_y"] = 384, 216
theirs.render(mode="rgb_array")
wrapper = reference.gfootball("wrappers").PixelsStateWrapper
wrapper.__init__ = lambda self: None
wrapped = wrapper()
wrapped._grayscale, wrapped._channel_dimensions = False, (96, 72)
seen = [theirs.reset(), theirs.step([5, 0])[0], theirs.step([5, 12])[0]]
print([int(wrapped.observation(each)[0].astype(int).sum()) for each in seen])
"""


def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, without a display."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
        env={name: text for name, text in os.environ.items() if name != "DISPLAY"} | variables,
    )


def test_pictures() -> None:
    """Without a display a picture is drawn; it is gfootball's; only one world draws at a time."""
    with ThreadPoolExecutor(2) as beside:
        ours, theirs = beside.map(run, (OURS, THEIRS))
    assert ours.returncode == 0, ours.stderr
    assert theirs.returncode == 0, theirs.stderr
    assert ours.stdout == theirs.stdout.splitlines(keepends=True)[-1]


def test_pictures_need_a_device() -> None:
    """Where EGL has nothing to draw with, that is said before the engine ends the process."""
    script = "from hts_envs.football.display import require_egl; require_egl()"
    done = run(script, __EGL_VENDOR_LIBRARY_FILENAMES="/dev/null")
    assert "MissingPackages: gfootball: representation=pixels finds no EGL device" in done.stderr
    assert run(script).returncode == 0


def test_pictures_need_cv2(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture is shrunk by cv2; without it the command that installs it is said."""
    monkeypatch.setattr(football, "find_spec", lambda _: None)
    with pytest.raises(MissingPackages, match="pip install opencv-python-headless"):
        FAMILY.make(parse("gfootball:3v1?representation=pixels"), Place())
