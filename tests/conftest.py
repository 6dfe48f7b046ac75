"""Tests compute as every process of a run does: one thread, deterministic kernels.

And they leave nothing on the machine: after the last one, no process that any of them has started.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hts.determinism import numerics
from tests.fakes.remains import mark, present, remains

numerics.prepare()
mark()


@pytest.fixture(scope="session", autouse=True)
def nothing_remains_at_the_end() -> Iterator[None]:
    """No process, memory, socket, doorbell or temporary folder."""
    before = present()
    yield
    assert remains(before) == set()
