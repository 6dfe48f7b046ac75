"""What a led player sees, read straight from the engine.

Each representation equals gfootball's wrapper of the same name, without frame stack. A player of
the right team sees the pitch turned by 180 degrees, as if it played from left to right.

Positions leave the engine as C++ floats, so float32 holds them exactly.

A step of the engine leaves the processor's caches cold, and then every kind of call costs several
times what it costs in a loop. So the two common representations do a few things in plain Python,
and numpy only allocates; and no team is iterated to its end, where the engine's iterator throws a
C++ exception that costs more than the reading.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, ClassVar, TypeAlias

import numpy as np

from hts_envs.contract import Array, Box, Observation, Space
from hts_envs.football.engine import STICKY, Match

TEAM = 11
"""Rows kept for each team; what a smaller team leaves is padding."""

MAP_HEIGHT, MAP_WIDTH, PLANES = 72, 96, 4

SHEET = MAP_HEIGHT * MAP_WIDTH * PLANES

_LOW = -1.0 / 2.25
_SPAN = 1.0 / 2.25 - _LOW

_TURNED = np.array([-1.0, -1.0, 1.0])


Moving: TypeAlias = tuple[list[float], list[float]]
"""Positions and movements of a team."""


class Representation(ABC):
    """Turns what the engine says into the observation of `left` and `right` led players."""

    spaces: ClassVar[Mapping[str, Space]]

    def __init__(self, left: int, right: int) -> None:
        self._left = left
        self._right = right
        self._agents = left + right

    @abstractmethod
    def observe(self, match: Match) -> Observation:
        """A fresh observation, agents first."""


class Extracted(Representation):
    """A map of four planes: own team, other team, ball, the led player."""

    spaces: ClassVar[Mapping[str, Space]] = {
        "observation": Box((MAP_HEIGHT, MAP_WIDTH, PLANES), "uint8", 0, 255)
    }

    def observe(self, match: Match) -> Observation:
        info, (lefts, rights) = match.info, match.sizes
        maps = np.zeros((self._agents, MAP_HEIGHT, MAP_WIDTH, PLANES), np.uint8)
        flat = maps.data.cast("B")
        if self._left:
            own = _cells(info.left_team, lefts, 1.0)
            marks = _marks(own, _cells(info.right_team, rights, 1.0), info.ball_position, 1.0)
            for agent in range(self._left):
                player = info.left_controllers[agent].controlled_player
                _draw(flat, agent, marks, own[player] + 3 if player >= 0 else marks[0])
        if self._right:
            own = _cells(info.right_team, rights, -1.0)
            marks = _marks(own, _cells(info.left_team, lefts, -1.0), info.ball_position, -1.0)
            for agent in range(self._right):
                player = info.right_controllers[agent].controlled_player
                mark = own[player] + 3 if player >= 0 else marks[0]
                _draw(flat, self._left + agent, marks, mark)
        return {"observation": maps}


def _cell(x: float, y: float) -> int:
    """Where a point lies in a flat map, on its first plane; what is off the map is at its edge."""
    column = int((x + 1.0) / 2.0 * MAP_WIDTH)
    row = int((y - _LOW) / _SPAN * MAP_HEIGHT)
    column = 0 if column < 0 else column if column < MAP_WIDTH else MAP_WIDTH - 1
    row = 0 if row < 0 else row if row < MAP_HEIGHT else MAP_HEIGHT - 1
    return (row * MAP_WIDTH + column) * PLANES


def _cells(team: Any, size: int, turn: float) -> list[int]:
    cells = []
    for player in islice(team, size):
        position = player.position
        cells.append(_cell(turn * position[0], turn * position[1]))
    return cells


def _marks(own: list[int], other: list[int], ball: Any, turn: float) -> list[int]:
    """What the first three planes show, as places in a flat map."""
    return [*own, *[cell + 1 for cell in other], _cell(turn * ball[0], turn * ball[1]) + 2]


def _draw(flat: Any, agent: int, marks: list[int], led: int) -> None:
    """Mark an agent's map, the led player included."""
    start = agent * SHEET
    for mark in marks:
        flat[start + mark] = 255
    flat[start + led] = 255


class Simple115(Representation):
    """115 numbers: both teams' positions and movements, ball, who has it, led player, mode."""

    spaces: ClassVar[Mapping[str, Space]] = {"observation": Box((115,), "float32")}

    def observe(self, match: Match) -> Observation:
        info = match.info
        left = _moving(info.left_team, match.sizes[0])
        right = _moving(info.right_team, match.sizes[1])
        ball, way, owner = info.ball_position, info.ball_direction, info.ball_owned_team
        rows = []
        if self._left:
            common = _padded(left, right, 1.0)
            common += (ball[0], ball[1], ball[2], way[0], way[1], way[2])
            for player in _led(info.left_controllers, self._left):
                rows.append(common + _hot(3, owner + 1) + _hot(TEAM, player))
        if self._right:
            common = _padded(right, left, -1.0)
            common += (-ball[0], -ball[1], ball[2], -way[0], -way[1], way[2])
            for player in _led(info.right_controllers, self._right):
                rows.append(common + _hot(3, (0, 2, 1)[owner + 1]) + _hot(TEAM, player))
        mode = _hot(7, int(info.game_mode))
        return {"observation": np.array([row + mode for row in rows], np.float32)}


def _padded(own: Moving, other: Moving, turn: float) -> list[float]:
    """The four lists of the teams, 22 numbers each, -1 where a team is smaller."""
    numbers: list[float] = []
    for values in (*own, *other):
        numbers += values if turn > 0 else [-value for value in values]
        numbers += [-1.0] * (2 * TEAM - len(values))
    return numbers


def _hot(size: int, place: int) -> list[float]:
    """`size` zeros with a one at `place`, if that is not negative."""
    numbers = [0.0] * size
    if place >= 0:
        numbers[place] = 1.0
    return numbers


def _moving(team: Any, size: int) -> Moving:
    """Positions and movements of a team, each as x, y, x, y, ..."""
    positions: list[float] = []
    directions: list[float] = []
    for player in islice(team, size):
        position, direction = player.position, player.direction
        positions += (position[0], position[1])
        directions += (direction[0], direction[1])
    return positions, directions


def _three(vector: Any) -> tuple[float, float, float]:
    return vector[0], vector[1], vector[2]


def _led(controllers: Any, count: int) -> list[int]:
    """Which player of the team each led player is at the moment; -1 where none."""
    return [controllers[index].controlled_player for index in range(count)]


def _team_spaces(name: str) -> dict[str, Space]:
    return {
        f"{name}_team": Box((TEAM, 2)),
        f"{name}_team_direction": Box((TEAM, 2)),
        f"{name}_team_tired_factor": Box((TEAM,)),
        f"{name}_team_active": Box((TEAM,), "uint8", 0, 1),
        f"{name}_team_yellow_card": Box((TEAM,), "uint8", 0, 1),
        f"{name}_team_roles": Box((TEAM,), "int32", -1, 9),
    }


class Raw(Representation):
    """Everything the engine tells, under gfootball's names.

    Both teams have 11 rows, so that one shape fits every scenario and both sides: the rows that a
    smaller team leaves hold zeros, and -1 as role.
    """

    spaces: ClassVar[Mapping[str, Space]] = {
        "ball": Box((3,)),
        "ball_direction": Box((3,)),
        "ball_rotation": Box((3,)),
        "ball_owned_team": Box((), "int32", -1, 1),
        "ball_owned_player": Box((), "int32", -1, TEAM - 1),
        **_team_spaces("left"),
        **_team_spaces("right"),
        "score": Box((2,), "int32", 0),
        "steps_left": Box((), "int32", 0),
        "game_mode": Box((), "int32", 0, 6),
        "designated": Box((), "int32", -1, TEAM - 1),
        "active": Box((), "int32", -1, TEAM - 1),
        "sticky_actions": Box((len(STICKY),), "uint8", 0, 1),
    }

    def observe(self, match: Match) -> Observation:
        left = _team(match.info.left_team, match.sizes[0])
        right = _team(match.info.right_team, match.sizes[1])
        made = {
            name: np.zeros((self._agents, *space.shape), space.dtype)
            for name, space in self.spaces.items()
        }
        if self._left:
            _side(match, True, (left, right), made, slice(0, self._left))
        if self._right:
            _side(match, False, (right, left), made, slice(self._left, None))
        return made


def _team(team: Any, size: int) -> dict[str, Array]:
    """A team's lists under the endings of gfootball's names."""
    players = list(islice(team, size))
    positions, directions = (np.array(each).reshape(-1, 2) for each in _moving(team, size))
    return {
        "": positions,
        "_direction": directions,
        "_tired_factor": np.array([player.tired_factor for player in players]),
        "_active": np.array([player.is_active for player in players]),
        "_yellow_card": np.array([player.has_card for player in players]),
        "_roles": np.array([int(player.role) for player in players]),
        "designated": np.array(
            max((n for n, player in enumerate(players) if player.designated_player), default=-1)
        ),
    }


def _side(
    match: Match,
    is_left: bool,
    teams: tuple[dict[str, Array], dict[str, Array]],
    made: Observation,
    rows: slice,
) -> None:
    """Fill the rows of the players on one side, whose own team comes first in `teams`."""
    info = match.info
    turn = np.ones(3) if is_left else _TURNED
    for name, team in zip(("left_team", "right_team"), teams, strict=True):
        for ending, values in team.items():
            if ending == "designated":
                continue
            turned = -values if ending in ("", "_direction") and not is_left else values
            target = made[name + ending]
            if ending == "_roles":
                target[rows] = -1
            target[rows, : len(values)] = turned
    made["designated"][rows] = teams[0]["designated"]
    made["ball"][rows] = _three(info.ball_position) * turn
    made["ball_direction"][rows] = _three(info.ball_direction) * turn
    made["ball_rotation"][rows] = _three(info.ball_rotation)
    owner = info.ball_owned_team
    made["ball_owned_team"][rows] = owner if is_left or owner < 0 else 1 - owner
    made["ball_owned_player"][rows] = info.ball_owned_player
    goals = (info.left_goals, info.right_goals)
    made["score"][rows] = goals if is_left else goals[::-1]
    made["steps_left"][rows] = match.duration - info.step
    made["game_mode"][rows] = int(info.game_mode)
    _own(match, is_left, made, rows)


def _own(match: Match, is_left: bool, made: Observation, rows: slice) -> None:
    """What differs between the led players of a side: which they are, what they hold down."""
    info = match.info
    count = len(made["active"][rows])
    made["active"][rows] = _led(info.left_controllers if is_left else info.right_controllers, count)
    for index in range(count):
        held = match.sticky(is_left, index)
        if not is_left:  # the eight directions come first, each opposite four further
            held = held[4:8] + held[:4] + held[8:]
        made["sticky_actions"][rows][index] = held


class Pixels(Representation):
    """The rendered picture, shrunk to 72x96 as gfootball does: no overlay, colours as rendered."""

    spaces: ClassVar[Mapping[str, Space]] = {
        "observation": Box((MAP_HEIGHT, MAP_WIDTH, 3), "uint8", 0, 255)
    }

    def __init__(self, left: int, right: int) -> None:
        super().__init__(left, right)
        import cv2

        self._shrink: Callable[[Array], Array] = lambda frame: np.asarray(
            cv2.resize(frame, (MAP_WIDTH, MAP_HEIGHT), interpolation=cv2.INTER_AREA), np.uint8
        )

    def observe(self, match: Match) -> Observation:
        small = self._shrink(match.frame())
        return {"observation": np.repeat(small[None], self._agents, axis=0)}


REPRESENTATIONS: dict[str, type[Representation]] = {
    "extracted": Extracted,
    "simple115v2": Simple115,
    "pixels": Pixels,
    "raw": Raw,
}
