"""Something else for every core to do, to show that a promise holds under load."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from hts.runtime.process import Child, Pipe


@contextmanager
def busy_cores() -> Iterator[None]:
    """A loop on each core meanwhile, in processes that die with this one."""
    children: list[Child] = []
    try:
        for core in range(len(os.sched_getaffinity(0))):
            children.append(Child(f"load {core}", _turn))
        yield
    finally:
        for child in children:
            child.end()


def _turn(_: Pipe) -> None:
    """Round and round, until it is ended."""
    while True:
        pass
