"""One Atari game behind the contract of a world.

The problem: an episode must follow from its seed alone and a snapshot must go on bit by bit, but

* `reset_game` leaves the console's memory as the game before left it, and a dozen games read it;
* loading the cartridge again, which does clear it, takes 65 ms (as long as 200 steps);
* ALE's state lacks the action that a sticky action repeats, and the picture in the making.

So the console is saved once, right after its cartridge is loaded. A game begins with that state
restored, the game reset (4 ms) and its no-ops played; it is bit-equal to a freshly loaded cartridge
in all games. What a number of no-ops leads to is the same each time, so it is saved, too, and
restored by later games (0.1 ms) wherever that is exact.
Sticky actions are drawn here, from the episode's key and the frame's number, with ALE's own
switched off: the rule is ALE's (each frame, with probability p, the action of the frame before is
held on), but nothing random lives in the emulator.

A frame need not draw the whole screen, and what stood there before is in no state of ALE's. The
first frame after a restore may therefore differ: there are snapshots, and beginnings are restored,
only where a step shows no picture of its first frame. A beginning without no-ops is always played:
in two games (Qbert, Tetris) more frames than the first show what stood there before.
"""

from __future__ import annotations

import functools
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import ale_py
import cv2
import numpy as np
from ale_py import roms

from hts_envs.atari.games import GAMES
from hts_envs.atari.rules import Rules
from hts_envs.contract import (
    Array,
    Box,
    Discrete,
    Observation,
    Spaces,
    Step,
    Tally,
    Traits,
    World,
)
from hts_envs.errors import BrokenSimulator
from hts_envs.randomness import fold

NOOP = 0
_NOOPS, _STICKY = 1, 2  # purposes of an episode's randomness
_RAW_SEED = 0  # of ALE's own generator, which nothing here reads

_BLANKING = ("tic_tac_toe_3d",)  # stops drawing for many frames while it thinks

_HEADER = struct.Struct("<4sIQIBIBdIdI")
_MAGIC = b"ATR1"


@dataclass
class _Game:
    """What a game in progress is, besides the emulator's state."""

    key: int = 0
    start: int = 0  # frames before the first observation
    held: int = NOOP
    lives: int = 0
    life_lost: bool = False
    over: bool = True


@dataclass(frozen=True)
class _Start:
    """A game behind its no-ops: the emulator, and what is seen of it."""

    emulator: Any
    frame: int
    lives: int
    picture: Array


@functools.cache
def _starts(_rom: str, _rules: Rules) -> dict[int, _Start]:
    """What games of this process have begun with, by the number of no-ops."""
    return {}


class AtariWorld(World):
    """One replica of one game; `description` says how it is played."""

    def __init__(self, name: str, rules: Rules) -> None:
        self._rom, self._rules = GAMES[name], rules
        self._ale, self._loaded = _load(self._rom)
        full = rules.full_actions
        legal = self._ale.getLegalActionSet() if full else self._ale.getMinimalActionSet()
        self._actions = [action.value for action in legal]
        rows, columns = self._ale.getScreenDims()
        self._last, self._earlier = np.empty((2, rows, columns), np.uint8)
        self._seen = self._last[: rows - rules.crop]
        self._threshold = int(rules.sticky * 2**64)
        self._identity = zlib.crc32(f"{self._rom} {rules}".encode())
        self._game = _Game()
        self._is_unseen = False  # a beginning that was restored, which is not on the screen
        self._tally, self._whole = Tally(), Tally()  # of the episode, and of the game it is in
        self._picture: Observation = {}
        self.description = rules.describe(name, len(self._actions))
        self.spaces = Spaces(
            {"observation": Box((*rules.size, 1), "uint8", 0, 255)}, Discrete(len(self._actions))
        )
        self.frame_rate = 60.0 / rules.skip
        lives_end = rules.life_loss == "terminates"
        limit = -(-rules.frame_limit // rules.skip) if rules.frame_limit else None
        self.traits = Traits(
            snapshots=self._rom not in _BLANKING and rules.skip > 2,
            time_limit=None if lives_end else limit,
            frame_skip=rules.skip,
            reseeds=not lives_end,  # the episode after a lost life is the same game
        )

    def reset(self, seed: int) -> Observation:
        if self._game.life_lost and not self._game.over:
            self._game.life_lost = False
            self._tally.start()
            return _copied(self._picture)
        self._begin(fold(seed))
        return _copied(self._picture)

    def step(self, action: Array) -> Step:
        game = self._game
        assert not game.over, "a game that is over is reset before it is stepped"
        assert not game.life_lost, "an episode that a lost life ended is reset before it is stepped"
        reward = self._play(self._actions[int(action[0])])
        self._is_unseen = False
        self._tally.add(reward)
        self._whole.add(reward)
        lives, frames = self._ale.lives(), self._frames()
        game.over = self._ale.game_over(with_truncation=False)
        cut = 0 < self._rules.frame_limit <= frames and not game.over
        fewer = self._rules.life_loss == "terminates" and lives < game.lives
        game.life_lost = fewer and not game.over and not cut
        game.lives = lives
        terminated = game.over or game.life_lost
        facts: dict[str, float] = {}
        if terminated or cut:
            game.over = not game.life_lost
            facts = self._tally.facts() | {"lives": float(lives), "frames": float(frames)}
            if self._rules.life_loss == "terminates":
                facts |= self._game_facts()
        self._picture = {"observation": self._shrink()}
        rewards = np.array([reward], np.float32)
        return Step(_copied(self._picture), rewards, terminated, cut, facts)

    def frame(self) -> Array:
        if self._is_unseen:
            self._play_start(self._noops(self._game.key))
        return np.asarray(self._ale.getScreenRGB())

    def snapshot(self) -> bytes:
        if not self.traits.snapshots:
            return super().snapshot()
        game, tally, whole = self._game, self._tally, self._whole
        flags = game.life_lost | game.over << 1
        header = _HEADER.pack(
            *(_MAGIC, self._identity, game.key, game.start, game.held, game.lives, flags),
            *(tally.total, tally.length, whole.total, whole.length),
        )
        picture = self._picture["observation"].tobytes()
        emulator: bytes = self._ale.cloneState(include_rng=True).serialize()
        return header + picture + emulator

    def restore(self, state: bytes) -> Observation:
        if not self.traits.snapshots:
            return super().restore(state)
        height, width = self._rules.size
        split = _HEADER.size + height * width
        if len(state) <= split:
            raise BrokenSimulator("atari: this is no snapshot of an Atari world")
        magic, identity, *fields = _HEADER.unpack_from(state)
        if magic != _MAGIC or identity != self._identity:
            raise BrokenSimulator("atari: this snapshot was taken of another game or preset")
        key, start, held, lives, flags = fields[:5]
        self._tally, self._whole = Tally(*fields[5:7]), Tally(*fields[7:9])
        if self._whole.length == 0:
            self._begin(key)
            return _copied(self._picture)
        self._ale.restoreState(_emulator_state(state[split:]))
        self._is_unseen = False
        self._game = _Game(key, start, held, lives, bool(flags & 1), bool(flags & 2))
        pixels = np.frombuffer(state, np.uint8, height * width, _HEADER.size)
        self._picture = {"observation": pixels.reshape(1, height, width, 1).copy()}
        return _copied(self._picture)

    def _game_facts(self) -> dict[str, float]:
        """Where an episode is one life: the game's own return, which only a whole game has."""
        if not self._game.over:
            return {"game_over": 0.0}
        whole = self._whole
        return {"game_over": 1.0, "game_return": whole.total, "game_length": float(whole.length)}

    def _begin(self, key: int) -> None:
        """A game's first moment: all that follows from the key."""
        noops = self._noops(key)
        known = _starts(self._rom, self._rules) if noops and self.traits.snapshots else {}
        start = known.get(noops)
        if start is None:
            start = known[noops] = self._play_start(noops)
        else:
            self._ale.restoreState(start.emulator)
            self._is_unseen = True
        self._game = _Game(key, start.frame, NOOP, start.lives, over=False)
        self._tally.start()
        self._whole.start()
        self._picture = {"observation": start.picture}

    def _noops(self, key: int) -> int:
        return 1 + fold(key, _NOOPS) % self._rules.noops if self._rules.noops else 0

    def _play_start(self, noops: int) -> _Start:
        """Switch the console on and play the no-ops."""
        self._switch_on()
        for _ in range(noops):
            self._ale.act(NOOP)
            if self._ale.game_over(with_truncation=False):
                self._switch_on()
        self._is_unseen = False
        self._ale.getScreenGrayscale(self._last)
        state = self._ale.cloneState(include_rng=True)
        return _Start(state, self._ale.getEpisodeFrameNumber(), self._ale.lives(), self._shrink())

    def _switch_on(self) -> None:
        self._ale.restoreState(self._loaded)
        self._ale.reset_game()

    def _play(self, wanted: int) -> float:
        """Hold an action for the frames of a step; leaves the brighter of the last two on screen.

        After the game's end the emulator stands still, so the frames that are left change nothing.
        """
        ale, rules, reward = self._ale, self._rules, 0
        count, frames = rules.skip, self._frames()
        if rules.frame_limit:
            count = min(count, rules.frame_limit - frames)
        for frame in range(count):
            if self._threshold and fold(self._game.key, _STICKY, frames + frame) < self._threshold:
                reward += ale.act(self._game.held)
            else:
                self._game.held = wanted
                reward += ale.act(wanted)
            if frame == count - 2:
                ale.getScreenGrayscale(self._earlier)
        ale.getScreenGrayscale(self._last)
        if count > 1:
            np.maximum(self._last, self._earlier, out=self._last)
        return float(reward)

    def _frames(self) -> int:
        """Frames since the first observation."""
        return int(self._ale.getEpisodeFrameNumber()) - self._game.start

    def _shrink(self) -> Array:
        height, width = self._rules.size
        out = np.empty((1, height, width, 1), np.uint8)
        small = out.reshape(height, width)
        cv2.resize(self._seen, (width, height), dst=small, interpolation=cv2.INTER_AREA)
        return out


def _copied(picture: Observation) -> Observation:
    """The caller's own copy: the world keeps its picture for resets and snapshots."""
    return {name: array.copy() for name, array in picture.items()}


def _load(rom: str) -> tuple[Any, Any]:
    """An emulator with this cartridge, and its state before any game."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
    if rom not in roms.get_all_rom_ids():
        raise BrokenSimulator(f"atari: ale-py {ale_py.__version__} has no cartridge {rom!r}")
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", _RAW_SEED)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path(rom))
    skip, averaging = ale.getInt("frame_skip"), ale.getBool("color_averaging")
    if skip != 1 or averaging:
        raise BrokenSimulator(
            f"atari: the emulator skips frames itself (frame_skip {skip}, color_averaging "
            f"{averaging}); the world does, so together they would skip twice"
        )
    return ale, ale.cloneState(include_rng=True)


def _emulator_state(data: bytes) -> Any:
    """ALE's own bytes as its state; `__setstate__` is the only reader ALE offers for them."""
    state: Any = ale_py.ALEState.__new__(ale_py.ALEState)
    state.__setstate__(data)
    return state
