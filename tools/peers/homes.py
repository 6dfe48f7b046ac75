"""The peers' virtual environments: one for each, made when it is first asked for.

They live in the user's cache, shared by all checkouts. A stamp, written last, holds what an
environment was made from; one without its stamp, or with another, is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class NotMade(Exception):
    """A peer could not be installed; says where the reason is."""


def cache(environment: dict[str, str]) -> Path:
    """Where the peers are kept: the user's cache, or the checkout's where there is none."""
    base = environment.get("XDG_CACHE_HOME")
    if not base and "HOME" in environment:
        base = str(Path(environment["HOME"], ".cache"))
    return Path(base, "hts", "peers") if base else ROOT / ".cache" / "peers"


def clean_environment() -> dict[str, str]:
    """Ours, without what would let one Python see another's packages."""
    foreign = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    return {name: value for name, value in os.environ.items() if name not in foreign}


def interpreter(peer: str) -> Path:
    """The Python that has this peer, installed first where it is missing."""
    folder = cache(dict(os.environ)) / peer
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, stamp = folder / "bin" / "python", folder / "made-from"
    pins = HERE / f"{peer}.txt"
    base = (ROOT / ".venv" / "bin" / "python").resolve()
    made_from = hashlib.sha256(f"{folder}\n{base}\n{pins.read_text()}".encode()).hexdigest()
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time makes it, whoever else waits has it
        if python.exists() and stamp.exists() and stamp.read_text() == made_from:
            return python
        print(f"installing {peer} into {folder}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _make(folder, base, pins)
        stamp.write_text(made_from)
    return python


def _make(folder: Path, base: Path, pins: Path) -> None:
    log = folder.with_suffix(".log")
    pip = [str(folder / "bin" / "python"), "-I", "-m", "pip", "--no-input"]
    steps = (
        [str(base), "-m", "venv", str(folder)],
        [*pip, "install", "--disable-pip-version-check", "--progress-bar", "off", "-r", str(pins)],
    )
    with log.open("w") as out:
        for step in steps:
            ended = subprocess.run(
                step, stdout=out, stderr=subprocess.STDOUT, env=clean_environment(), check=False
            )
            if ended.returncode:
                raise NotMade(f"{folder.name} could not be installed; the reason is in {log}")
