"""Every test here runs the machine, and leaves nothing of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.remains import present, remains


@pytest.fixture(autouse=True)
def nothing_remains() -> Iterator[None]:
    """No process, memory, socket, doorbell or temporary folder."""
    before = present()
    yield
    assert remains(before) == set()
