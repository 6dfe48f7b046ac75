"""The Atari worlds: what an episode follows from, how it ends, and what a snapshot holds."""

from __future__ import annotations

from typing import Any

import ale_py
import numpy as np
import pytest
from ale_py import roms

from hts_envs import registry
from hts_envs.atari.games import GAMES, TWO_PLAYERS
from hts_envs.atari.world import AtariWorld
from hts_envs.contract import Box, Discrete, Step
from hts_envs.errors import BadName, BadOption, BrokenSimulator
from hts_envs.randomness import fold


def world(name: str) -> AtariWorld:
    made = registry.make(f"atari:{name}")
    assert isinstance(made, AtariWorld)
    return made


def chosen(made: AtariWorld, number: int) -> Any:
    """The same pseudo-random action whenever it is asked for."""
    assert isinstance(made.spaces.action, Discrete)
    return np.array([fold(7, number) % made.spaces.action.n])


def play(made: AtariWorld, steps: int, first: int = 0) -> list[Any]:
    """What `steps` steps returned, or fewer where the episode ended."""
    taken = []
    for number in range(first, first + steps):
        step = made.step(chosen(made, number))
        taken.append(seen(step))
        if step.terminated or step.truncated:
            break
    return taken


def seen(step: Step) -> Any:
    return (
        step.observation["observation"].tobytes(),
        *(step.reward.tobytes(), step.terminated, step.truncated, dict(step.facts)),
    )


def until_end(made: AtariWorld, action: int, limit: int = 3000) -> Step:
    for _ in range(limit):
        step = made.step(np.array([action]))
        if step.terminated or step.truncated:
            return step
    raise AssertionError(f"no end in {limit} steps")


def until_lost(made: AtariWorld) -> Step:
    """Fire whenever a ball is out, so that Breakout's lives run down."""
    return until_end(made, 1)


def test_the_games_are_ales_own() -> None:
    """The list that checks names without ale-py is exactly ale-py's, two-player games aside."""
    assert set(GAMES.values()) == set(roms.get_all_rom_ids()) - set(TWO_PLAYERS)
    assert list(GAMES) == registry.family("atari").names()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("", "Breakout"),
        ("breakout", "Breakout"),
        ("ms_pacman", "MsPacman"),
        ("KungFuMaster", "KungFuMaster"),
        ("UPNDOWN", "UpNDown"),
        ("tic_tac_toe_3d", "TicTacToe3D"),
    ],
)
def test_a_game_is_known_by_any_spelling(typed: str, meant: str) -> None:
    """Capitals and underscores of a name do not matter."""
    assert registry.parse(f"atari:{typed}").name == meant


def test_a_mistyped_game_gets_the_nearest() -> None:
    """An unknown game is refused with the nearest one, a two-player game with the reason."""
    with pytest.raises(BadName, match=r"no game 'Braekout' \(did you mean 'Breakout'\?\)"):
        registry.parse("atari:Braekout")
    with pytest.raises(BadName, match="two players"):
        registry.parse("atari:MazeCraze")


def test_presets_are_the_papers_protocols() -> None:
    """Rule 13: each says what its paper says, frame skip, sticky actions and no-ops included, in
    the one line that a run and hts-check print."""
    assert world("Breakout").description == (
        "Breakout: 84x84 grey, 4 frames a step (emulator 1 x world 4), the brighter of the last "
        "two, sticky actions 0, 1 to 30 no-ops at the start, 4 actions, 108,000 frames at most, a "
        "lost life ends nothing"
    )
    cleanba = world("Breakout?preset=cleanba").description
    assert "sticky actions 0.25, no no-ops, 18 actions, 108,000 frames" in cleanba
    accelerated = world("Breakout?preset=accelerated")
    assert accelerated.spaces.observation["observation"] == Box((104, 80, 1), "uint8", 0, 255)
    assert world("Breakout?skip=1&frame_limit=0").description == (
        "Breakout: 84x84 grey, 1 frame a step (emulator 1 x world 1), sticky actions 0, 1 to 30 "
        "no-ops at the start, 4 actions, no frame limit, a lost life ends nothing"
    )


def test_equal_rules_have_one_canonical_name() -> None:
    """A preset and the same rules spelled out are one world, and their name parses to itself."""
    preset = registry.parse("atari:Pong?preset=cleanba")
    spelled = registry.parse("atari:pong?sticky=0.25&noops=0&full_actions=true")
    changed = registry.parse("atari:Pong?preset=cleanba&skip=5")
    assert preset.canonical() == spelled.canonical()
    assert "preset=cleanba" in preset.canonical()
    assert "skip=5" in changed.canonical()
    assert "preset=hts" in changed.canonical()
    for spec in (preset, changed):
        assert registry.parse(spec.canonical()) == spec


@pytest.mark.parametrize("size", ["84", "0x84", "84x84x1", "84x300"])
def test_a_size_is_height_and_width(size: str) -> None:
    """Any other size is refused with a sentence."""
    with pytest.raises(BadOption, match="height x width"):
        registry.parse(f"atari:Pong?size={size}")


@pytest.mark.parametrize("name", ["Breakout?sticky=0.25", "BeamRider", "ElevatorAction"])
def test_an_episode_follows_from_its_seed_alone(name: str) -> None:
    """A world with a past plays the episode a new one plays, in games that leave memory behind."""
    fresh, used = world(name), world(name)
    used.reset(3)
    play(used, 200, first=1000)
    starts = [made.reset(11)["observation"].tobytes() for made in (fresh, used)]
    assert starts[0] == starts[1]
    assert play(fresh, 120) == play(used, 120)


@pytest.mark.parametrize("name", ["Breakout", "Qbert", "Tetris", "ElevatorAction"])
def test_a_beginning_that_is_restored_is_the_one_that_was_played(name: str) -> None:
    """The second game of equal no-ops is bit-equal to the first, pictures of its screen included,
    whatever was on that screen before."""
    played, restored = world(name), world(name)
    seed = next(seed for seed in range(1000) if played._noops(fold(seed)) == 7)
    first, screen = played.reset(seed), played.frame().tobytes()
    shown, after = play(played, 20), played.frame().tobytes()
    restored.reset(seed + 1)
    play(restored, 30)
    assert restored.reset(seed)["observation"].tobytes() == first["observation"].tobytes()
    assert restored._is_unseen, "it was restored, and not played"
    assert play(restored, 20) == shown
    assert restored.frame().tobytes() == after
    restored.reset(seed)
    assert restored.frame().tobytes() == screen, "who looks at its screen sees the beginning"
    assert play(restored, 20) == shown


def test_other_seeds_start_otherwise() -> None:
    """No-ops are drawn from the seed: within 1 to 30, and not always the same number."""
    made = world("SpaceInvaders?frame_limit=4")
    starts = {}
    for seed in range(60):
        made.reset(seed)
        starts[seed] = made._game.start
    assert min(starts.values()) >= 1
    assert max(starts.values()) <= 30
    assert len(set(starts.values())) > 20


def test_sticky_actions_follow_the_seed() -> None:
    """The seed decides what happens to the same actions where they are sticky, and only there."""
    for sticky, differs in (("0.25", True), ("0", False)):
        made = world(f"Pong?noops=0&sticky={sticky}")
        made.reset(1)
        first = play(made, 60)
        made.reset(2)
        assert (play(made, 60) != first) == differs
        made.reset(1)
        assert play(made, 60) == first


def test_sticky_actions_hold_a_quarter_of_the_frames() -> None:
    """A frame keeps the action before as often as asked, and ALE adds no stickiness of its own."""
    made = world("Pong?sticky=0.25&noops=0&skip=1&full_actions=true")
    made.reset(5)
    held = 0
    for number in range(2000):
        wanted = number % 18
        made.step(np.array([wanted]))
        held += made._game.held != made._actions[wanted]
    assert 420 < held < 580
    assert made._ale.getFloat("repeat_action_probability") == 0.0


def test_frames_are_those_of_ales_own_pipeline() -> None:
    """Pictures and rewards are bit-equal to ALE's C++ preprocessing, an independent one."""
    made = world("Breakout?noops=0")
    vector = ale_py.ALEVectorInterface(
        roms.get_rom_path("breakout"),
        1,
        noop_max=0,
        use_fire_reset=False,
        reward_clipping=False,
        stack_num=1,
    )
    first, _ = vector.reset([0], [0])
    assert np.array_equal(made.reset(0)["observation"][0, :, :, 0], first[0, 0])
    for number in range(60):
        action = chosen(made, number)
        step = made.step(action)
        vector.send([int(action[0])], [1.0])
        picture, reward, *_ = vector.recv()
        assert np.array_equal(step.observation["observation"][0, :, :, 0], picture[0, 0])
        assert step.reward[0] == reward[0]


def test_the_accelerated_picture_halves_what_is_left_of_the_screen() -> None:
    """104x80 is the mean of 2x2 pixels after the two bottom rows are cut off."""
    made = world("Seaquest?preset=accelerated&skip=1&noops=0")
    made.reset(0)
    step = made.step(np.array([0]))
    raw = made._ale.getScreenGrayscale()[:-2].astype(float)
    means = raw.reshape(104, 2, 80, 2).mean(axis=(1, 3))
    assert np.abs(step.observation["observation"][0, :, :, 0] - means).max() <= 0.5


def test_a_game_ends_with_its_raw_return() -> None:
    """Game over terminates, and the facts hold the whole game's return, length, lives, frames."""
    made = world("SpaceInvaders?noops=0")
    made.reset(0)
    total, length = 0.0, 0
    while True:
        step = made.step(chosen(made, length))
        total, length = total + float(step.reward[0]), length + 1
        if step.terminated:
            break
        assert step.facts == {}
    assert not step.truncated
    assert step.facts["return"] == total > 0
    assert step.facts["length"] == length
    assert step.facts["lives"] == 0
    assert length * 4 - 3 <= step.facts["frames"] <= length * 4


def test_the_frame_limit_truncates_at_its_frame() -> None:
    """The clock cuts a game at exactly its frame, which need not be a whole step, and only cuts."""
    made = world("Pong?frame_limit=42")
    assert made.traits.time_limit == 11
    made.reset(4)
    step = until_end(made, 0)
    assert (step.terminated, step.truncated) == (False, True)
    assert step.facts["length"] == 11
    assert step.facts["frames"] == 42


def test_terminated_wins_over_the_frame_limit() -> None:
    """A game that is over in the very frame of its limit has ended, not been cut."""
    free = world("Breakout?noops=0")
    free.reset(0)
    frames = int(until_lost(free).facts["frames"])
    for limit, ends in ((frames, (True, False)), (frames - 1, (False, True))):
        made = world(f"Breakout?noops=0&frame_limit={limit}")
        made.reset(0)
        step = until_lost(made)
        assert (step.terminated, step.truncated) == ends


def test_a_lost_life_ends_nothing_by_default() -> None:
    """Breakout's five lives are one episode."""
    made = world("Breakout")
    made.reset(0)
    assert made.traits.reseeds
    assert until_lost(made).facts["lives"] == 0


def test_a_lost_life_can_end_the_episode_but_not_the_game() -> None:
    """Episodes end at each life, the reset plays the same game on, only its end has its return."""
    whole, parts = world("MsPacman"), world("MsPacman?life_loss=terminates")
    assert not parts.traits.reseeds
    assert parts.traits.time_limit is None
    whole.reset(0)
    expected = until_end(whole, 1)
    parts.reset(0)
    total, length = 0.0, 0.0
    for lives in (2, 1):
        step = until_end(parts, 1)
        assert (step.terminated, step.truncated) == (True, False)
        assert step.facts["lives"] == lives
        assert step.facts["game_over"] == 0
        assert "game_return" not in step.facts
        total, length = total + step.facts["return"], length + step.facts["length"]
        again = parts.reset(100 + lives)["observation"]
        assert np.array_equal(again, step.observation["observation"])
    last = until_end(parts, 1)
    assert (last.facts["lives"], last.facts["game_over"]) == (0, 1)
    assert last.facts["game_return"] == expected.facts["return"] == total + last.facts["return"]
    assert last.facts["game_length"] == expected.facts["length"] == length + last.facts["length"]
    assert total > 0
    parts.reset(0)
    assert parts._game.lives == 3


def test_a_reset_within_a_life_begins_a_new_game() -> None:
    """Only the reset that follows a lost life plays on."""
    made = world("Breakout?life_loss=terminates")
    start = made.reset(0)["observation"]
    play(made, 20)
    assert np.array_equal(made.reset(0)["observation"], start)


def test_an_ended_episode_is_not_stepped() -> None:
    """A caller that forgets to reset is told so."""
    made = world("Pong?frame_limit=4")
    with pytest.raises(AssertionError, match="reset before"):
        made.step(np.array([0]))
    made.reset(0)
    until_end(made, 0)
    with pytest.raises(AssertionError, match="reset before"):
        made.step(np.array([0]))


@pytest.mark.parametrize(
    "name", ["Breakout?sticky=0.5", "Qbert?noops=0", "Breakout?preset=cleanba"]
)
def test_what_follows_a_snapshot_is_bit_equal(name: str) -> None:
    """A world with another past goes on from a snapshot as the first did, facts included."""
    first, second = world(name), world(name)
    first.reset(1)
    second.reset(2)
    for number in range(6):
        play(second, 30, first=500 + number)
        state = first.snapshot()
        restored = second.restore(state)["observation"]
        assert np.array_equal(restored, first._picture["observation"])
        assert second.snapshot() == state
        moment = 40 * number
        assert play(first, 13, moment) == play(second, 13, moment)


def test_a_snapshot_keeps_return_and_length() -> None:
    """The facts at the end of a restored game are those of the whole game."""
    first, second = world("Breakout"), world("Breakout")
    first.reset(1)
    second.reset(2)
    play(first, 60)
    second.restore(first.snapshot())
    assert play(first, 3000, 60)[-1] == play(second, 3000, 60)[-1]


def test_a_snapshot_of_a_lost_life_plays_on() -> None:
    """The pending life loss is part of the state."""
    name = "Breakout?life_loss=terminates"
    first, second = world(name), world(name)
    first.reset(1)
    second.reset(2)
    until_lost(first)
    second.restore(first.snapshot())
    assert np.array_equal(first.reset(5)["observation"], second.reset(6)["observation"])
    assert second._game.lives == 4
    for _ in range(3):
        assert until_lost(first).facts == until_lost(second).facts
        first.reset(0)
        second.reset(0)
    assert until_lost(first).facts == until_lost(second).facts


def test_a_foreign_snapshot_is_refused() -> None:
    """Bytes of another game, of another preset, or of nothing at all, are told apart."""
    made, other = world("Pong"), world("Pong?sticky=0.25")
    made.reset(0)
    other.reset(0)
    with pytest.raises(BrokenSimulator, match="another game or preset"):
        made.restore(other.snapshot())
    with pytest.raises(BrokenSimulator, match="no snapshot"):
        made.restore(b"nothing")


@pytest.mark.parametrize("name", ["Pong?skip=2", "TicTacToe3D"])
def test_no_snapshots_where_they_would_not_be_exact(name: str) -> None:
    """Where a picture can show what no state holds, a world says that it has no snapshots."""
    made = world(name)
    assert not made.traits.snapshots
    made.reset(0)
    for call in (made.snapshot, lambda: made.restore(b"")):
        with pytest.raises(NotImplementedError):
            call()


def test_what_is_returned_is_the_callers() -> None:
    """Neither a later step nor writing into an observation changes anything else."""
    made, twin = world("Pong"), world("Pong")
    kept = made.reset(0)["observation"]
    twin.reset(0)
    copy = kept.copy()
    step = made.step(np.array([0]))
    pixels = step.observation["observation"].copy()
    assert play(made, 5) == (twin.step(np.array([0])), play(twin, 5))[1]
    assert np.array_equal(kept, copy)
    assert np.array_equal(step.observation["observation"], pixels)
    step.observation["observation"][:] = 0
    state = made.snapshot()
    made.restore(state)["observation"][:] = 0
    assert made.snapshot() == state


def test_an_emulator_that_skips_frames_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 13: skipping in the emulator and in the world at once would skip twice."""
    load = ale_py.ALEInterface.loadROM

    def skipping(self: Any, path: Any) -> None:
        self.setInt("frame_skip", 4)
        load(self, path)

    monkeypatch.setattr(ale_py.ALEInterface, "loadROM", skipping)
    with pytest.raises(BrokenSimulator, match="skip twice"):
        world("Pong")


def test_a_cartridge_that_this_ale_lacks_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older ale-py with fewer games gets a sentence, not the emulator's exit."""
    monkeypatch.setattr(roms, "get_all_rom_ids", lambda: ["breakout"])
    with pytest.raises(BrokenSimulator, match="has no cartridge 'pong'"):
        world("Pong")


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """ALE's banner stays off the user's terminal."""
    world("Pong").reset(0)
    out, err = capfd.readouterr()
    assert out + err == ""
