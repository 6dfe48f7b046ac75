"""Ctrl-C where Python would hear it too late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.limits import HANG

# Python's own handler only sets a mark, wherever the kernel lets it run: here in another thread,
# when the main one waits already; in a run, between Python's last look at the mark and the waiting.
LATE = """
import os, signal, threading
from hts import signals

signals.listen()
main = f"/proc/self/task/{threading.get_native_id()}/stat"
reads, writes = os.pipe()

def interrupt():
    waits = 0
    while waits < 100:
        with open(main) as file:
            waits = waits + 1 if file.read().rpartition(")")[2].split()[0] == "S" else 0
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
try:
    print("ready:", signals.wait([reads]))
except KeyboardInterrupt:
    print("heard")
"""

# What is asked for twice within a second is asked for once: the second signal interrupts nothing.
TWICE = """
import os, signal
from hts import signals

signals.listen()
reads, writes = os.pipe()
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    pass
os.kill(os.getpid(), signal.SIGINT)
print("ready:", signals.wait([reads], 0.1))
os.write(writes, b".")
print("ready:", signals.wait([reads]) == [reads])
"""


def said(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=HANG,
        process_group=0,
    )
    assert done.stderr == ""
    return done.stdout


def test_no_signal_is_lost_in_front_of_waiting() -> None:
    """It ends the waiting at once, though the kernel has nothing to interrupt."""
    assert said(LATE) == "heard\n"


def test_waiting_goes_on_behind_what_interrupts_nothing() -> None:
    """Until it is over, or somebody is ready."""
    assert said(TWICE) == "ready: []\nready: True\n"


# What is raised inside `__del__` is dropped by Python; what asked for it asks again.
DROPPED = """
import os, signal
from hts import signals

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

signals.listen()
reads, writes = os.pipe()
try:
    Dying()
    print("ready:", signals.wait([reads]))
except KeyboardInterrupt:
    print("heard")
"""

# Ctrl-C at a terminal reaches the nursery too, from its first instruction on.
NEWBORN = """
import os, signal
from hts.runtime import nursery

signal.signal(signal.SIGINT, lambda *_: None)
nursery.warm()
process = nursery._Nursery.process
ignores = 0
while not ignores & 1 << signal.SIGINT - 1 and process.poll() is None:
    os.killpg(0, signal.SIGINT)
    with open(f"/proc/{process.pid}/status") as file:
        ignores = int(next(line for line in file if line.startswith("SigIgn")).split()[1], 16)
print(process.poll())
"""


def test_an_interruption_that_python_drops_is_raised_again() -> None:
    """In a `__del__`: no traceback, and the waiting ends."""
    assert said(DROPPED) == "heard\n"


def test_a_nursery_that_starts_is_not_interrupted() -> None:
    """Signal after signal while it starts: it lives, and prints nothing."""
    assert said(NEWBORN) == "None\n"


ENDING = """
import atexit, os, signal, sys
sys.argv = ["hts-command"]
from hts import signals
from hts.cli import shell

def work():
    signals.listen()
    if {interrupted}:
        os.kill(os.getpid(), signal.SIGINT)
    return shell.DONE

def again():
    signals._Heard.last = 0.0  # as if more than a second had passed
    os.kill(os.getpid(), signal.SIGINT)

atexit.register(again)
sys.exit(shell.run("hts-command", work))
"""


@pytest.mark.parametrize(("was_interrupted", "code"), [(True, 130), (False, 0)])
def test_ctrl_c_while_python_ends_changes_nothing(was_interrupted: bool, code: int) -> None:
    """Behind the work the exit code is decided, and no traceback follows it."""
    done = subprocess.run(
        [sys.executable, "-c", ENDING.format(interrupted=was_interrupted)],
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert (done.returncode, done.stderr) == (
        code,
        "hts-command: interrupted\n" if was_interrupted else "",
    )


HTS_TRAIN = str(Path(sys.executable).with_name("hts-train"))
SMOKE = ("--config", "smoke", "--set", "serial=true", "--evaluate", "0", "--run-dir")


def interrupted(
    command: Sequence[str], moments: Sequence[str], signals: int = 1
) -> tuple[int, str]:
    """Return the exit code and the last lines of a command that gets Ctrl-C, as a terminal sends
    it, after each line that ends in, or begins with, one of these words."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stderr is not None
        for moment in moments:
            lines = (line.rstrip("\n") for line in process.stderr)
            assert any(each.endswith(f" {moment}") or each.startswith(moment) for each in lines)
            for _ in range(signals):
                os.killpg(process.pid, signal.SIGINT)
        _, words = process.communicate(timeout=HANG)
    return process.returncode, words


@pytest.mark.parametrize(
    ("module", "signals"),
    [
        ("hts.cli", 1),
        ("hts.cli", 2),
        ("numpy._core", 1),
        ("hts.cli.train", 2),
        ("torch._C", 1),
        ("hts.runtime.train", 2),
    ],
)
def test_ctrl_c_while_a_command_is_imported(module: str, signals: int, tmp_path: Path) -> None:
    """Behind the first module of ours, the last one, and between: exit code 130, no traceback."""
    command = [sys.executable, "-X", "importtime", HTS_TRAIN, *SMOKE, str(tmp_path / "run")]
    code, words = interrupted(command, [module], signals)
    assert code == 130, words
    assert "Traceback" not in words
    assert "KeyboardInterrupt" not in words


@pytest.mark.parametrize("last", [(), ("hts-train: interrupted: digest",)])
def test_ctrl_c_while_a_run_begins_and_ends(last: tuple[str, ...], tmp_path: Path) -> None:
    """Before the first update; and again when the run says how it ended."""
    command = [HTS_TRAIN, *SMOKE, str(tmp_path / "run"), "--steps", "1e9"]
    code, words = interrupted(command, ["hts-train: machine:", *last])
    assert code == 130, words
    assert "Traceback" not in words
    assert "KeyboardInterrupt" not in words


def test_tools_hold_ctrl_c_back_until_the_command_hears_it() -> None:
    """Python itself would die of it while it starts: it waits, blocked, for the handler."""
    tool = Path(__file__).parents[2] / "tools" / "hts-train"
    command = [str(tool), "--config", "smoke", "--show-config"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0) as process:
        status, blocked = Path(f"/proc/{process.pid}/status"), 0
        while not blocked & 1 << signal.SIGINT - 1:
            assert process.poll() is None
            (line,) = (each for each in status.read_text().splitlines() if "SigBlk" in each)
            blocked = int(line.split()[1], 16)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=HANG)
    assert (process.returncode, out) == (130, b"")
