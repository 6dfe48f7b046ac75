"""The figures of the house tests, shown at the end whether they pass or fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_REPORTED = pytest.StashKey[list[str]]()


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Callable[[str], None]:
    return pytestconfig.stash.setdefault(_REPORTED, []).append


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(_REPORTED, []):
        terminalreporter.write_line(line)
