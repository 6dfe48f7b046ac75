"""Ctrl-C where Python would hear it too late."""

from __future__ import annotations

import subprocess
import sys

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
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=20
    )
    assert done.stderr == ""
    return done.stdout


def test_no_signal_is_lost_in_front_of_waiting() -> None:
    """It ends the waiting at once, though the kernel has nothing to interrupt."""
    assert said(LATE) == "heard\n"


def test_waiting_goes_on_behind_what_interrupts_nothing() -> None:
    """Until it is over, or somebody is ready."""
    assert said(TWICE) == "ready: []\nready: True\n"
