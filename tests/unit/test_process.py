"""Child processes: spawned, heard, told apart by how they ended, and never left behind."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hts.errors import RoleDied, RoleFailed
from hts.runtime.process import Child, wait_message
from tests.fakes import children
from tests.fakes.births import is_born


@contextmanager
def child(role: Callable[..., None], *given: Any, name: str = "somebody") -> Iterator[Child]:
    """A child that is ended whatever happens."""
    made = Child(name, role, *given)
    try:
        yield made
    finally:
        made.end()


def test_a_child_is_born_of_a_nursery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 34: it knows nothing of its parent's memory but what it is given; it is shown by its
    name; Ctrl-C is its parent's business."""
    monkeypatch.setattr(children, "mark", "changed here")
    with child(children.tell, {"a": [1, 2]}, name="executor 7") as one:
        said = one.hear()
        assert is_born(one.pid)
        assert said == {
            "given": {"a": [1, 2]},
            "mark": "as imported",
            "name": "executor 7",
            "parent": os.getpid(),
            "interrupt": True,
        }


def test_messages_are_json() -> None:
    """What cannot be written as JSON is not sent, and numbers come back as they were."""
    with child(children.repeat) as one:
        sent = {"floats": [0.1, 1e-300, -0.0], "word": "ö", "nested": {"n": None, "t": True}}
        one.pipe.send(**sent)
        assert one.hear() == sent
        with pytest.raises(TypeError, match="not JSON serializable"):
            one.pipe.send(what=object())


def test_what_a_child_raises_comes_with_its_name_and_traceback() -> None:
    """Rule 35: the role, the line and the words; in short, the last line of it."""
    given = "the door is closed"
    with (
        child(children.fail, given, name="actor 3") as one,
        pytest.raises(RoleFailed) as caught,
    ):
        one.hear()
    said = str(caught.value)
    assert said.startswith("actor 3 failed: Traceback")
    assert "raise ValueError(message)" in said
    assert caught.value.short == "actor 3 failed: ValueError: the door is closed"


@pytest.mark.parametrize("error", ["EOFError", "BrokenPipeError"])
def test_a_lost_simulator_is_not_taken_for_a_lost_parent(error: str) -> None:
    """Rule 35: a simulator behind a socket of its own raises what a closed pipe raises."""
    failure = pytest.raises(RoleFailed, match=f"{error}: no simulator$")
    with child(children.lose_its_simulator, error, name="executor 0") as one, failure:
        one.hear()


def test_a_child_without_a_parent_to_talk_to_ends_in_silence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It hears that nobody is there any more, and says nothing about it on the terminal."""
    one = Child("somebody", children.repeat)
    ended = os.pidfd_open(one.pid)
    one.pipe.connection.close()
    waiting = select.poll()
    waiting.register(ended, select.POLLIN)
    assert waiting.poll(60_000)
    os.close(ended)
    one.end()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("role", "given", "words"),
    [
        (children.leave, 5, "it ended with exit code 5"),
        (children.leave, 0, "it ended with exit code 0"),
        (children.be_killed, signal.SIGKILL, "it was ended by SIGKILL"),
        (children.be_killed, signal.SIGSEGV, "it was ended by SIGSEGV"),
    ],
)
def test_a_child_that_is_gone_says_how(role: Callable[..., None], given: int, words: str) -> None:
    """Rule 35: an end without a word is a failure too, exit code 0 included."""
    with child(role, int(given), name="learner") as one, pytest.raises(RoleDied) as caught:
        one.hear()
    assert caught.value.short == f"learner failed: {words}"
    at_fault = words.endswith("SIGSEGV")
    assert ("Fatal Python error" in str(caught.value)) == at_fault, "where it was, if it knows"
    assert ("in be_killed" in str(caught.value)) == at_fault


def test_a_message_that_is_torn_is_a_death() -> None:
    """Killed while it sends, a child has died like any other: it can be replaced."""
    torn = pytest.raises(RoleDied, match="it was ended by SIGKILL")
    with child(children.tear) as one, torn:
        one.hear()


def test_the_first_of_many_that_fails_is_the_one_that_is_named() -> None:
    """Whoever waits for messages of all children hears of a death among them, and of whose."""
    with child(children.tell, 1) as quiet, child(children.repeat, name="executor 1") as dying:
        assert wait_message([quiet, dying])["given"] == 1
        os.kill(dying.pid, signal.SIGKILL)
        with pytest.raises(RoleFailed, match="executor 1 failed: it was ended by SIGKILL"):
            wait_message([quiet, dying])


def test_a_child_that_hears_nothing_is_ended_all_the_same() -> None:
    """Neither a role that ignores the request to end nor one that is stopped stays behind."""
    with child(children.be_deaf) as deaf, child(children.repeat) as stopped:
        deaf.hear()
        os.kill(stopped.pid, signal.SIGSTOP)
        pids = [deaf.pid, stopped.pid]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
