"""A control group of a test's own, with little memory: whoever is in there cannot take more."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

MIB = 2**20


@contextmanager
def little_memory(mebibytes: int) -> Iterator[list[str]]:
    """What is put before a command so that it runs in there; the test is skipped where this
    process may make no such group."""
    outer, limit = _outer()
    group = outer / f"hts-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            with (group / limit).open("r+") as file:
                file.write(str(mebibytes * MIB))
        except OSError as error:
            pytest.skip(f"a control group's memory cannot be limited here: {error}")
        yield ["sh", "-c", f"echo $$ > '{group}/cgroup.procs' && exec \"$@\"", "sh"]
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """When the last one in there is gone, which the kernel tells nobody."""
    for _ in range(1000):
        with suppress(OSError):
            return group.rmdir()
        threading.Event().wait(0.01)
    raise AssertionError(f"somebody stays in {group}: {(group / 'cgroup.procs').read_text()}")


def _outer() -> tuple[Path, str]:
    """The group that this process is in, and what a limit is called there."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return Path(f"/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"
    return Path(f"/sys/fs/cgroup{path}"), "memory.max"
