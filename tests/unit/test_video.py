"""Frames of worlds and files of frames: the same every time, and nothing changed by looking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hts.errors import WrongUsage
from hts.report import video
from hts.report.filmed import Filmed
from hts.report.sketch import sketch
from hts.runtime.evaluating import Evaluating
from hts_envs.contract import Array, BatchedWorld, Place, World
from hts_envs.errors import MissingPackages
from hts_envs.registry import make
from tests.fakes import runs
from tests.unit.test_evaluator import version

cv2 = pytest.importorskip("cv2")


def walk(name: str, steps: int, *, looks: bool) -> tuple[list[Array], list[Any]]:
    """Frames, where somebody looks, and everything that the world says on the way."""
    world = make(name, Place(shown=True))
    assert isinstance(world, World)
    frames, said = [], [world.reset(11)]
    rng = np.random.default_rng(2)
    for _ in range(steps):
        action = rng.integers(4, size=world.spaces.agents)
        result = world.step(action)
        said.append(result)
        if looks:
            frame = world.frame()
            assert frame is not None
            frames.append(frame)
        if result.terminated or result.truncated:
            break
    world.close()
    return frames, said


@pytest.mark.parametrize(
    ("name", "steps", "needs", "shape"),
    [
        ("atari:Breakout", 30, "ale_py", (210, 160, 3)),
        ("gfootball:3v1?agents=2", 25, "gfootball_engine", (688, 950, 3)),
    ],
)
def test_frames_are_the_same_every_time(
    name: str, steps: int, needs: str, shape: tuple[int, ...]
) -> None:
    """Two walks with the same seed and actions show the same, moving, pictures; and a walk that
    nobody looks at says the same."""
    pytest.importorskip(needs)
    first, said = walk(name, steps, looks=True)
    second, again = walk(name, steps, looks=True)
    _, unseen = walk(name, steps, looks=False)
    assert video.fingerprint(first) == video.fingerprint(second)
    assert str(said) == str(again) == str(unseen)
    assert {frame.shape for frame in first} == {shape}
    assert {frame.dtype for frame in first} == {np.dtype(np.uint8)}
    assert video.fingerprint(first[:1]) != video.fingerprint(first[-1:])


def test_a_frame_is_of_its_own_row() -> None:
    """A batched world that draws shows each row what an only one shows."""
    seeds = np.arange(3).astype(np.uint64) * np.uint64(2)
    many, one = (make("batched:ball_balance", Place(0, count)) for count in (3, 1))
    assert isinstance(many, BatchedWorld)
    assert isinstance(one, BatchedWorld)
    many.reset(np.arange(3), seeds)
    for row in range(3):
        one.reset(np.array([0]), seeds[row : row + 1])
        mine, alone = many.frame(row), one.frame(0)
        assert mine is not None
        assert np.array_equal(mine, alone)
        assert mine.shape == (48, 48, 3)


def test_an_episode_is_filmed_from_its_first_moment_to_its_last() -> None:
    """One frame more than it has steps, for the episode that was asked for and no other; twice the
    same, and another one for another episode."""
    experiment = runs.experiment("batched:ball_balance")
    prints = []
    for episode in (2, 2, 0):
        evaluating = Evaluating(experiment, 3, shown=True)
        simulators = evaluating.evaluator.simulators
        film = Filmed(episode, simulators.frame)
        made = version(experiment, simulators.spaces)
        played = evaluating.evaluator.play(made, range(3), film)
        evaluating.close()
        assert len(film.frames) == played[episode].length + 1
        assert film.instead is None
        prints.append(video.fingerprint(film.frames))
    assert prints[0] == prints[1] != prints[2]


def missing(_: int) -> Array | None:
    raise MissingPackages("a library is not here")


def nothing(_: int) -> Array | None:
    return None


def test_what_cannot_be_drawn_is_shown_as_it_is_seen() -> None:
    """And it is said why."""
    seen = {"observation": np.array([[0.5, -0.5, 0.0]], np.float32)}
    for frame, why in ((missing, "a library is not here"), (nothing, "makes no pictures")):
        film = Filmed(0, frame)
        film(0, 0, seen)
        film(1, 0, seen)
        assert len(film.frames) == 1
        assert np.array_equal(film.frames[0], sketch(seen))
        assert film.instead is not None
        assert why in film.instead


def test_a_sketch_shows_numbers_and_planes() -> None:
    """Bars go up and down, whatever the size of numbers; planes have colours; grey is grey."""
    bars = sketch({"observation": np.array([[1e9, -np.inf, np.nan, 0.5]], np.float32)})
    up, down = (bars[:, column] for column in (40, 120))
    blue, red = (np.array(colour) for colour in ((0, 114, 178), (213, 94, 0)))
    assert 40 < (up[:48] == blue).all(-1).sum() <= 48
    assert 40 < (down[48:] == red).all(-1).sum() <= 48
    assert not (bars[:, 200] == blue).all(-1).any()
    image = np.zeros((1, 10, 20, 4), np.uint8)
    image[0, 3, 5, 1] = 255
    shown = sketch({"map": image})
    assert shown.shape == (160, 320, 3)
    assert tuple(shown[3 * 16, 5 * 16]) == (213, 94, 0)
    assert int((shown.sum(-1) > 0).sum()) == 256
    grey = sketch({"screen": np.full((1, 10, 20, 1), 77, np.uint8)})
    assert set(grey.reshape(-1).tolist()) == {77}


def moving(count: int, height: int, width: int) -> list[Array]:
    """A light bar that moves to the right over a dark ground."""
    frames = []
    for place in range(count):
        frame = np.full((height, width, 3), (10, 20, 60), np.uint8)
        frame[:, place * 8 : place * 8 + 8] = (250, 200, 40)
        frames.append(frame)
    return frames


@pytest.mark.parametrize("ending", [".mp4", ".gif"])
@pytest.mark.parametrize(("height", "width"), [(240, 321), (48, 80)])
def test_what_is_written_can_be_watched(
    tmp_path: Path, ending: str, height: int, width: int
) -> None:
    """As many frames as were given, in order, with their colours, large enough and of even size."""
    path, frames = tmp_path / f"film{ending}", moving(9, height, width)
    video.write(path, frames, 20.0)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    read = cv2.VideoCapture(str(path))
    assert read.get(cv2.CAP_PROP_FPS) == pytest.approx(20.0)
    shown = []
    while True:
        there, frame = read.read()
        if not there:
            break
        shown.append(frame[..., ::-1])
    read.release()
    assert len(shown) == 9
    times = -(-320 // max(height, width))
    for place, frame in enumerate(shown):
        assert frame.shape[0] % 2 == frame.shape[1] % 2 == 0
        assert max(frame.shape) >= 320
        middle = frame[frame.shape[0] // 2].astype(int)
        bar = middle[(place * 8 + 4) * times]
        assert np.abs(bar - (250, 200, 40)).max() < 64
        assert np.abs(middle[-8] - (10, 20, 60)).max() < 64


def test_captions_count_steps_and_rewards() -> None:
    """One for each frame of the episode, the first before any step; other episodes do not count."""
    film = Filmed(3, nothing)
    seen = {"observation": np.zeros((1, 2), np.float32)}
    film(3, 0, seen, None)
    film(2, 1, seen, 100.0)
    for reward in (1.0, -0.25):
        film(3, 0, seen, reward)
    assert film.captions == ["step 0  return 0", "step 1  return 1", "step 2  return 0.75"]
    assert len(film.frames) == 3


def test_an_overlay_hides_nothing(tmp_path: Path) -> None:
    """Light letters on a dark strip above the picture, other ones for each frame; the frames that
    were given stay what they are."""
    path, frames = tmp_path / "over.mp4", [np.full((48, 80, 3), 60, np.uint8)] * 2
    before = video.fingerprint(frames)
    video.write(path, frames, 20.0, ["step 0  return 0", "step 1  return 1"])
    assert video.fingerprint(frames) == before
    read = cv2.VideoCapture(str(path))
    first, second = (read.read()[1].astype(int) for _ in range(2))
    read.release()
    assert first.shape == (20 + 192, 320, 3)
    assert np.abs(first[22:] - 60).max() < 20
    assert first[:18].max() > 150 > 40 > np.median(first[:18])
    assert np.abs(first[:18] - second[:18]).max() > 60


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """Before anything is played, or without leaving half a file."""
    with pytest.raises(WrongUsage, match=r"must end in \.mp4 or \.gif"):
        video.check(tmp_path / "film.avi")
    with pytest.raises(WrongUsage, match="there is no directory"):
        video.check(tmp_path / "nowhere" / "film.mp4")
    (tmp_path / "film.gif").mkdir()
    with pytest.raises(WrongUsage, match="cannot be written"):
        video.write(tmp_path / "film.gif", moving(2, 48, 80), 20.0)
    assert [each.name for each in tmp_path.iterdir()] == ["film.gif"]
