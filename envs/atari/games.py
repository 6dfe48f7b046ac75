"""The games ale-py can play alone, so that names can be checked where it is not installed.

ALE names a game in small letters with underscores, the papers in capitals: ms_pacman, MsPacman.
ALE also knows four games for two players (combat, joust, maze_craze, warlords): they are no
worlds for one agent, and asking ALE for them without a second player ends the process.
"""

from __future__ import annotations

from hts_envs.errors import BadName
from hts_envs.spelling import hint

_ROMS = """
adventure air_raid alien amidar assault asterix asteroids atlantis atlantis2 backgammon
bank_heist basic_math battle_zone beam_rider berzerk blackjack bowling boxing breakout
carnival casino centipede chopper_command crazy_climber crossbow darkchambers defender
demon_attack donkey_kong double_dunk earthworld elevator_action enduro entombed et
fishing_derby flag_capture freeway frogger frostbite galaxian gopher gravitar hangman
haunted_house hero human_cannonball ice_hockey jamesbond journey_escape kaboom kangaroo
keystone_kapers king_kong klax koolaid krull kung_fu_master laser_gates lost_luggage
mario_bros miniature_golf montezuma_revenge mr_do ms_pacman name_this_game othello pacman
phoenix pitfall pitfall2 pong pooyan private_eye qbert riverraid road_runner robotank
seaquest sir_lancelot skiing solaris space_invaders space_war star_gunner superman surround
tennis tetris tic_tac_toe_3d time_pilot trondead turmoil tutankham up_n_down venture
video_checkers video_chess video_cube video_pinball wizard_of_wor word_zapper yars_revenge
zaxxon
"""

TWO_PLAYERS = ("combat", "joust", "maze_craze", "warlords")


def title(rom: str) -> str:
    """The papers' spelling of ALE's: space_invaders is SpaceInvaders."""
    return rom.title().replace("_", "")


GAMES = {title(rom): rom for rom in _ROMS.split()}
"""The papers' spelling to ALE's."""

_BY_LETTERS = {name.lower(): name for name in GAMES}


def resolve(name: str) -> str:
    """The papers' spelling of a game, whatever its capitals and underscores."""
    letters = name.replace("_", "").lower()
    if letters in _BY_LETTERS:
        return _BY_LETTERS[letters]
    if letters in {rom.replace("_", "") for rom in TWO_PLAYERS}:
        raise BadName(f"atari: {name!r} is a game for two players, which this family does not play")
    raise BadName(f"atari has no game {name!r}{hint(name, GAMES)}")
