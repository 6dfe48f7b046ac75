"""One round: a run, what is done to it, and whether anything shows it afterwards."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

from hts.config import Machine
from hts.report.metrics import UNREPEATED

from . import draws, processes
from .counts import Counts
from .draws import Act, Script
from .processes import Command

_PAUSE = 0.005
_NOTICED = 2  # updates behind a kill: the first may have been under way
_INTERRUPTED = 130
_TAIL = 25


class Failed(Exception):
    """What should not have happened."""


@dataclass(frozen=True)
class Undisturbed:
    """The run that nobody touched: its record, and the seconds that things took in it."""

    path: Path
    updates: int
    start: float
    update: float


class Lines:
    """How many updates are in the record of a run."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self._path = path / "digests.jsonl"
        self._read = 0

    def look(self) -> bool:
        """Whether there are more than before; a run that goes on takes some back at first."""
        try:
            with self._path.open("rb") as file:
                is_cut = os.fstat(file.fileno()).st_size < self._read
                if is_cut:
                    self._read = self.count = 0
                file.seek(self._read)
                found = file.read()
        except FileNotFoundError:
            return False
        self._read += len(found)
        self.count += found.count(b"\n")
        return b"\n" in found and not is_cut


class Round:
    """A run in a folder of its own, leg after leg."""

    def __init__(
        self,
        typed: Sequence[str],
        folder: Path,
        usual: Undisturbed | None = None,
        *,
        patience: float,  # seconds without an update, or without an end, that are a failure
    ) -> None:
        self.path = folder / "run"
        self.counts = Counts()
        self.story: list[str] = []
        self._typed = typed
        self._usual = usual
        self._patience = patience
        self._temporary, self._log = folder / "temporary", folder / "log"
        self._temporary.mkdir(parents=True)
        self._lines = Lines(self.path)
        self._command: Command
        self._machine = Machine()
        self._waits: list[tuple[float, int]] = []  # kills that no update has followed yet
        self._since = self._moved = self._first = 0.0

    def play(self, script: Script) -> None:
        """All of it; Failed says what is not as it should be."""
        there = processes.shared()
        try:
            self._begin(script.machine)
            for act in script.acts:
                if not self._comes_to(act):
                    break
                self.story.append(str(act))
                self._do(act)
            self._watch(lambda: False)
            if self._command.code:
                raise Failed(f"it ended with exit code {self._command.code}\n{self._tail()}")
            self._check_family()
        finally:
            self._command.clear()
        self._check_left(there)
        self.counts.replaced = self._log.read_text(errors="replace").count("in its place")

    def undisturbed(self) -> Undisturbed:
        """What this round is to others when nothing was done in it."""
        update = (self._moved - self._first) / max(1, self._lines.count)
        return Undisturbed(self.path, self._lines.count, self._first - self._since, update)

    def compare(self) -> None:
        """Its record with that of the run that nobody touched."""
        assert self._usual is not None, "the first run has nothing to be compared with"
        ours, theirs = _result(self.path), _result(self._usual.path)
        if ours["status"] != "done" or ours["interrupted"]:
            raise Failed(f"its result is {ours['status']}, interrupted: {ours['interrupted']}")
        if ours["digest"] != theirs["digest"]:
            raise Failed(f"another digest: {ours['digest']} instead of {theirs['digest']}")
        records = [(each / "digests.jsonl").read_bytes() for each in (self.path, self._usual.path)]
        if records[0] != records[1]:
            raise Failed("the digest is the same, and digests.jsonl is not")
        if _metrics(self.path) != _metrics(self._usual.path):
            raise Failed("the digest is the same, and metrics.jsonl is not")

    def _begin(self, machine: Machine) -> None:
        """The first leg, or the next one: from the newest checkpoint, if there is any."""
        flags = draws.flags(machine)
        if (self.path / "manifest.json").exists():
            typed = ["--resume", str(self.path), *flags]
        else:  # it was ended before it had said what it was
            shutil.rmtree(self.path, ignore_errors=True)
            typed = [*self._typed, "--run-dir", str(self.path), *flags]
        self._machine, self._waits = machine, []
        self._since = self._moved = time.monotonic()
        self._first = 0.0
        self._command = Command(typed, self._temporary, self._log)

    def _comes_to(self, act: Act) -> bool:
        """Until the moment of this act; False when the run is over before."""
        assert self._usual is not None, "moments are known from the run that nobody touched"
        if not self._watch(lambda: self._lines.count >= act.at):
            return False
        until = time.monotonic() + act.wait * (
            self._usual.update if self._first else self._usual.start
        )
        return self._watch(lambda: time.monotonic() >= until)

    def _watch(self, until: Callable[[], object]) -> bool:
        """Until this is so; False when the run has ended. Looks every few milliseconds."""
        while not until():
            code = self._command.code
            self._look()
            if code is not None:
                return False
            if time.monotonic() - self._moved > self._patience:
                states = processes.states(self._command.family())
                raise Failed(f"nothing moved for {self._patience:g} s\n{self._tail()}\n{states}")
            time.sleep(_PAUSE)
        return True

    def _look(self) -> None:
        """Whether the record has grown, and who was waited for."""
        if not self._lines.look():
            return
        self._moved = now = time.monotonic()
        if not self._first:
            self._first = now
            if self.counts.ends:
                self.counts.returned.append(now - self._since)
        noticed = self._lines.count - _NOTICED
        self.counts.recovered += [now - when for when, count in self._waits if count <= noticed]
        self._waits = [each for each in self._waits if each[1] > noticed]

    def _do(self, act: Act) -> None:
        if act.what == "end":
            self._end(act)
        elif act.what == "stop all":
            self._command.end(SIGSTOP, group=True)
            self._pass(act.seconds)
            self._command.end(SIGCONT, group=True)
        elif self._machine.serial:
            self.story.append("(nobody is there)")
        elif self._watch(self._command.roles):
            self._strike(act)

    def _strike(self, act: Act) -> None:
        """One of the roles, or all that are there."""
        roles = self._command.roles()
        chosen = roles if act.what == "kill all" else roles[int(act.who * len(roles)) :][:1]
        number = SIGSTOP if act.what == "stop" else SIGKILL
        struck = [pid for pid in chosen if self._command.send(pid, number)]
        if act.what == "stop":
            self._pass(act.seconds)
            for pid in struck:
                self._command.send(pid, SIGCONT)
            return
        self.counts.kills += len(struck)
        self._waits.append((time.monotonic(), self._lines.count))

    def _pass(self, seconds: float) -> None:
        """Time, in which somebody is stopped."""
        self.counts.stops += 1
        self._waits = []  # what they would wait for is not their own recovery
        until = time.monotonic() + seconds
        self._watch(lambda: time.monotonic() >= until)
        self._moved = time.monotonic()

    def _end(self, act: Act) -> None:
        """End the run as a whole, and go on with it elsewhere."""
        self._command.end(act.number, group=act.group)
        self._moved = time.monotonic()
        self._watch(lambda: False)
        code = self._command.code
        if not code:
            return  # it was over already
        if code not in (_INTERRUPTED, -act.number):
            raise Failed(f"it ended with exit code {code} at {act.number.name}\n{self._tail()}")
        self._check_family()
        self.counts.ends[act.number.name] += 1
        newest = max((int(p.stem) for p in self.path.glob("checkpoints/0*.safetensors")), default=0)
        self.counts.resumed += newest > 0
        self.counts.begun_again += newest == 0
        self.story.append(f"on with {draws.told(act.on)} behind {newest}")
        self._begin(act.on)

    def _check_family(self) -> None:
        left = self._command.left()
        if left:
            raise Failed(f"it has ended, and these have not:\n{processes.states(left)}")

    def _check_left(self, there: set[str]) -> None:
        """Nothing is left of a run that is over but its record."""
        found = [str(path) for path in self._temporary.rglob("*")]
        found += [str(path) for path in self.path.rglob("*") if path.name.startswith(".")]
        found += [str(path) for path in self.path.rglob("*") if path.is_socket()]
        found += [f"/dev/shm/{name}" for name in processes.orphans(processes.shared() - there)]
        if found:
            raise Failed(f"left behind: {', '.join(sorted(found))}")

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-_TAIL:]
        return "\n".join(f"    {line}" for line in lines)


def _result(path: Path) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads((path / "result.json").read_text())
    return found


def _metrics(path: Path) -> list[dict[str, Any]]:
    """Its metrics, but for what they say of time and of the machine."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if not name.startswith(UNREPEATED)}
        for line in lines
    ]
