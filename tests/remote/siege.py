"""A real run with honest simulators, and whoever means harm at the same port."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.fakes import runs
from tests.remote.dialling import Going, free_address, machine, simulators, told
from tests.remote.growth import EACH, resident
from tests.remote.storm import Locks

EXECUTOR = "executor 0"
_WARM = 0.3  # of the updates: what is kept for the next time is there then
AT_ONCE_AT_A_PORT = 16 << 20  # bytes, of what ZeroMQ keeps for connections that come and go
_HEARD = re.compile(r"of (\S+) messages (\S+) were dropped")
_AWAY = re.compile(r"is turned away")


@dataclass
class Outcome:
    """What came of it."""

    is_undisturbed: bool = False
    digest: str = ""
    replaced: list[str] = field(default_factory=list)
    seconds: float = 0.0
    resident: list[int] = field(default_factory=list)  # bytes of the executor: warm, and later
    said: Counter[str] = field(default_factory=Counter)
    heard: int = 0  # messages that came out of the port
    dropped: int = 0  # and of these, such as nobody says who is honest
    turned_away: int = 0  # sentences about keys that are not known: not all of them are said

    @property
    def growth(self) -> int:
        """Of the executor, since it was warm."""
        return max(self.resident) - self.resident[0]

    @property
    def leaks(self) -> bool:
        """It has grown with the messages."""
        return self.growth > AT_ONCE_AT_A_PORT + EACH * self.heard


def siege(updates: int, storms: int, seed: int = 0, *, locked: bool = False) -> Outcome:
    """Two simulators with two seats each, and so many others who mean harm, for a whole run.

    Locked: the port has keys, and of those who mean harm some have one that is known there.
    """
    asked = runs.experiment("reference:", updates=updates)
    expected = [updated.link for updated in runs.outcome(asked)]
    address, found = free_address(), Outcome()

    def story(going: Going) -> None:
        (pid,) = [child.pid for child in going.run.children if child.name == EXECUTOR]
        for at in range(int(_WARM * updates), updates, max(1, updates // 50)):
            going.until(at)
            found.resident.append(resident(pid))

    with TemporaryDirectory() as folder, simulators() as honest:
        locks = _locks(Path(folder)) if locked else None
        keys = {} if locks is None else {"keys": str(locks.run)}
        own = {} if locks is None else {"keys": str(locks.honest)}
        with _storms(address, storms, seed, *([folder] if locked else [])) as others:
            honest.start(address, 2, seats=2, **own)
            since, sentences = time.monotonic(), io.StringIO()
            with redirect_stderr(sentences):
                run = told(asked, machine(address, step_limit=5.0, **keys), story)
            found.seconds = time.monotonic() - since
            for each in others:
                found.said += Counter(json.loads(each.communicate("")[0]))
    heard = _HEARD.search(sentences.getvalue())
    if heard is not None:
        found.heard, found.dropped = (int(each.replace(",", "")) for each in heard.groups())
    found.turned_away = len(_AWAY.findall(sentences.getvalue()))
    found.is_undisturbed = run.links == expected and not run.marks
    found.digest = run.links[-1].chain
    found.replaced = run.replaced
    return found


def _locks(folder: Path) -> Locks:
    made = Locks(folder)
    made.make()
    return made


@contextmanager
def _storms(
    address: str, count: int, seed: int, *folder: str
) -> Iterator[list[subprocess.Popen[str]]]:
    words = [sys.executable, "-m", "tests.remote.storm", address]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    found = [
        subprocess.Popen([*words, str(seed + each), *folder], **pipes) for each in range(count)
    ]
    try:
        yield found
    finally:
        for each in found:
            each.kill()
            each.communicate()
