"""What a run may leave behind on a machine: looked for by whoever has run one.

Every process that a test starts, however far down, inherits a mark in its environment, by which it
is found also where its parent is gone.
"""

from __future__ import annotations

import fcntl
import gc
import os
import re
import select
import tempfile
import uuid
from collections.abc import Set
from pathlib import Path

from tests.fakes import births

OWN = ("open:", "mapped:")
"""What the looking process itself holds."""

_MARK = "HTS_TEST_MARK"
_SECONDS_TO_END = 10.0
_OURS = re.compile(r"socket:|/memfd:hts|anon_inode:\[eventfd\]")
_SHARED = re.compile(r"hts|sem\.mp-|psm_|torch_")


def mark() -> None:
    """From here on, whoever is started here is known by that."""
    os.environ[_MARK] = uuid.uuid4().hex


def present() -> set[str]:
    """Processes, and what this one has open or mapped of a run; names in shared memory; temporary
    folders that nobody holds."""
    gc.collect()
    return {*_processes(), *_descriptors(), *_maps(), *_names(), *_folders()}


def remains(before: Set[str]) -> set[str]:
    """What is present that was not before, and does not end by itself in a moment."""
    return {each for each in present() - before if not _is_about_to_end(each)}


def _processes() -> set[str]:
    """Everybody with the mark, but for this process and where its children are born."""
    found = set()
    sought = f"{_MARK}={os.environ[_MARK]}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = sought in (folder / "environ").read_bytes().split(b"\0")
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:  # another user's, or over
            continue
        pid = int(folder.name)
        if marked and pid not in (os.getpid(), *births.nurseries(os.getpid())):
            found.add(f"process {folder.name} {words}")
    return found


def _is_about_to_end(left: str) -> bool:
    """It is a process that is over, or will be in a moment."""
    what, pid, *_ = left.split()
    if what != "process":
        return False
    try:
        descriptor = os.pidfd_open(int(pid))
    except ProcessLookupError:
        return True
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    over = bool(waiting.poll(_SECONDS_TO_END * 1000))
    os.close(descriptor)
    return over


def _descriptors() -> set[str]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # the one with which the directory was read
            continue
        if _OURS.match(link):
            found.add(f"open: {link} as {descriptor}")
    return found


def _maps() -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {f"mapped: {line}" for line in lines if "memfd:hts" in line}


def _names() -> set[str]:
    return {f"shared: /dev/shm/{name}" for name in os.listdir("/dev/shm") if _SHARED.match(name)}


def _folders() -> set[str]:
    found = Path(tempfile.gettempdir()).glob("hts-*")
    return {f"left: {path}" for path in found if path.is_dir() and not _is_held(path)}


def _is_held(path: Path) -> bool:
    """A living process says that it is its own, or has removed it by now."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
