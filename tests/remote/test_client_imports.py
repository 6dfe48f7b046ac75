"""The client: light enough to be embedded in any simulator."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(60)
LIMIT = 0.2  # seconds that the import takes
TRIES = 5  # of which the quickest counts: other work on the machine only ever makes one slower
MACHINERY = ("__editable__", "_cython_", "cython_runtime")
"""Modules that compiled or linked packages put beside themselves."""

LOOK = """
import json, sys, time
before = set(sys.modules)
since = time.perf_counter()
import hts.remote.client
seconds = time.perf_counter() - since
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
ours = sorted(name for name in sys.modules if name.split(".")[0] in ("hts", "hts_envs"))
foreign = sorted(roots - set(sys.stdlib_module_names) - {"hts", "hts_envs"})
print(json.dumps([seconds, foreign, ours]))
"""


def look() -> tuple[float, list[str], list[str]]:
    """Seconds, foreign packages and our modules, of the import in a process of its own."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    seconds, foreign, ours = json.loads(done.stdout)
    return seconds, [name for name in foreign if not name.startswith(MACHINERY)], ours


def test_it_needs_three_packages_and_no_more() -> None:
    """pyzmq, msgpack and numpy: no torch, no gymnasium, no yaml, and nothing of the run's side."""
    _, foreign, ours = look()
    assert set(foreign) <= {"zmq", "msgpack", "numpy"}
    rooms = {name.split(".")[1] for name in ours if name.startswith("hts.")}
    assert rooms == {"errors", "remote"}
    assert {"hts.remote.host", "hts.remote.seating", "hts.remote.block"}.isdisjoint(ours)


def test_it_is_imported_in_no_time() -> None:
    """Numpy and ZeroMQ included."""
    assert min(look()[0] for _ in range(TRIES)) < LIMIT
