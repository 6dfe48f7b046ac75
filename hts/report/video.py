"""Videos in files: .mp4 (VP9, which browsers show), or .gif, by what opencv brings along."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from hts.errors import WrongUsage
from hts_envs.contract import Array
from hts_envs.errors import MissingPackages, install_command

ENDINGS = (".mp4", ".gif")
_CODECS = ("vp09", "mp4v")  # the second is for players that are no browsers
_SMALLEST = 320  # pixels along the longer side: smaller pictures are enlarged


def check(path: Path) -> None:
    """Refuse, before anything is played, what could not be written afterwards."""
    if path.suffix not in ENDINGS:
        raise WrongUsage(f"--video {path}: must end in {' or '.join(ENDINGS)}")
    if not path.absolute().parent.is_dir():
        raise WrongUsage(f"--video {path}: there is no directory {path.parent}")
    if find_spec("cv2") is None:
        raise MissingPackages(
            "--video: needs opencv-python-headless, which is not installed here. "
            f"Install it with: {install_command('video')}"
        )


def fingerprint(frames: Sequence[Array]) -> str:
    """The same for the same frames: of their sizes, and of every byte."""
    made = hashlib.blake2b(digest_size=16)
    for frame in frames:
        made.update(f"{frame.shape}".encode())
        made.update(np.ascontiguousarray(frame).tobytes())
    return made.hexdigest()


def write(path: Path, frames: Sequence[Array], rate: float, captions: Sequence[str] = ()) -> None:
    """Write it whole, or not at all; frames are (height, width, 3) uint8, all of one size.
    Captions, if any, are written above them."""
    import cv2

    assert frames, "an episode has at least one frame"
    shown = [_prepared(frame) for frame in frames]
    if captions:
        shown = [_captioned(cv2, *pair) for pair in zip(shown, captions, strict=True)]
    beside = path.with_name(f".{path.name}")
    beside = beside.with_suffix(path.suffix)
    try:
        written = (_gif if path.suffix == ".gif" else _mp4)(cv2, beside, shown, rate)
        if not written:
            raise OSError(None, "opencv has no codec here that could write it")
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise WrongUsage(f"--video {path}: cannot be written: {error.strerror}") from None


def _prepared(frame: Array) -> Array:
    """Blue first, as opencv has it; large enough to be looked at, and with even sides."""
    times = -(-_SMALLEST // max(frame.shape[:2]))
    large = frame[..., ::-1].repeat(times, axis=0).repeat(times, axis=1)
    height, width = large.shape[:2]
    padded = np.pad(large, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return np.ascontiguousarray(padded)


def _captioned(cv2: Any, frame: Array, caption: str) -> Array:
    """Return the frame below a dark strip with light letters, which hides nothing of it."""
    size = frame.shape[1] / 640.0
    strip = np.zeros((2 * round(20 * size), *frame.shape[1:]), np.uint8)
    place, font = (round(12 * size), round(28 * size)), cv2.FONT_HERSHEY_SIMPLEX
    cv2.putText(strip, caption, place, font, 0.8 * size, (255, 255, 255), 1, cv2.LINE_AA)
    return np.vstack([strip, frame])


def _mp4(cv2: Any, path: Path, frames: Sequence[Array], rate: float) -> bool:
    height, width = frames[0].shape[:2]
    for codec in _CODECS:
        code = cv2.VideoWriter_fourcc(*codec)
        writer = cv2.VideoWriter(str(path), code, rate, (width, height))
        if not writer.isOpened():
            continue
        for frame in frames:
            writer.write(frame)
        writer.release()
        return True
    return False


def _gif(cv2: Any, path: Path, frames: Sequence[Array], rate: float) -> bool:
    animation = cv2.Animation()
    animation.frames = list(frames)
    animation.durations = np.full(len(frames), max(20, round(1000.0 / rate)), np.int32)
    return bool(cv2.imwriteanimation(str(path), animation))
