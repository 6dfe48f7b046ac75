"""Ctrl-C while sockets are made and closed: it ends what goes on, and nothing waits for ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Interrupts `work` at its first traced line, at its second, and so on, until it has no more lines.
# A hang inside pyzmq ends the process by itself, with its stack.
SWEEP = """
import faulthandler, signal, sys
from hts import signals
from hts.remote.client import Box, Connection, Discrete, Offer, Spaces
from hts.remote.listening import fixed, listening_at
from hts.remote.port import Port

faulthandler.dump_traceback_later(300, exit=True)
TRACED = "zmq", "hts.remote", "hts.signals", "contextlib"
offer = Offer(Spaces({"observation": Box((1,))}, Discrete(2)))

def choose_port():
    fixed(Port("tcp://127.0.0.1:*"))

def simulate():
    Connection(address, offer).close()

def is_interrupted(work, line):
    left = line

    def trace(frame, event, _):
        nonlocal left
        if frame.f_globals["__name__"].startswith(TRACED):
            left -= 1
            if left == 0:
                signals._Heard.last = -1.0  # this is another request than the one before
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return left <= 0

def sweep(work):
    global address
    line = 1
    with listening_at(Port("tcp://127.0.0.1:*"), 1 << 20) as listening:
        address = listening.port.address
        while is_interrupted(work, line):
            line += 1
    print(line > 50)
"""
WAYS = {
    "a run's port": "signals.listen(); sweep(choose_port)",
    "a simulator of a program of its own": "sweep(simulate)",
    "a simulator of hts-executor": "signals.listen(); sweep(simulate)",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_interrupt_hangs(way: str) -> None:
    """Wherever the signal comes between two lines of what makes and closes sockets."""
    words = [sys.executable, "-c", SWEEP + WAYS[way]]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n"
