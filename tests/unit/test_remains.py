"""What looks for the remains of a run finds them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hts.memory.doorbell import Doorbell
from tests.fakes.remains import present, remains

ORPHAN = """
import subprocess, sys
command = [sys.executable, "-c", "input()"]
nowhere = subprocess.DEVNULL
print(subprocess.Popen(command, stdin=sys.stdin, stdout=nowhere, stderr=nowhere).pid, flush=True)
"""


def test_a_process_is_found_wherever_it_hangs() -> None:
    """Its parent is gone, so it is nobody's child here."""
    before = present()
    read, write = os.pipe()
    parent = subprocess.run(
        [sys.executable, "-c", ORPHAN], stdin=read, capture_output=True, text=True
    )
    os.close(read)
    pid = int(parent.stdout)
    found = [each for each in present() - before if each.startswith(f"process {pid} ")]
    os.close(write)
    assert len(found) == 1
    assert remains(before) == set()


def test_memory_sockets_and_doorbells_are_found() -> None:
    """By what is open in this process."""
    before = present()
    bell, pair, memory = Doorbell(), socket.socketpair(), os.memfd_create("hts")
    left = remains(before)
    bell.close()
    for end in pair:
        end.close()
    os.close(memory)
    kinds = sorted(each.split(":")[1].split()[0] for each in left)
    assert kinds == ["/memfd", "anon_inode", "socket", "socket"]
    assert remains(before) == set()


def test_folders_and_names_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder that nobody holds; a name in shared memory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = present()
    folder, name = tmp_path / "hts-scratch-abcdefgh", Path("/dev/shm/hts-test-of-remains")
    folder.mkdir()
    name.touch()
    left = remains(before)
    name.unlink()
    assert left == {f"left: {folder}", f"shared: {name}"}
