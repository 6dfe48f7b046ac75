"""Tests compute as every process of a run does: one thread, deterministic kernels.

And they leave nothing on the machine: after the last one, no process that any of them has started.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest

from hts.determinism import numerics
from hts.report.say import speak
from hts.runtime import nursery
from tests.fakes.remains import OWN, mark, present, remains

mark()
nursery.warm()
numerics.prepare()
# A shell has the jobs in its background ignore Ctrl-C, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What has been imported is not looked through again behind each of thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def everything_is_said() -> Iterator[None]:
    """A test that trains quietly in this process leaves the next one's messages as they are."""
    yield
    speak()


@pytest.fixture(scope="session", autouse=True)
def nothing_remains_at_the_end() -> Iterator[None]:
    """No process, shared name or temporary folder; what this process itself holds ends with it."""
    before = present()
    yield
    assert {each for each in remains(before) if not each.startswith(OWN)} == set()
