"""A real run with honest simulators, and whoever means harm at the same port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes import runs
from tests.remote.dialling import Going, free_address, machine, simulators, told

EXECUTOR = "executor 0"
_WARM = 0.3  # of the updates: what is kept for the next time is there then
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Outcome:
    """What came of it."""

    is_undisturbed: bool = False
    replaced: list[str] = field(default_factory=list)
    seconds: float = 0.0
    resident: list[int] = field(default_factory=list)  # bytes of the executor: warm, and later
    said: Counter[str] = field(default_factory=Counter)

    @property
    def growth(self) -> int:
        return max(self.resident) - self.resident[0]


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def siege(updates: int, storms: int, seed: int = 0) -> Outcome:
    """Two simulators with two seats each, and so many others who mean harm, for a whole run."""
    asked = runs.experiment("reference:", updates=updates)
    expected = [updated.link for updated in runs.outcome(asked)]
    address, found = free_address(), Outcome()

    def story(going: Going) -> None:
        (pid,) = [child.pid for child in going.run.children if child.name == EXECUTOR]
        for at in range(int(_WARM * updates), updates, max(1, updates // 50)):
            going.until(at)
            found.resident.append(resident(pid))

    with simulators() as honest, _storms(address, storms, seed) as others:
        honest.start(address, 2, seats=2)
        since = time.monotonic()
        run = told(asked, machine(address, step_limit=5.0), story)
        found.seconds = time.monotonic() - since
        for each in others:
            found.said += Counter(json.loads(each.communicate("")[0]))
    found.is_undisturbed = run.links == expected and not run.marks
    found.replaced = run.replaced
    return found


@contextmanager
def _storms(address: str, count: int, seed: int) -> Iterator[list[subprocess.Popen[str]]]:
    words = [sys.executable, "-m", "tests.remote.storm", address]
    found = [
        subprocess.Popen(
            [*words, str(seed + each)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for each in range(count)
    ]
    try:
        yield found
    finally:
        for each in found:
            each.kill()
            each.communicate()
