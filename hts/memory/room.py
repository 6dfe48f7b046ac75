"""How much memory can be had, and whether the kernel has ended processes for want of it.

The machine is one limit; each control group that this process is in, and each group around that
one, may be another (a container, a service, a batch job). Both generations of control groups are
read where they are mounted; what cannot be read limits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_ROOT = Path("/")
_MIB = 2**20


@dataclass(frozen=True)
class Room:
    """Bytes that can be had without taking them from anybody, and who says that it is no more."""

    size: int
    limit: str

    def __str__(self) -> str:
        return f"{self.size / _MIB:,.0f} MiB are free {self.limit}"


@dataclass(frozen=True)
class _Generation:
    """How one generation of control groups calls things."""

    controller: str  # as /proc/self/cgroup names it
    mounts: tuple[str, ...]
    limit: str
    used: str
    reclaimable: tuple[str, ...]  # file pages, given back as soon as somebody needs memory
    kills: str


_SECOND = _Generation(
    "",
    ("sys/fs/cgroup", "sys/fs/cgroup/unified"),
    "memory.max",
    "memory.current",
    ("inactive_file", "active_file"),
    "memory.events",
)
_FIRST = _Generation(
    "memory",
    ("sys/fs/cgroup/memory",),
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
    "memory.oom_control",
)


def available(root: Path = _ROOT) -> Room:
    """The least that any limit leaves."""
    free = _counters(root / "proc/meminfo")["MemAvailable:"] * 1024
    rooms = [Room(free, "on this machine")]
    for generation, group in _groups(root):
        limit, used = (_number(group / name) for name in (generation.limit, generation.used))
        if limit is None or used is None:
            continue
        counters = _counters(group / "memory.stat")
        kept = used - sum(counters.get(name, 0) for name in generation.reclaimable)
        where = f"below the limit of {limit / _MIB:,.0f} MiB in {group / generation.limit}"
        rooms.append(Room(max(limit - kept, 0), where))
    return min(rooms, key=lambda room: room.size)


def kills(root: Path = _ROOT) -> int:
    """Processes that the kernel has ended for want of memory: of this control group, if it counts
    them, or else of the machine."""
    for generation, group in _groups(root):
        counted = _counters(group / generation.kills).get("oom_kill")
        if counted is not None:
            return counted
    return _counters(root / "proc/vmstat").get("oom_kill", 0)


def _groups(root: Path) -> Iterator[tuple[_Generation, Path]]:
    """The control groups of this process that can be seen from here, the innermost first."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for generation in (_FIRST, _SECOND):
            if generation.controller not in controllers.split(","):
                continue
            inner = PurePosixPath(path.lstrip("/"))
            for mount in generation.mounts:
                for group in (inner, *inner.parents):
                    if (root / mount / group / generation.kills).exists():
                        yield generation, root / mount / group


def _number(path: Path) -> int | None:
    """What the file holds; None where it is no number (`max`), or is not there."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _counters(path: Path) -> dict[str, int]:
    """The numbers in a file with a name and a number in each line."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {name: int(number) for name, number, *_ in words}
