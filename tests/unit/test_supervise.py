"""How many may die, and when somebody is said to be waited for, under a clock of the test's own."""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from hts.config import Machine
from hts.errors import RoleDied
from hts.runtime import supervise, watch
from hts.runtime.assemble import plan
from hts.runtime.shared import allocate
from hts.runtime.supervise import Seat, Supervisor
from hts_envs import parse
from tests.fakes.runs import experiment


class Clock:
    """A clock that stands still unless it is set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Mortal:
    """A child that gets ready, and is killed whenever it is heard again."""

    pid = 1

    def __init__(self, name: str, *_: Any) -> None:
        self.name = name
        self.is_ready = False

    def hear(self) -> dict[str, Any]:
        if self.is_ready:
            raise RoleDied(self.name, "it was ended by SIGKILL")
        self.is_ready = True
        return {"ready": True}

    def doing(self) -> str:
        return "it is stopped"

    def end(self) -> None:
        """There is no process."""


def first(children: Sequence[Mortal], _: float | None) -> Mortal:
    """The only one there is has something to say."""
    return children[0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(supervise, "time", made)
    monkeypatch.setattr(supervise, "Child", Mortal)
    monkeypatch.setattr(supervise, "wait_child", first)
    return made


@contextmanager
def supervising(replacements: int, patience: float = 0.0) -> Iterator[Supervisor]:
    """With an actor that is ready, and memory that is given back afterwards."""
    asked = experiment()
    found = plan(asked, parse(asked.env), "cpu")
    machine = Machine(executors=1, actors=1, replacements=replacements, patience=patience)
    memory = allocate(found.blueprint(machine))
    try:
        made = Supervisor(found, machine, memory, memory.view())
        made.start([Seat("actor 0", lambda: None, None)])
        yield made
    finally:
        memory.close()


@pytest.mark.parametrize(
    ("replacements", "deaths", "replaced"),
    [
        pytest.param(0, [0], 0, id="nobody may be replaced"),
        pytest.param(1, [0, 0], 1, id="one, and two at once"),
        pytest.param(2, [0, 1800, 3600], 2, id="the third one within the hour"),
        pytest.param(2, [0, 1800, 3601], 3, id="the third one behind it"),
        pytest.param(2, [0, 1800, 3601, 5400], 3, id="the hour goes on with the oldest of them"),
        pytest.param(2, [0, 1800, 3601, 5401, 7202], 5, id="two in every hour, for ever"),
        pytest.param(2, [0, 1, 9000, 9001, 9002], 4, id="all are forgotten, then three"),
    ],
)
def test_so_many_may_die_in_an_hour(
    clock: Clock,
    replacements: int,
    deaths: list[float],
    replaced: int,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """`machine.replacements` of them have successors; one more within the hour ends the run."""
    with supervising(replacements) as supervisor:
        for moment in deaths[:replaced]:
            clock.now = moment
            supervisor.listen()  # it dies
            supervisor.listen()  # its successor is ready
        if replaced < len(deaths):
            clock.now = deaths[replaced]
            with pytest.raises(RoleDied, match="actor 0 failed: it was ended by SIGKILL"):
                supervisor.listen()
        assert supervisor.replaced == ["actor 0 failed: it was ended by SIGKILL"] * replaced
        assert capfd.readouterr().err.count("another one goes on in its place") == replaced


def test_who_is_waited_for_is_rung_for_before_that_is_said(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once each: all bells, when half the patience is over, and the sentence, when all of it is."""
    monkeypatch.setattr(watch, "time", clock)
    with supervising(0, patience=8.0) as supervisor:
        monkeypatch.setattr(supervise, "wait_child", lambda *_: None)
        supervisor._shared.desk.ask(0, 0, 0)
        bell = supervisor._memory.bells.actors[0]
        rung, told = [], []
        for second in range(2, 22, 2):
            clock.now = second
            supervisor.listen()
            if select.select([bell], [], [], 0)[0]:
                bell.wait()
                rung.append(second)
            if "actor 0 has had to answer" in capfd.readouterr().err:
                told.append(second)
    assert (rung, told) == ([8], [12])
