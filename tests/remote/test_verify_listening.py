"""`hts-verify --listen`: every layout's simulators dial in, from one command that stays."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.limits import HANG
from tests.remote.dialling import free_address
from tests.remote.test_executor_command import command

VERIFY = (sys.executable, "-W", "error", "-m", "hts.cli.verify", "--config", "smoke")


@pytest.mark.parametrize(
    ("env", "reference", "words"),
    [
        ("reference:", "serial runner", ("--actors", "1", "--kill", "1")),
        ("remote:mine", "the first layout, undisturbed", ("--actors", "0")),
    ],
)
def test_layouts_that_are_dialled_in_to_are_compared(
    env: str, reference: str, words: tuple[str, ...]
) -> None:
    """With the serial runner of the same simulators built here, or where nobody here can build
    them, with the first layout; and another seed differs."""
    address = free_address()
    serves = ("--connect", address, "--env", "reference:", "--processes", "1", "--stay")
    given = ("--env", env, "--listen", address, "--updates", "5", *words)
    with command(*serves):
        found = subprocess.run([*VERIFY, *given], capture_output=True, text=True, timeout=HANG)
    assert found.returncode == 0, found.stderr
    assert f"  {reference} " in found.stdout
    assert "same" in found.stdout
    assert "differs, as it must" in found.stdout
    assert found.stdout.endswith("equal on every layout\n")
    assert "Traceback" not in found.stderr
