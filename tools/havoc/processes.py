"""Processes as the kernel shows them: a command, all that it starts, and what is left of it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SHARED = Path("/dev/shm")
SECONDS_TO_GO = 5.0
_PAUSE = 0.01
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)


@dataclass(frozen=True)
class Stat:
    """One line of /proc: who it is, and how it is."""

    pid: int
    state: str
    parent: int
    session: int
    began: int


def stat(pid: int) -> Stat | None:
    """None when it is gone."""
    with suppress(*_GONE):
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return Stat(pid, words[0], int(words[1]), int(words[3]), int(words[19]))
    return None


def everybody() -> Iterator[Stat]:
    for name in os.listdir("/proc"):
        found = stat(int(name)) if name.isdigit() else None
        if found is not None and found.state not in "ZX":
            yield found


def read(path: str) -> str:
    """What the kernel says there; nothing where it does not."""
    try:
        return Path(path).read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def _ends_with_us() -> None:
    """Whoever disturbs a run may be killed too."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Command:
    """`hts-train` in a session of its own, with all that it starts."""

    def __init__(self, typed: Sequence[str], temporary: Path, log: Path) -> None:
        self._temporary = temporary
        with log.open("a") as out:
            self._process = subprocess.Popen(
                [Path(sys.executable).with_name("hts-train"), *typed],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(temporary)},
                start_new_session=True,
                preexec_fn=_ends_with_us,
            )

    @property
    def code(self) -> int | None:
        """How it has ended; None while it goes on."""
        return self._process.poll()

    def roles(self) -> list[int]:
        """Where they are born, its executors, actors and the learner, the oldest first."""
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        found = [stat(int(pid)) for task in tasks for pid in read(str(task)).split()]
        living = [each for each in found if each is not None and each.state not in "ZX"]
        return [
            each.pid
            for each in sorted(living, key=lambda each: (each.began, each.pid))
            if "nursery.main" in read(f"/proc/{each.pid}/cmdline")
        ]

    def send(self, pid: int, number: signal.Signals) -> bool:
        """To one of its roles; False when that has ended meanwhile."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            found = stat(pid)
            if found is None or found.parent != self._process.pid or found.state in "ZX":
                return False
            signal.pidfd_send_signal(descriptor, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)

    def end(self, number: signal.Signals, *, group: bool) -> None:
        """To the process that a person has started, or to all of its group."""
        with suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self._process.pid, number)

    def family(self) -> list[Stat]:
        """Everybody who was started by it, directly or not, and lives."""
        mark = f"TMPDIR={self._temporary}".encode()
        return [
            each
            for each in everybody()
            if each.session == self._process.pid or mark in _environment(each.pid)
        ]

    def left(self) -> list[Stat]:
        """Who is still there some time after it has ended."""
        until = time.monotonic() + SECONDS_TO_GO
        while (found := self.family()) and time.monotonic() < until:
            time.sleep(_PAUSE)
        return found

    def clear(self) -> None:
        """End everybody, however they are."""
        for each in self.family():
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        self._process.wait()


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def states(processes: Iterable[Stat]) -> str:
    """What each of their threads does, as far as the kernel says."""
    lines = []
    for each in processes:
        lines.append(f"{each.pid} (parent {each.parent}): {read(f'/proc/{each.pid}/cmdline')}")
        for thread in sorted(Path(f"/proc/{each.pid}/task").glob("*")):
            state = read(f"{thread}/stat").rpartition(")")[2].split()[:1]
            waits = read(f"{thread}/wchan") or "?"
            lines.append(f"  thread {thread.name}: {''.join(state)}, in {waits}")
            lines += [f"    {line}" for line in read(f"{thread}/stack").splitlines()]
    return "\n".join(lines)


def shared() -> set[str]:
    """What has a name in shared memory."""
    return set(os.listdir(SHARED)) if SHARED.is_dir() else set()


def orphans(names: Iterable[str]) -> list[str]:
    """Those of these names that no living process holds."""
    held: set[str] = set()
    for each in everybody():
        held |= {line.split()[-1] for line in read(f"/proc/{each.pid}/maps").splitlines() if line}
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{each.pid}/fd"):
                with suppress(OSError):
                    held.add(os.readlink(f"/proc/{each.pid}/fd/{descriptor}"))
    return [name for name in names if str(SHARED / name) not in held]
