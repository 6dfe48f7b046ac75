"""A match drawn from what the engine says: pitch, players, ball and score.

The engine's own pictures take a third of a second each and are never twice the same to the last
bit. This one takes a millisecond, and is a function of the state of the match.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from hts_envs.contract import Array
from hts_envs.football.engine import Match

_METRE = 8  # pixels
_LENGTH, _WIDTH = 108.8, 70.0  # of the pitch, in metres
_HALF_WIDTH = 0.42  # of the pitch, in the engine's units; its half length is 1
_GOAL = 0.044  # half of a goal, in the same
_MARGIN, _BOARD = 40, 48  # pixels around the pitch, and above it for the score

_GRASS, _STRIPE, _LINE = (58, 125, 68), (64, 135, 75), (232, 240, 232)
_LEFT, _RIGHT, _LED, _BALL, _SHADOW = (
    *((38, 84, 200), (214, 62, 52)),
    *((255, 212, 0), (255, 255, 255), (34, 80, 42)),
)

_Point: TypeAlias = tuple[int, int]

_ROWS = int(_WIDTH * _METRE) + 2 * _MARGIN + _BOARD
_COLUMNS = int(_LENGTH * _METRE) // 2 * 2 + 2 * _MARGIN


def drawn(match: Match) -> Array:
    """(height, width, 3) uint8."""
    import cv2

    info = match.info
    picture = _pitch(cv2)
    teams = (
        (info.left_team, match.sizes[0], info.left_controllers, _LEFT),
        (info.right_team, match.sizes[1], info.right_controllers, _RIGHT),
    )
    for team, size, controllers, colour in teams:
        led = {controller.controlled_player for controller in controllers}
        for number, player in enumerate(islice(team, size)):
            position = player.position
            _player(cv2, picture, _place(position[0], position[1]), colour, number in led)
    _ball(cv2, picture, info.ball_position)
    said = f"{info.left_goals} : {info.right_goals}    step {info.step}"
    _text(cv2, picture, said)
    return picture


def _place(x: float, y: float) -> _Point:
    """Where a point of the engine's pitch lies in the picture."""
    column = _MARGIN + (x + 1.0) / 2.0 * _LENGTH * _METRE
    row = _BOARD + _MARGIN + (y + _HALF_WIDTH) / (2.0 * _HALF_WIDTH) * _WIDTH * _METRE
    return round(column), round(row)


def _pitch(cv2: Any) -> Array:
    picture = np.full((_ROWS, _COLUMNS, 3), _GRASS, np.uint8)
    for stripe in range(0, 12, 2):
        left, right = (_place(-1.0 + (stripe + end) / 6.0, 0.0)[0] for end in (0, 1))
        picture[_BOARD + _MARGIN : _ROWS - _MARGIN, left:right] = _STRIPE
    corners = _place(-1.0, -_HALF_WIDTH), _place(1.0, _HALF_WIDTH)
    cv2.rectangle(picture, *corners, _LINE, 2)
    cv2.line(picture, _place(0.0, -_HALF_WIDTH), _place(0.0, _HALF_WIDTH), _LINE, 2)
    cv2.circle(picture, _place(0.0, 0.0), round(9.15 * _METRE), _LINE, 2, cv2.LINE_AA)
    for side in (-1, 1):
        end, middle = _place(side, 0.0)
        for deep, wide in ((16.5, 40.3), (5.5, 18.3)):
            near = end - side * round(deep * _METRE)
            half = round(wide / 2 * _METRE)
            cv2.rectangle(picture, (near, middle - half), (end, middle + half), _LINE, 2)
        behind, top = end + side * 18, _place(side, -_GOAL)[1]
        cv2.rectangle(picture, (end, top), (behind, 2 * middle - top), _LINE, 3)
    picture[:_BOARD] = 24
    return picture


def _player(cv2: Any, picture: Array, place: _Point, colour: Any, led: bool) -> None:
    if led:
        cv2.circle(picture, place, 14, _LED, 3, cv2.LINE_AA)
    cv2.circle(picture, place, 9, colour, -1, cv2.LINE_AA)
    cv2.circle(picture, place, 9, (16, 16, 16), 1, cv2.LINE_AA)


def _ball(cv2: Any, picture: Array, position: Any) -> None:
    """Larger and further from its shadow the higher it is."""
    column, row = _place(position[0], position[1])
    height = max(0.0, float(position[2]))
    cv2.circle(picture, (column + 2, row + 3), 5, _SHADOW, -1, cv2.LINE_AA)
    size = 5 + round(min(height, 6.0))
    cv2.circle(picture, (column, row - round(4 * height)), size, _BALL, -1, cv2.LINE_AA)
    cv2.circle(picture, (column, row - round(4 * height)), size, (16, 16, 16), 1, cv2.LINE_AA)


def _text(cv2: Any, picture: Array, said: str) -> None:
    cv2.putText(
        picture, said, (_MARGIN, 33), cv2.FONT_HERSHEY_SIMPLEX, 0.9, (235, 235, 235), 2, cv2.LINE_AA
    )
