"""`hts-executor` as a person runs it: real processes, a real run, and the digest of a local one."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hts.cli.executor import main, numbered
from tests.fakes import runs
from tests.fakes.births import children_of, is_born
from tests.fakes.once import MARK
from tests.remote import commands
from tests.remote.dialling import Going, Told, free_address, machine, told

COMMAND = (sys.executable, "-W", "error", "-m", "hts.cli.executor")


class Command:
    """The command while it runs, and what it has said so far."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.process = subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._more:
                self.said.append(line.rstrip("\n").removeprefix("hts-executor: "))
                self._more.notify_all()

    def until(self, pattern: str, times: int = 1) -> None:
        """Wait for a line like this."""
        with self._more:
            found = self._more.wait_for(lambda: self.count(pattern) >= times, 60)
        assert found, self.said

    def count(self, pattern: str) -> int:
        return sum(re.search(pattern, line) is not None for line in self.said)

    @property
    def children(self) -> list[int]:
        """Those that step simulators."""
        return [pid for pid in children_of(self.process.pid) if is_born(pid)]

    def wait(self) -> int:
        code = self.process.wait(60)
        self._reader.join()
        return code

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def command(*words: str) -> Iterator[Command]:
    made = Command(words)
    try:
        yield made
    finally:
        made.end()


def links(asked: Any) -> list[Any]:
    return [updated.link for updated in runs.outcome(asked)]


@pytest.mark.parametrize(
    ("env", "words", "changes"),
    [
        ("reference:?agents=2", ("--processes", "2"), {}),
        ("python:tests.fakes.breaking:make?action=many", ("--processes", "1", "--seats", "4"), {}),
        ("reference:?agents=2", ("--processes", "1", "--rows", "2"), {"seat": 2}),
        (
            "sleeper:?batch=true&mean=0&length=9",
            ("--processes", "1", "--rows", "2"),
            {"seat": 2},
        ),
    ],
)
def test_the_digest_is_that_of_the_run_without_it(
    env: str, words: tuple[str, ...], changes: dict[str, Any]
) -> None:
    """Single and batched worlds, several agents, every kind of action; and the same episodes."""
    asked = runs.experiment(env)
    local, address = runs.outcome(asked), free_address()
    with command("--connect", address, "--env", env, *words) as served:
        found = told(asked, machine(address, **changes))
        assert served.wait() == 0
        assert served.said[-1] == "the run is over"
    assert found.links == [updated.link for updated in local]
    assert [u.episodes for u in found.updates] == [updated.episodes for updated in local]


def test_it_says_what_it_holds_and_stays_for_the_next_run() -> None:
    """Two runs after each other, on one command that was there before both and leaves when asked:
    replicas are shared evenly, it holds no torch, and its seats are free at once."""
    asked = runs.experiment("reference:", updates=30)
    expected, address = links(asked), free_address()
    with command(
        "--connect", address, "--env", "reference:", "--processes", "2", "--stay"
    ) as served:
        served.until("nobody listens there yet")
        for times in (1, 2):
            assert told(asked, machine(address)).links == expected
            # Which one it is depends on whether the last word arrives before the run is gone.
            ends = "the run is over; waiting for the next one|the run is gone|nobody listens"
            served.until(ends, times + 1)
        served.until("the run is there")
        assert len(served.children) == 2
        for child in served.children:
            assert "torch" not in Path(f"/proc/{child}/maps").read_text()
        served.process.send_signal(signal.SIGINT)
        assert served.wait() == 130
        assert served.said[-1] == "interrupted"
        assert not served.count("Traceback"), "\n".join(served.said)


def test_who_is_ended_leaves_its_seats_to_others(capfd: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C in the middle: goodbye is said, and another command goes on; the digest is the same.
    One of its processes is killed: another one takes its place."""
    asked = runs.experiment("reference:", updates=120)
    expected, address = links(asked), free_address()
    words = ("--connect", address, "--env", "reference:", "--processes", "1")
    with command(*words) as first, ExitStack() as stack:

        def story(going: Going) -> None:
            going.until(3)
            second = stack.enter_context(command(*words))
            first.process.send_signal(signal.SIGINT)
            assert first.wait() == 130
            going.until(8)
            (child,) = second.children
            os.kill(child, signal.SIGKILL)
            assert second.wait() == 0
            assert second.count("ended by SIGKILL; another one goes on in its place") == 1

        assert told(asked, machine(address), story).links == expected
    assert "has left" in capfd.readouterr().err


def test_a_simulator_that_raises_is_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said in one line, without a traceback, and the digest is that of a sound one."""
    monkeypatch.setenv(MARK, str(tmp_path / "sound"))
    (tmp_path / "sound").touch()
    asked, address = runs.experiment("python:tests.fakes.once:make"), free_address()
    expected = links(asked)
    monkeypatch.setenv(MARK, str(tmp_path / "broken"))
    with command("--connect", address, "--env", asked.env, "--processes", "1") as served:
        found: Told = told(asked, machine(address))
        assert served.wait() == 0
        line = "the simulator raised RuntimeError: the engine has lost the ball 16"
        assert served.count(f"^replica [0-3]: {line}$") == 1
        assert not served.count("Traceback")
    assert found.links == expected
    assert found.marks == []


def test_other_spaces_are_refused() -> None:
    """The run's own sentence, and exit code 2; the right one is not disturbed by that."""
    asked, address = runs.experiment("reference:"), free_address()
    wrong = ("--connect", address, "--env", "reference:?agents=2", "--processes", "2")
    with command(*wrong) as other:

        def story(_: Going) -> None:
            assert other.wait() == 2
            words = ("--connect", address, "--env", "reference:", "--processes", "1")
            with command(*words) as right:
                assert right.wait() == 0

        assert told(asked, machine(address), story).links == links(asked)
        assert other.said[-1] == "it has 2 agents; this run has 1"


def test_who_has_a_key_is_let_in_and_who_has_none_is_not(tmp_path: Path) -> None:
    """hts-keys, hts-train and hts-executor as people type them: with a key that the run knows the
    run goes to its end, with the digest of one without a socket; without one, nobody hears it."""
    keys, path = tmp_path / "keys", tmp_path / "run"
    made = [sys.executable, "-m", "hts.cli.keys", str(keys), "lab"]
    subprocess.run(made, check=True, capture_output=True)
    typed = ("--config", "smoke", "--env", "reference:", "--steps", "1024")
    listening = ("--listen", "tcp://127.0.0.1:*", "--set", f"keys={keys}")
    with commands.Command.new(path, *typed, *listening) as run:
        dialled = ("--connect", run.address, "--env", "reference:", "--processes", "1")
        with command(*dialled) as stranger:
            assert stranger.wait() == 2
            assert stranger.count("keys are needed there and none are given") == 1
        assert commands.lines(path) == []
        with command(*dialled, "--keys", str(keys / "lab")) as known:
            assert known.wait() == 0
            assert known.said[-1] == "the run is over"
        assert run.ends() == 0, run.said
    local = runs.outcome(runs.experiment("reference:", rollout=32, steps=1024))
    assert commands.result(path)["digest"] == local[-1].link.chain


def test_nobody_outlives_it() -> None:
    """Killed without a chance to end its children, it takes them with it."""
    with command("--connect", free_address(), "--env", "reference:", "--processes", "2") as served:
        served.until("nobody listens there yet")
        children = [os.pidfd_open(child) for child in served.children]
        served.process.kill()
        for child in children:
            gone, _, _ = select.select([child], [], [], 10.0)
            os.close(child)
            assert gone


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--env reference:", "the following arguments are required: --connect"),
        ("--connect tcp://127.0.0.1 --env reference:", "must be tcp://HOST:PORT or ipc://PATH"),
        ("--connect tcp://127.0.0.1:1 --env referense:", "did you mean 'reference'?"),
        ("--connect tcp://127.0.0.1:1 --env gym:CartPol-v1", "there is no environment"),
        (
            "--connect tcp://127.0.0.1:1 --env remote:",
            "has no simulator that can be built here; name another family",
        ),
        (
            "--connect tcp://127.0.0.1:1 --env reference: --seats 0",
            "--seats: must be auto or a whole number from 1, not 0",
        ),
        ("--connect tcp://127.0.0.1:1 --env reference: --seat 2", "did you mean '--seats'?"),
        ("--connect tcp://127.0.0.1:1 --env reference: --keys /nowhere", "/nowhere: a simulator's"),
    ],
)
def test_what_is_mistyped_is_told_in_one_sentence(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and no traceback."""
    try:
        code = main(words.split())
    except SystemExit as end:
        code = int(end.code or 0)
    said = capsys.readouterr().err
    assert code == 2
    assert sentence in said
    assert "Traceback" not in said


def test_replicas_are_numbered_for_people() -> None:
    """Several in a row as from the first to the last."""
    assert numbered([]) == "no replica"
    assert numbered([3]) == "replica 3"
    assert numbered([3, 4]) == "replicas 3 to 4"
    assert numbered([0, 1, 2, 5]) == "replicas 0 to 2 and 5"
    assert numbered([0, 2, 4]) == "replicas 0, 2 and 4"
