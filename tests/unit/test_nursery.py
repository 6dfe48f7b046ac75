"""Where children are born: quickly, with nothing of their parent, and whatever becomes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from hts.memory.doorbell import Doorbell
from hts.runtime import nursery
from hts.runtime.process import Child
from tests.fakes import births, children


def test_a_child_has_torch_without_importing_it() -> None:
    """In a fraction of the time that this takes, with one thread, and pages that are shared."""
    child = Child("learner", children.tell_what_is_there)
    try:
        said = child.hear()
    finally:
        child.end()
    assert said["torch"] is True
    assert said["threads"] == 1
    assert said["seconds"] < 0.5, "of the processor; an import takes one or two"
    assert said["own"] < 60e6, "bytes; an import of its own takes 140 MB"


def test_a_child_is_where_its_parent_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Folder, environment, cores and standard output as they are when it is asked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HTS_TEST_PLACE", "here")
    monkeypatch.delenv("HOME", raising=False)
    cores = os.sched_getaffinity(0)
    one = min(cores)
    os.sched_setaffinity(0, {one})
    child = Child("executor 3", children.tell_where)
    try:
        said = child.hear()
    finally:
        os.sched_setaffinity(0, cores)
        child.end()
    expected = {"folder": str(tmp_path), "place": "here", "home": None, "cores": [one]}
    assert said == expected
    assert capfd.readouterr().out == "printed there\n"


def test_who_was_born_lives_on_without_the_nursery() -> None:
    """It may be killed, by whom ever: nobody goes with it, and the next child is born elsewhere."""
    first = Child("executor 0", children.repeat)
    first.pipe.send(word="there")
    assert first.hear() == {"word": "there"}, "and has a name of its own"
    (before,) = births.nurseries(os.getpid())
    os.kill(before, signal.SIGKILL)
    second = Child("executor 1", children.repeat)
    try:
        for child in (first, second):
            child.pipe.send(word="still there")
            assert child.hear() == {"word": "still there"}
        assert births.nurseries(os.getpid()).isdisjoint({before})
        assert births.children_of(os.getpid()) >= {first.pid, second.pid}
    finally:
        first.end()
        second.end()


def test_one_killed_after_the_other_costs_time_and_nothing_else() -> None:
    """Three of them, each as soon as it is there: a fourth one bears the child."""
    killed: set[int] = set()

    def kill() -> None:
        while len(killed) < 3:
            for pid in births.nurseries(os.getpid()) - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
                one_is_gone.set()

    one_is_gone = threading.Event()
    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    one_is_gone.wait()
    child = Child("executor 0", children.repeat)
    try:
        child.pipe.send(word="there")
        assert child.hear() == {"word": "there"}
        killing.join()
        assert len(killed) == 3
    finally:
        child.end()


def test_more_descriptors_than_the_kernel_takes_at_once() -> None:
    """As an executor with hundreds of neighbours is given."""
    bells = [Doorbell() for _ in range(300)]
    child = Child("actor 0", children.ring_all, bells)
    try:
        assert child.hear() == {"rung": 300}
        for bell in bells:
            bell.wait()
            bell.close()
    finally:
        child.end()


def test_children_are_born_while_others_are() -> None:
    """From several threads, each hears of its own."""
    said: list[str] = []

    def bear(name: str) -> None:
        child = Child(name, children.tell, None)
        said.append(f"{name}: {child.hear()['name']}")
        child.end()

    names = [f"executor {number}" for number in range(8)]
    threads = [threading.Thread(target=bear, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [f"{name}: {name}" for name in names]


def test_other_people_s_orphans_are_not_adopted() -> None:
    """Whoever has borne children does not become the parent of what others leave behind: it would
    not bury them."""
    child = Child("executor 0", children.tell, None)
    child.hear()
    child.end()
    leaves = ["sh", "-c", "sleep 60 >&- & echo $!"]
    orphan = int(subprocess.run(leaves, stdout=subprocess.PIPE, text=True).stdout)
    try:
        assert orphan not in births.children_of(os.getpid())
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_one_of_which_nobody_knows_does_nothing(tmp_path: Path) -> None:
    """Asked for by who is interrupted before it hears of it: it ends without a step of its role."""
    mark = tmp_path / "mark"
    before = births.children_of(os.getpid())
    parcel = nursery._Parcel("nobody's", children.write, [str(mark)])
    pid = nursery._ask(parcel.descriptors)
    parcel.close()
    born = nursery.Born(pid)
    born.join(60)
    assert born.exitcode == 1
    born.close()
    assert not mark.exists()
    assert births.children_of(os.getpid()) == before
