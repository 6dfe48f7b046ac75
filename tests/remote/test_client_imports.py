"""The client: light enough to be embedded in any simulator."""

from __future__ import annotations

import json
import subprocess
import sys

TRIES = 5  # of which the quickest counts: other work on the machine only ever makes one slower
MACHINERY = ("__editable__", "_cython_", "cython_runtime")
"""Modules that compiled or linked packages put beside themselves."""

LOOK = """
import json, sys, time
before = set(sys.modules)
since = time.process_time()
import numpy, zmq, msgpack
bare = time.process_time() - since
import hts.remote.client
whole = time.process_time() - since
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
ours = sorted(name for name in sys.modules if name.split(".")[0] in ("hts", "hts_envs"))
foreign = sorted(roots - set(sys.stdlib_module_names) - {"hts", "hts_envs"})
print(json.dumps([bare, whole, foreign, ours]))
"""


def look() -> tuple[float, float, list[str], list[str]]:
    """Import the client in a process of its own; return the processor time of the packages that it
    needs and of all, the foreign packages and our modules."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    bare, whole, foreign, ours = json.loads(done.stdout)
    return bare, whole, [name for name in foreign if not name.startswith(MACHINERY)], ours


def test_it_needs_three_packages_and_no_more() -> None:
    """pyzmq, msgpack and numpy: no torch, no gymnasium, no yaml, and nothing of the run's side."""
    _, _, foreign, ours = look()
    assert set(foreign) <= {"zmq", "msgpack", "numpy"}
    rooms = {name.split(".")[1] for name in ours if name.startswith("hts.")}
    assert rooms == {"errors", "remote", "signals"}
    assert {"hts.remote.host", "hts.remote.seating", "hts.remote.block"}.isdisjoint(ours)


def test_it_is_imported_in_no_time() -> None:
    """The client's own modules take less time than the packages that it needs."""
    bare, whole = zip(*(look()[:2] for _ in range(TRIES)), strict=True)
    assert min(whole) < 2 * min(bare)
