"""What processes use, as the kernel counts it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_SHARED = "/memfd:hts"  # storages and versions: counted once, from their shapes


def family(pid: int) -> list[int]:
    """The process and everything that it has started, directly or not."""
    found = [pid]
    for parent in found:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended while it was looked at
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, _read(task).split())
    return found


def cpu_seconds_of(pids: Iterable[int]) -> float:
    """CPU time that these processes have used since they began, in steps of a tick."""
    ticks = 0
    for pid in pids:
        after_name = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        ticks += sum(map(int, after_name[11:13]))
    return ticks / _TICKS


def cpu_seconds_of_all() -> float:
    """CPU time that everybody on this machine has used since it was started."""
    user, nice, system, _idle, _waiting, *rest = map(
        int, _read(Path("/proc/stat")).splitlines()[0].split()[1:8]
    )
    return (user + nice + system + sum(rest)) / _TICKS


def private_bytes(pid: int) -> int:
    """Memory that only this process has.

    Not from `smaps_rollup`: a page of the storages that one process alone has touched is private
    to the kernel, and not to us.
    """
    kilobytes, counted = 0, True
    for line in _read(Path(f"/proc/{pid}/smaps")).splitlines():
        name, _, rest = line.partition(":")
        if name in ("Private_Clean", "Private_Dirty"):
            kilobytes += int(rest.split()[0]) if counted else 0
        elif "-" in name.split(" ")[0]:  # a new mapping: addresses, rights, ..., path
            counted = _SHARED not in line
    return kilobytes * 1024


def _read(path: Path) -> str:
    """Its text; nothing where the process is gone."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
