"""Disks of a test's own: mounted in a namespace that nobody else sees, gone with the test.

A shell that waits holds the namespace. Commands are started in there, and their files are seen from
outside through the shell's entry in /proc.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Mounts:
    """The namespace that this process holds."""

    pid: int

    def command(self, *typed: str) -> list[str]:
        """What starts this in there."""
        enter = ("nsenter", f"--target={self.pid}", "--user", "--mount", "--preserve-credentials")
        return [*enter, "--wd", "--", *typed]

    def seen(self, path: Path) -> Path:
        """This path in there, as it is seen from here."""
        return Path(f"/proc/{self.pid}/root{path}")


@contextmanager
def mounts(*shell: str) -> Iterator[Mounts]:
    """A namespace in which these lines of shell have been run; the test is skipped where the
    machine gives none."""
    script = " && ".join([*shell, "echo ready", "exec cat"])
    with subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            said = holder.stdout.readline()
            if said != "ready\n":
                pytest.skip(f"this machine mounts nothing for a test: {said.strip()}")
            yield Mounts(holder.pid)
        finally:
            holder.stdin.close()
            holder.wait()


def small_disk(path: Path, size: str) -> str:
    """The line of shell that mounts one there."""
    return f"mount -t tmpfs -o size={size} tmpfs '{path}'"


def fill(folder: Path) -> Path:
    """Leave no room on the disk that this folder is on; returns the file that takes it."""
    ballast = folder / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return ballast
