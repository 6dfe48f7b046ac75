"""The page for embedders: every program runs as it stands there, and trains as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import runs
from tests.fakes.embedded import PAGE, examples
from tests.limits import HANG
from tests.remote.dialling import free_address, machine, told

TOGETHER = {
    "own_loop.py": 1,
    "served.py": 2,
    "threaded.py": 1,
    "framed.py": 1,
    "awaited.py": 3,
    "unrepeatable.py": 1,
}
"""Programs that can take part in one run, and the seats of each."""

ALONE: Mapping[str, tuple[str, dict[str, Any]]] = {
    "batch.py": ("python:tests.fakes.embedded:game", {"seat": 4}),
    "team.py": ("python:tests.fakes.embedded:team", {}),
    "served_gym.py": ("gym:CartPole-v1", {}),
}
"""Those that need a run of their own: the local one that it must equal, and its machine."""

PAGES = (
    "README.md",
    *(f"hts/remote/{page}" for page in ("EMBEDDING.md", "cpp/README.md", "js/README.md")),
)


@contextmanager
def programs(names: list[str], address: str, folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """They run as they stand in the page."""
    for name, text in examples().items():
        (folder / name).write_text(text, encoding="utf-8")
    started: list[subprocess.Popen[str]] = []
    try:
        for name in names:
            words = [sys.executable, "-W", "error", str(folder / name), address]
            started.append(subprocess.Popen(words, stderr=subprocess.PIPE, text=True))
        yield started
    finally:
        for each in started:
            each.kill()
            each.communicate()


def trained(names: list[str], asked: Any, folder: Path, **changes: Any) -> list[Any]:
    """A run that these take part in; each of them ends by itself, and has nothing to say."""
    address = free_address()
    with programs(names, address, folder) as started:
        found = told(asked, machine(address, **changes))
        for name, each in zip(names, started, strict=True):
            _, said = each.communicate(timeout=HANG)
            assert each.returncode == 0, f"{name}: {said}"
            assert "Traceback" not in said
    assert found.marks == []
    return found.links


def links(asked: Any) -> list[Any]:
    return [updated.link for updated in runs.outcome(asked)]


def test_every_program_of_the_page_is_tried() -> None:
    """None stands there that no test runs."""
    assert set(examples()) == {"game.py", *TOGETHER, *ALONE}


def test_they_train_together_as_one_local_run(tmp_path: Path) -> None:
    """Loops of their own, served ones, threads, frames and awaited steps, all in one run: each
    holds the seats that it offers, and the digest is that of the game built inside."""
    replicas = sum(TOGETHER.values())
    asked = runs.experiment("python:tests.fakes.embedded:game", replicas=replicas, updates=6)
    assert trained(list(TOGETHER), asked, tmp_path) == links(asked)


@pytest.mark.parametrize("name", ALONE)
def test_it_trains_as_a_local_run(tmp_path: Path, name: str) -> None:
    """A batch, a team and an environment of Gymnasium: the digest is the local one."""
    env, changes = ALONE[name]
    count = 4 if name == "team.py" else 1
    asked = runs.experiment(env)
    assert trained([name] * count, asked, tmp_path, **changes) == links(asked)


@pytest.mark.parametrize("page", PAGES)
def test_every_example_says_how_many_simulators_it_needs(page: str) -> None:
    """A run of `remote:` waits for as many as `--envs` says, sixteen if nothing does."""
    text = (PAGE.parents[2] / page).read_text(encoding="utf-8")
    commands = re.findall(r"hts-train .*--env remote:.*", text)
    assert commands
    assert all(" --envs " in command for command in commands), commands


def test_the_table_of_mistakes_says_what_is_said() -> None:
    """Every message there is one that the code has, word for word between what it fills in."""
    folder = PAGE.parent
    names = ("client", "talk", "shape", "spaces", "line", "hello", "seating")
    code = "".join((folder / f"{name}.py").read_text() for name in names)
    code = "".join(code.replace('"\n', "").replace('f"', "").split('"'))
    told = [line.split("|")[1].strip(" `") for line in PAGE.read_text().splitlines()[-15:]]
    for message in told:
        for part in message.removeprefix("Refused: ").split("..."):
            for words in _between(part):
                assert words in code, message


def _between(message: str) -> list[str]:
    """What stands between the names and numbers that a message fills in."""
    for filled in ("'x'", "(3,)", "(2,)", "uint8", "float64 ones", "{}", "truncated is", ";"):
        message = message.replace(filled, "\0")
    return [each.strip() for each in message.split("\0") if each.strip()]
