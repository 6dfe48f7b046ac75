"""Temporary folders that are gone afterwards, also those of whoever was killed.

A folder is held (flock) by the process that made it, for as long as that process lives. Whoever
makes the next one first removes those that nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "hts-scratch-"
_NAME = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for as long as this lasts."""
    _sweep(Path(tempfile.gettempdir()))
    path, held = _make()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(held)


def _make() -> tuple[Path, int]:
    """A new one, held; another one where somebody's sweep was faster than our hold."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        held = _hold(path)
        if held is not None:
            return path, held


def _sweep(where: Path) -> None:
    """Remove what was left by those who are no more."""
    for path in where.glob(f"{_PREFIX}*"):
        held = _hold(path) if _NAME.fullmatch(path.name) else None
        if held is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(held)


def _hold(path: Path) -> int | None:
    """Its descriptor, locked; None where it is another's, or gone."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = os.stat(path).st_uid == os.getuid()  # and it is still there
    except OSError:
        os.close(held)
        return None
    if ours:
        return held
    os.close(held)
    return None
