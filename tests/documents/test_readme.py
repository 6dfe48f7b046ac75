"""Every command of the README runs literally as written, from a fresh folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents.snippets import Command, commands, files, read
from tests.documents.terminal import ROOT, Terminal

PAGE = read(ROOT / "README.md")
COMMANDS = commands(PAGE)
SUITE = ("tools/test", "tools/check")
"""The commands that run these tests themselves."""
SECONDS = 240

pytestmark = pytest.mark.timeout(SECONDS + 60)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path, files(PAGE), SECONDS)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "command",
    [each for each in COMMANDS if each.words[0] not in SUITE],
    ids=lambda command: f"line {command.line}: {command}",
)
def test_a_command_runs_as_written(command: Command, terminal: Terminal) -> None:
    """It ends well or reaches its first result, and Ctrl-C ends it."""
    terminal.follow(command)


def test_the_page_shows_commands_and_files() -> None:
    """The README's commands are read from it: the list of what is tested is not empty."""
    typed = {str(command) for command in COMMANDS}
    assert "tools/hts-train --algo ppo --env gfootball:3v1" in typed
    assert "tools/hts-train --config ppo-cartpole" in typed
    assert len(typed) >= 15
    assert "my_sim.py" in files(PAGE)
