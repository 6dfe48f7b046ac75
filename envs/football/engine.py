"""One match of the football engine, with the rules of gfootball's `FootballEnvCore`.

The engine is C++; gfootball's Python classes around it copy every observation several times,
keep a trace of the last hundred steps and import gym. This module drives the engine itself and
keeps their rules to the letter:

* a step goes on until the ball is in play again, so pauses of the game cost no decision;
* whoever delays a set piece for 20 steps plays a short pass, and is then steered by the engine;
* the scenario says whether a goal, the ball out of play or a lost ball ends the episode.

The tests hold it to `FootballEnv` bit by bit, state of the engine included.

An engine takes 0.3 s and 60 MB to start and is never freed by the library, so a closed match gives
it back and the next one takes it over. A reset leaves nothing of the match before.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from hts_envs.contract import Array
from hts_envs.errors import BrokenSimulator, MissingPackages
from hts_envs.football.display import off_screen, require_egl
from hts_envs.football.scenarios import Scenario
from hts_envs.randomness import fold

WIDTH, HEIGHT = 1280, 720
"""Of the rendered picture."""

ACTIONS = (
    *("idle", "left", "top_left", "top", "top_right", "right", "bottom_right", "bottom"),
    *("bottom_left", "long_pass", "high_pass", "short_pass", "shot", "sprint"),
    *("release_direction", "release_sprint", "sliding", "dribble", "release_dribble"),
)
"""gfootball's default action set, in its order."""

STICKY = (*ACTIONS[1:9], "sprint", "dribble")
"""Actions that stay on until they are released, in the order in which gfootball reports them."""

_OPPOSITE = dict(zip(ACTIONS[1:9], ACTIONS[5:9] + ACTIONS[1:5], strict=True))

_LIBRARIES = (
    "libsdl2-2.0-0 libsdl2-image-2.0-0 libsdl2-ttf-2.0-0 libsdl2-gfx-1.0-0 libegl1 libgl1 "
    "libboost-python-dev libboost-thread-dev libboost-filesystem-dev libpython3-dev"
)

_NORMAL = 0  # the game mode in which no set piece is waited for


class Draw(NamedTuple):
    """All that chance decides before a match: the three values that make the engine repeatable."""

    engine_seed: int
    reverse: bool  # which team the engine thinks for first
    episode: int  # its parity says which team kicks off, where the scenario leaves that open


def draw(seed: int) -> Draw:
    """What the seed of an episode decides."""
    return Draw(fold(seed, 0) % 2**31, bool(fold(seed, 1) & 1), fold(seed, 2) & 1)


class Setup(NamedTuple):
    """What a match is made of, apart from chance."""

    scenario: Scenario
    left: int
    right: int
    render: bool


class Outcome(NamedTuple):
    """What a step did: did the rules end the episode, did the clock, goals for the left team."""

    ended: bool
    full_time: bool
    goals: int


@dataclass
class Course:
    """What the rules remember of a running episode from one step to the next."""

    score: int = 0
    mode: int = -1
    owner: int = -1


class Match:
    """The engine, set up for one scenario; `info` is what it said last."""

    def __init__(self, setup: Setup) -> None:
        self._library = library()
        self._setup = setup
        self._sides = _sides(self._library)
        self._special = self._library.e_BackendAction
        self._core = _take(self._library, setup.render)
        self._release = weakref.finalize(self, _give_back, self._core, setup.render)
        self._seed: int | None = None  # of the match that the engine holds
        self._rules = (False, False, False)
        self.duration = setup.scenario.duration
        self.info: Any = None
        self.sizes = (0, 0)  # players of each team
        self.course = Course()

    def kick_off(self, seed: int) -> None:
        """Begin the episode of this seed."""
        core = self._core
        config = _config(self._library, self._setup, draw(seed))
        core.state = self._library.GameState.game_running
        core.reset(config, False)
        self._seed = seed
        self._rules = (
            config.end_episode_on_score,
            config.end_episode_on_out_of_play,
            config.end_episode_on_possession_change,
        )
        self.course = Course()
        self.info = core.get_info()
        while not self.info.is_in_play:
            core.step()
            self.info = core.get_info()
        self.sizes = (len(self.info.left_team), len(self.info.right_team))

    def play(self, actions: Sequence[int]) -> Outcome:
        """One action for each led player, the left team's first."""
        core = self._core
        waiting = core.waiting_for_game_count
        left = self._setup.left
        for agent, action in enumerate(actions):
            is_left = agent < left
            index = agent if is_left else agent - left
            backend = self._sides[is_left][action]  # a KeyError: there is no such action
            if waiting >= 20:
                backend = self._hurry(waiting, is_left, index)
            core.perform_action(backend, is_left, index)
        core.step()
        info = core.get_info()
        while not info.is_in_play:
            core.step()
            info = core.get_info()
        self.info = info
        return self._judge(info, waiting)

    def _hurry(self, waiting: int, is_left: bool, index: int) -> Any:
        """What a player does who has kept the game waiting for `waiting` steps."""
        if waiting == 20:
            return self._special.short_pass
        info = self.info
        controllers = info.left_controllers if is_left else info.right_controllers
        has_ball = (
            info.ball_owned_team == (0 if is_left else 1)
            and info.ball_owned_player == controllers[index].controlled_player
        )
        if not has_ball:
            return self._special.idle
        return self._special.left if (waiting < 30) != is_left else self._special.right

    def _judge(self, info: Any, waiting: int) -> Outcome:
        """Apply the rules of the scenario to what the engine says."""
        course = self.course
        on_score, on_out_of_play, on_possession = self._rules
        left, right = info.left_goals, info.right_goals
        mode, owner = int(info.game_mode), info.ball_owned_team
        ended = on_score and (left > 0 or right > 0)
        if on_out_of_play and mode != _NORMAL and course.mode == _NORMAL:
            ended = True
        if owner != -1:
            if on_possession and course.owner not in (-1, owner):
                ended = True
            course.owner = owner
        course.mode = mode
        goals = left - right - course.score
        course.score = left - right
        self._core.waiting_for_game_count = waiting + 1 if mode != _NORMAL else 0
        full_time = info.step >= self.duration
        if ended or full_time:
            self._core.state = self._library.GameState.game_done
        return Outcome(ended, full_time, goals)

    def sticky(self, is_left: bool, index: int) -> list[bool]:
        """Which of `STICKY` are on for a player, as the engine's own side of the pitch sees it."""
        actions = self._special
        state = self._core.sticky_action_state
        return [state(getattr(actions, name), is_left, index) for name in STICKY]

    def frame(self) -> Array:
        """The rendered picture: (HEIGHT, WIDTH, 3), upside up."""
        flat = np.frombuffer(self._core.get_frame(), np.uint8)
        return flat.reshape(HEIGHT, WIDTH, 3)[::-1]

    def save(self) -> bytes:
        """The state of the engine."""
        state: bytes = self._core.get_state(b"")
        return state

    def load(self, state: bytes, seed: int, course: Course) -> None:
        """Return to a state of the episode of this seed.

        The engine leaves two things out of its states. What the players are is the match's, so it
        has to be the match of that seed. And the last three images that the players have of the
        game are written without the side they were made for, so there have to be three in the
        engine whose side is right; a step in play makes one.
        """
        if self._seed != seed:
            self.kick_off(seed)
        made = 0
        while made < 4:  # the first may have come too late in its step
            self._core.step()
            made += self._core.get_info().is_in_play
        self._core.set_state(state)
        self.course = course
        self.info = self._core.get_info()
        if self._setup.render:
            self._core.render(False)  # the first picture is taken before the camera has moved
            self._core.render(True)

    def close(self) -> None:
        """Give the engine back."""
        self._release()


@functools.cache
def library() -> Any:
    """The engine's library; MissingPackages says what it lacks where it cannot be loaded."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it advises to compile it, whatever the reason is
    try:
        return importlib.import_module("gfootball_engine")
    except ImportError as error:
        raise MissingPackages(
            f"gfootball: its engine is installed, but cannot be loaded ({error}). "
            f"Install what it needs with: sudo apt-get install -y {_LIBRARIES}"
        ) from error
    finally:
        logging.disable(level)


@functools.cache
def _sides(engine: Any) -> dict[bool, dict[int, Any]]:
    """The engine's name of each action for the left team, and for the right, mirrored."""
    backend = engine.e_BackendAction
    return {
        True: {n: getattr(backend, name) for n, name in enumerate(ACTIONS)},
        False: {n: getattr(backend, _OPPOSITE.get(name, name)) for n, name in enumerate(ACTIONS)},
    }


@functools.cache
def script(full: str) -> ModuleType:
    """The scenario file of this name, loaded without importing gfootball and with it gym."""
    package = "_hts_gfootball_scenarios"
    if package not in sys.modules:
        found = importlib.util.find_spec("gfootball")
        assert found is not None, "the family checks its packages before it makes a world"
        folder = os.path.join(*(found.submodule_search_locations or ())[:1], "scenarios")
        spec = importlib.util.spec_from_file_location(
            package, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules[package] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[package])
    return importlib.import_module(f"{package}.{full}")


class Builder:
    """What a scenario file talks to; the names are gfootball's."""

    def __init__(self, engine: Any, episode: int) -> None:
        self._engine = engine
        self._episode = episode
        self._config = engine.ScenarioConfig.make()
        self._team = self._config.left_team

    def config(self) -> Any:
        return self._config

    def SetTeam(self, team: Any) -> None:  # noqa: N802
        left = team == self._engine.e_Team.e_Left
        self._team = self._config.left_team if left else self._config.right_team

    def AddPlayer(  # noqa: N802
        self, x: float, y: float, role: Any, lazy: bool = False, controllable: bool = True
    ) -> None:
        self._team.append(self._engine.FormationEntry(x, y, role, lazy, controllable))

    def SetBallPosition(self, x: float, y: float) -> None:  # noqa: N802
        self._config.ball_position[0] = x
        self._config.ball_position[1] = y

    def EpisodeNumber(self) -> int:  # noqa: N802
        return self._episode


def _config(engine: Any, setup: Setup, chance: Draw) -> Any:
    """What the engine is told about a match."""
    builder = Builder(engine, chance.episode)
    script(setup.scenario.full).build_scenario(builder)
    config = builder.config()
    config.real_time = False
    config.left_agents = setup.left
    config.right_agents = setup.right
    config.game_engine_random_seed = chance.engine_seed
    config.reverse_team_processing = chance.reverse
    return config


_idle: list[Any] = []  # engines that no match uses
_idle_renderer: list[Any] = []
_renderer_exists = False
_lock = threading.RLock()  # a forgotten match may be collected, and give back, while it is held


def _take(engine: Any, render: bool) -> Any:
    """An engine that has been started, new only if none is idle."""
    global _renderer_exists
    with _lock:
        pool = _idle_renderer if render else _idle
        if pool:
            return pool.pop()
        if render and _renderer_exists:
            raise BrokenSimulator(
                "gfootball: a process can hold one world with representation=pixels, "
                "and this one has another already; give each its own executor"
            )
        if render:
            require_egl()
            _renderer_exists = True
    core = engine.GameEnv()
    core.game_config.physics_steps_per_frame = 10
    core.game_config.render_resolution_x = WIDTH
    core.game_config.render_resolution_y = HEIGHT
    core.game_config.render = render
    with off_screen() if render else contextlib.nullcontext():
        core.start_game()
    return core


def _give_back(core: Any, render: bool) -> None:
    with _lock:
        (_idle_renderer if render else _idle).append(core)
