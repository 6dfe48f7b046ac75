"""A football match as a world."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from hts_envs.contract import Array, Discrete, Observation, Spaces, Step, Tally, Traits, World
from hts_envs.errors import BrokenSimulator
from hts_envs.football import drawing
from hts_envs.football.checkpoints import Checkpoints
from hts_envs.football.engine import ACTIONS, Course, Match, Setup
from hts_envs.football.representations import REPRESENTATIONS
from hts_envs.football.scenarios import Options, Scenario

_MAGIC = b"HTSFOOT1"


class _Header(NamedTuple):
    """What stands before the engine's own bytes in a snapshot."""

    magic: bytes
    scenario: bytes
    left: int
    right: int
    seed: int
    total: float
    shaped: float
    length: int
    score: int
    mode: int
    owner: int
    running: int
    engine: int  # bytes of the engine's state
    picture: int  # bytes of the observation, where it is a picture


_LAYOUT = struct.Struct("<8s48s2iQ2d5i2q")


class FootballWorld(World):
    """One match after another, each decided by nothing but its seed and the actions.

    Full time ends the episode like a goal does (`clock=ends`): the clock is part of the game's
    rules, a goal after full time does not count, so nothing is lost by not looking further.
    With `clock=truncates` it cuts the episode short, unless the game ended at that very step.
    """

    frame_rate = 10.0

    def __init__(self, scenario: Scenario, options: Options) -> None:
        left, right = options.agents, options.right_agents
        self._view = REPRESENTATIONS[options.representation](left, right)
        self._picture = options.representation == "pixels"
        self.spaces = Spaces(self._view.spaces, Discrete(len(ACTIONS)), left + right)
        self._clock_ends = options.clock == "ends"
        self.traits = Traits(
            snapshots=True, time_limit=scenario.duration + 1, clock_ends=self._clock_ends
        )
        self._sides = np.array([1.0] * left + [-1.0] * right, np.float32)
        self._mean = float(self._sides.mean())
        self._agents = left + right
        self._setup = Setup(scenario, left, right, self._picture)
        shaped = options.rewards == "scoring,checkpoints"
        self._checkpoints = Checkpoints(left, right) if shaped else None
        self._tally = Tally()
        self._shaped = 0.0
        self._seed = 0
        self._running = False
        self._match = Match(self._setup)

    def reset(self, seed: int) -> Observation:
        self._seed = seed
        self._tally.start()
        self._shaped = 0.0
        if self._checkpoints is not None:
            self._checkpoints.start()
        self._match.kick_off(seed)
        self._running = True
        return self._view.observe(self._match)

    def step(self, action: Array) -> Step:
        assert self._running, "an episode begins with reset"
        actions = action.tolist()
        assert len(actions) == self._agents, f"one action for each agent, got {actions}"
        ended, full_time, goals = self._match.play(actions)
        reward = np.zeros(self._agents, np.float32)
        if goals:
            reward += self._sides * goals
        self._tally.add(self._mean * goals)
        if self._checkpoints is not None:
            self._checkpoints.add(reward, self._match.info, goals)
            self._shaped += sum(reward.tolist()) / self._agents
        terminated = ended or (full_time and self._clock_ends)
        truncated = full_time and not terminated
        observation = self._view.observe(self._match)
        if not (terminated or truncated):
            return Step(observation, reward, False, False, {})
        self._running = False
        return Step(observation, reward, terminated, truncated, self._facts())

    def _facts(self) -> dict[str, float]:
        facts = self._tally.facts()
        facts["score"] = float(self._match.course.score)
        if self._checkpoints is not None:
            facts["shaped_return"] = self._shaped
        return facts

    def frame(self) -> Array:
        """As the engine has rendered it, where it renders; else drawn, which is always the same."""
        if self._picture:
            return self._match.frame().copy()
        return drawing.drawn(self._match)

    def snapshot(self) -> bytes:
        """The engine's bytes behind a header and the collected checkpoints.

        Two snapshots of one state may differ: the engine writes out padding that it never reads.
        """
        engine = self._match.save()
        course = self._match.course
        picture = self._view.observe(self._match)["observation"].tobytes() if self._picture else b""
        header = _Header(
            _MAGIC,
            self._setup.scenario.full.encode(),
            self._setup.left,
            self._setup.right,
            self._seed,
            self._tally.total,
            self._shaped,
            self._tally.length,
            course.score,
            course.mode,
            course.owner,
            int(self._running),
            len(engine),
            len(picture),
        )
        collected = self._checkpoints.collected if self._checkpoints else [0] * self._agents
        return _LAYOUT.pack(*header) + bytes(collected) + picture + engine

    def restore(self, state: bytes) -> Observation:
        header, rest = self._check(state)
        self._seed = header.seed
        self._tally = Tally(header.total, header.length)
        self._shaped = header.shaped
        self._running = bool(header.running)
        if self._checkpoints is not None:
            self._checkpoints.collected = list(rest[: self._agents])
        engine = rest[self._agents + header.picture :]
        course = Course(header.score, header.mode, header.owner)
        self._match.load(engine, header.seed, course)
        if header.picture:  # drawn again, a picture is not the same to the last bit
            picture = rest[self._agents : self._agents + header.picture]
            shape = (self._agents, *self.spaces.observation["observation"].shape)
            return {"observation": np.frombuffer(picture, np.uint8).reshape(shape).copy()}
        return self._view.observe(self._match)

    def _check(self, state: bytes) -> tuple[_Header, bytes]:
        """Refuse what is not ours before the engine sees it: it would end the process."""
        size = _LAYOUT.size
        if len(state) < size or not state.startswith(_MAGIC):
            raise BrokenSimulator("gfootball: this is not a snapshot of a football match")
        header, rest = _Header(*_LAYOUT.unpack_from(state)), state[size:]
        name = header.scenario.rstrip(b"\0").decode()
        own = (self._setup.scenario.full, self._setup.left, self._setup.right)
        if (name, header.left, header.right) != own:
            raise BrokenSimulator(
                f"gfootball: the snapshot is of {name} with {header.left} and {header.right} led "
                f"players, this world is {own[0]} with {own[1]} and {own[2]}"
            )
        if len(rest) != self._agents + header.picture + header.engine:
            raise BrokenSimulator("gfootball: the snapshot is cut short")
        return header, rest

    def close(self) -> None:
        self._running = False
        self._match.close()
