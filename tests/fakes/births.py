"""Who was born of a nursery, and which one is the nursery, as the kernel shows them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hts.runtime import nursery


def name_of(pid: int) -> str:
    """As `ps` and `top` show it; nothing where it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except OSError:
        return ""


def is_born(pid: int) -> bool:
    """It was born of a nursery, and is none."""
    return _is_from_there(pid) and name_of(pid) != nursery.NAME


def _is_from_there(pid: int) -> bool:
    """A nursery or born of one, and alive: of who has ended the kernel shows no words."""
    try:
        return b"nursery.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def children_of(parent: int) -> set[int]:
    """The processes whose parent this one is."""
    found: set[int] = set()
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            found |= set(map(int, task.read_text().split()))
    return found


def own_bytes(pid: int) -> int:
    """What it has in memory that nobody shares with it."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(said.split()[0]) << 10 for name, said in (one.split(":") for one in lines)}
    return sizes["Private_Dirty"] + sizes["Private_Clean"]


def nurseries(parent: int) -> set[int]:
    """Where its children are born; it ends with the process that it serves."""
    named = {pid for pid in children_of(parent) if name_of(pid) == nursery.NAME}
    return {pid for pid in named if _is_from_there(pid)}
