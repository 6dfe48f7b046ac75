"""`tools/conformance`: the Python client passes, and each mistake of a client has its case."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.conformance import SECONDS, Whole, begun, only, whole

CLIENT = [sys.executable, "-m", "tests.remote.reference_client"]
MISTAKEN = [sys.executable, "-m", "tests.remote.mistaken_client"]


def tried(folder: Path, *typed: str) -> subprocess.CompletedProcess[str]:
    """What it says, and how it ends."""
    with begun(folder, *typed) as process:
        try:
            out, errors = process.communicate(timeout=SECONDS)
        except BaseException:
            process.terminate()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


@pytest.fixture(scope="module")
def all_cases() -> Iterator[Whole]:
    """With the Python client, beside the other tests."""
    with whole(CLIENT) as begun_:
        yield begun_


@pytest.mark.usefixtures("all_cases")
@pytest.mark.parametrize(
    ("mistake", "case", "told"),
    [
        ("no_finals", "ends", "expected:   6: reward, ends, picture, values, final picture"),
        ("ignores_again", "again", "expected:   stand of seat 0, turn 0 once more"),
        ("stale_seeds", "seeds", "picture at seat 0, turn "),
        ("takes_everything", "double", "ignored"),
        ("holds_nothing", "who", "expected:   [[3, -1], [5, -1]]\n        came:       []"),
        ("other_sessions", "who", "hello is the same as before"),
        ("one_field_more", "hello", "hello has these nine fields and no others"),
        (
            "silent",
            "hello-lost",
            "expected:   ping within a second\n        came:       nothing in 4 s",
        ),
        ("silent_without_seats", "pings-without-a-seat", "expected:   ping 1 s later"),
        ("here_is_an_answer", "here", "came:       nothing in 2.5 s"),
        ("takes_what_it_offers", "beyond-the-offer", "seat 3, turn 0"),
        ("any_action", "invalid", "behind this message of the run: "),
        ("own_route", "hello", "expected:   00 and four bytes"),
        ("text_rows", "episodes", "expected:   [0]\n        came:       ['0']"),
        ("wide_rewards", "rows", "expected:   24 bytes: float32 of shape (3, 2)"),
        ("in_order", "pipelining", "came:       pings: [["),
        ("keeps_seats", "other-run", "expected:   ['another-"),
        ("dies_of_it", "invalid", "behind this message of the run: "),
        ("stays_away", "reconnect", "expected:   hello\n        came:       nothing in "),
        ("says_it_twice", "unread", "one stand for each seat that was asked"),
        ("forgets_return", "ends", "the fact 'return' of row 0 at seat 0, turn "),
        ("refusal_is_well", "refused", "expected:   exit code 3\n        came:       exit code 0"),
        ("never_over", "over", "expected:   exit code 0\n        came:       it runs, "),
        ("no_keys", "other-keys", "expected:   a CURVE handshake"),
    ],
)
def test_a_mistake_is_found(mistake: str, case: str, told: str, tmp_path: Path) -> None:
    """The case that is about it fails, says what came instead, and the exit code is 1."""
    said = tried(tmp_path, "--only", case, *MISTAKEN, mistake)
    assert said.returncode == 1, said.stdout + said.stderr
    assert said.stdout.startswith(f"FAILED  {case} ")
    assert told in said.stdout
    assert said.stdout.endswith(f"passed: 0, failed: 1 ({case})\n")
    assert list(tmp_path.iterdir()) == []


def test_another_simulator_has_another_digest(tmp_path: Path) -> None:
    """A real run with seeds that are one act late is complete, and its digest tells."""
    said = tried(tmp_path, "--only", "digest", *MISTAKEN, "stale_seeds")
    assert said.returncode == 1, said.stdout + said.stderr
    assert "the digest is that of the run without a socket\n" in said.stdout


def test_the_python_client_passes(all_cases: Whole) -> None:
    """Every case there is, whole runs among them; nobody and nothing is left behind."""
    all_cases.passes()


def test_a_command_may_have_places(tmp_path: Path) -> None:
    """Values are put where the command has places; what it has no place for is told."""
    client = (*CLIENT, "{address}", "--seats={seats}", "--keys={keys}", "{not-replayable}")
    said = tried(tmp_path, *only(["hello", "offer", "keys"]), *client)
    assert [line[:6] for line in said.stdout.splitlines() if line[0] != " "] == [
        "ok    ",
        "FAILED",
        "ok    ",
        "cases:",
    ]
    assert "this needs {rows} somewhere in the client's command" in said.stdout


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (
            ("--only", "nothing", "true"),
            "conformance: there is no case 'nothing': they are hello, ",
        ),
        (("no-such-program",), "conformance: no-such-program: cannot be started: No such file"),
        (("true", "{address}", "{name}"), "the client's command: there is no {name}"),
        (("true", "{seats}"), "the client's command: there is no {address} in it"),
        ((), "name the client's command, or --list"),
    ],
)
def test_wrong_usage_is_told(typed: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    """Exit code 2, and a sentence that says in what."""
    said = tried(tmp_path, *typed)
    assert said.returncode == 2, said.stdout
    assert sentence in said.stderr


def test_a_program_that_is_no_client_is_shown(tmp_path: Path) -> None:
    """What it has written, and how it has ended, stand below the case."""
    code = "import sys; sys.exit('no such module')"
    said = tried(tmp_path, "--only", "hello", sys.executable, "-c", code)
    assert said.returncode == 1
    assert "came:       the client has ended with exit code 1\n" in said.stdout
    assert "        no such module\n" in said.stdout
