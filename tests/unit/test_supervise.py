"""How many may die, and when somebody is said to be waited for, under a clock of the test's own."""

from __future__ import annotations

import dataclasses
import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hts.config import Machine
from hts.errors import RoleDied
from hts.roles.blocks import Strayed
from hts.roles.rebuilding import Snapshot
from hts.runtime import executor_process, supervise, watch
from hts.runtime.assemble import plan
from hts.runtime.shared import Terms, allocate
from hts.runtime.supervise import Seat, Supervisor
from hts.soundness.case import Case, Kind
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

    def __init__(self, name: str, role: Any, assignment: Any) -> None:
        self.name = name
        self.assignment = assignment
        self.is_ready = False
        self.killed = False
        self.messages: list[dict[str, Any]] = []

    def hear(self) -> dict[str, Any]:
        if self.messages:
            return self.messages.pop(0)
        if self.is_ready:
            raise RoleDied(self.name, "it was ended by SIGKILL")
        self.is_ready = True
        return {"ready": True}

    def doing(self) -> str:
        return "it is stopped"

    def kill(self) -> None:
        self.killed = True

    def end(self) -> None:
        """There is no process."""


class Stillborn(Mortal):
    """A child that ends before it is ready, for this reason."""

    ends = ""
    births = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        type(self).births += 1

    def hear(self) -> dict[str, Any]:
        raise RoleDied(self.name, self.ends)


def first(children: Sequence[Mortal], _: float | None) -> Mortal:
    """Whoever is not ready has something to say, or else the first one."""
    return min(children, key=lambda child: child.is_ready)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(supervise, "time", made)
    monkeypatch.setattr(supervise, "Child", Mortal)
    monkeypatch.setattr(supervise, "wait_child", first)
    return made


def role(*_: Any) -> None:
    """Nothing runs here."""


@contextmanager
def supervising(
    replacements: int, patience: float = 0.0, cases: Path | None = None, **machine: Any
) -> Iterator[Supervisor]:
    """With an actor and an executor of two blocks that are ready, and memory that is given back
    afterwards."""
    asked = experiment()
    found = dataclasses.replace(plan(asked, parse(asked.env), "cpu"), cases=cases)
    layout = Machine(
        executors=1, actors=1, blocks=2, replacements=replacements, patience=patience, **machine
    )
    memory = allocate(found.blueprint(layout))
    try:
        made = Supervisor(found, layout, memory, memory.view())
        terms = Terms(asked, memory, found.roles, 0.0)
        executor = executor_process.Assignment(0, terms, False, None, None)
        made.start([Seat("actor 0", role, None), Seat("executor 0", role, executor)])
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


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("ends", "births"),
    [
        pytest.param("it ended with exit code 3", 2, id="of itself: once more"),
        pytest.param("it was ended by SIGSEGV", 2, id="of its own fault: once more"),
        pytest.param("it was ended by SIGKILL", 6, id="killed: as often as any other"),
    ],
)
def test_a_process_that_never_gets_ready_is_started_twice(
    ends: str, births: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends of itself before it is ready would do so again; what is killed would not."""
    monkeypatch.setattr(Stillborn, "ends", ends)
    monkeypatch.setattr(Stillborn, "births", 0)
    with supervising(5) as supervisor:
        monkeypatch.setattr(supervise, "Child", Stillborn)
        with pytest.raises(RoleDied, match=ends):
            supervisor.start([Seat("actor 0", role, None)])
    assert Stillborn.births == births


@pytest.mark.parametrize(("stepping", "last"), [("threads", 4.0), ("turns", 8.0)])
def test_a_step_may_take_as_long_as_the_limit(
    stepping: str, last: float, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a block alone; of two blocks that are stepped in turn, as long as both may take."""
    monkeypatch.setattr(watch, "time", clock)
    with supervising(1, step_limit=4.0, stepping=stepping) as supervisor:
        monkeypatch.setattr(supervise, "wait_child", lambda *_: None)
        desk, executor = supervisor._shared.desk, supervisor.children[1]
        desk.ask(0, 0, 0)
        desk.answer(0)
        ended = None
        while ended is None and clock.now < 100.0:
            clock.now += 1.0
            supervisor.listen()
            ended = clock.now if executor.killed else None
    assert ended == 1.0 + last + 1.0, "it is seen at 1, and looked at every second"


@pytest.mark.usefixtures("clock")
def test_a_successor_is_told_what_it_goes_on_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The actions that were heard from its own blocks, the rollout that its frames are known
    from, and the snapshots of its replicas, as they are when its predecessor dies."""
    with supervising(1) as supervisor:
        executor = supervisor.children[1]
        assert executor.assignment.past.actions == {}
        snapshot = Snapshot(3, 2, 300, b"a state")
        supervisor.heard.keep(snapshot)
        supervisor.heard.began = 4
        actions = [np.full((2, 16, 1), block) for block in range(2)]
        for block in range(2):
            supervisor.heard.past[block][4] = actions[block]
        monkeypatch.setattr(supervise, "wait_child", lambda children, _: children[1])
        supervisor.listen()
        successor = supervisor.children[1]
        assert successor is not executor
        past = successor.assignment.past
    assert past.since == 4
    assert past.snapshots == {3: [snapshot]}
    assert {block: list(heard) for block, heard in past.actions.items()} == {0: [4], 1: [4]}
    for block in range(2):
        np.testing.assert_array_equal(past.actions[block][4], actions[block])


@pytest.mark.usefixtures("clock")
def test_an_episode_that_strayed_is_written_down_where_it_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the rollout and step that its executor names: its block may have gone on since."""
    with supervising(1, cases=tmp_path / "failures") as supervisor:
        storages, desk = supervisor._shared.storages, supervisor._shared.desk
        storages[1].action[:] = 1
        storages[0].age[3, 5], storages[1].age[3, 9] = 3, 11
        supervisor.heard.past[1][0] = np.zeros_like(storages[0].action[2:])
        storages[1].age[3, 5] = 7
        desk.ask(1, 1, 9)
        strayed = dataclasses.asdict(Strayed(3, 2, 4))
        executor = supervisor.children[1]
        executor.messages.append({"strayed": [strayed], "rollout": 1, "step": 5})
        monkeypatch.setattr(supervise, "wait_child", lambda children, _: children[1])
        supervisor.listen()
        (mark,) = supervisor.heard.marks
    (path,) = (tmp_path / "failures").iterdir()
    assert path.name == "strays-replica3-rollout1-step5.safetensors"
    case = Case.read(path)
    assert (case.failure.kind, case.failure.words) == (Kind.STRAYS, mark)
    assert (case.failed, case.age.tolist()) == (3, [7])
    assert case.trail.tolist() == [[[0], [0], [1], [1], [1], [1], [1]]]
