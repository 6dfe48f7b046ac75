"""Cases: whole runs whose simulators are the client, against the same run without a socket."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hts.scratch import scratch

from .case import case
from .command import Process, Wishes, ends_with_us
from .said import Wrong
from .side import Trial

_STEPS = 3_840
_LOOK = 0.01
_SECONDS = 60.0
_WHEN_KILLED = 4  # updates that are there when a client is killed
_ADDRESS = re.compile(r"simulators dial in at (\S+)")


class Run:
    """`hts-train` with four replicas of the reference simulator, in a process of its own."""

    def __init__(self, folder: Path, agents: int, *typed: str) -> None:
        self.clients: list[Process] = []  # who has dialled in
        self._run, self._log = folder / "run", folder / "log"
        folder.mkdir()
        sizes = ["--config", "smoke", "--steps", str(_STEPS), "--evaluate", "0"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "hts.cli.train", *sizes]
                + ["--env", f"reference:?agents={agents}", "--run-dir", str(self._run), *typed],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ends_with_us,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def updates(self) -> int:
        """How many are in its record."""
        try:
            return (self._run / "digests.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def address(self) -> str:
        """Where its simulators dial in."""
        self._wait("it listens", lambda: bool(_ADDRESS.search(self.log)))
        found = _ADDRESS.search(self.log)
        assert found is not None, "it has just been there"
        return found[1]

    def wait_for(self, updates: int) -> None:
        self._wait(f"{updates} updates", lambda: self.updates >= updates)

    def digest(self) -> str:
        """Of the whole run."""
        self._wait("its end", lambda: self._process.poll() is not None)
        if self._process.returncode:
            came = f"exit code {self._process.returncode}\n{self.log}"
            raise Wrong("the run goes to its end", expected="exit code 0", came=came)
        result = json.loads((self._run / "result.json").read_text())
        if result["interrupted"]:
            raise Wrong("the run is undisturbed by its simulators", came=result["interrupted"])
        return str(result["digest"])

    def _wait(self, what: str, there: Callable[[], bool]) -> None:
        until = time.monotonic() + _SECONDS
        while not there():
            ended = [client.code for client in self.clients]
            if ended and None not in ended and 0 not in ended:
                came = f"every client has ended, with exit code {ended[-1]}"
                raise Wrong("the run advances", expected=what, came=came)
            if time.monotonic() > until or (self._process.poll() and not there()):
                came = f"{self.updates} updates within {_SECONDS:g} s\n{self.log}"
                raise Wrong("the run advances", expected=what, came=came)
            time.sleep(_LOOK)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Pair:
    """A run without a socket, and the same run whose simulators dial in."""

    def __init__(self, trial: Trial, folder: Path, given: contextlib.ExitStack) -> None:
        self._trial = trial
        self._folder = folder
        self._given = given

    def begin(self, *, agents: int = 1, seat: int = 1) -> None:
        self._agents = agents
        listen = ("--listen", "tcp://127.0.0.1:*", "--set", f"seat={seat}")
        self.remote = self._begun("remote", *listen)
        self._local = None if agents in self._trial.digests else self._begun("local")
        self._address = self.remote.address()

    def _begun(self, name: str, *typed: str) -> Run:
        run = Run(self._folder / name, self._agents, *typed)
        self._given.callback(run.close)
        return run

    def client(self, wishes: Wishes) -> Process:
        """One more that dials in."""
        process = self._given.enter_context(self._trial.start(self._address, wishes))
        self.remote.clients.append(process)
        return process

    def compare(self, *clients: Process) -> None:
        """The same digest, and nobody stays."""
        if self._local is not None:
            self._trial.digests[self._agents] = self._local.digest()
        came, expected = self.remote.digest(), self._trial.digests[self._agents]
        if came != expected:
            sentence = "the digest is that of the run without a socket"
            raise Wrong(sentence, expected=expected, came=came)
        for client in clients:
            client.ends(0, "the run is over")


@contextmanager
def _pair(trial: Trial) -> Iterator[Pair]:
    with scratch() as folder, contextlib.ExitStack() as given:
        yield Pair(trial, folder, given)


@case("digest")
def digest(trial: Trial) -> None:
    """Gives a real run the digest that it has without a socket: one client with four seats."""
    with _pair(trial) as pair:
        pair.begin()
        pair.compare(pair.client(Wishes(seats=4)))


@case("digest-two-clients")
def digest_two_clients(trial: Trial) -> None:
    """Gives a real run the same digest as two clients, with one seat and with three."""
    with _pair(trial) as pair:
        pair.begin()
        pair.compare(pair.client(Wishes(seats=1)), pair.client(Wishes(seats=3)))


@case("digest-rows")
def digest_rows(trial: Trial) -> None:
    """Gives a real run the same digest with two rows in each seat."""
    with _pair(trial) as pair:
        pair.begin(seat=2)
        pair.compare(pair.client(Wishes(seats=2, rows=2)))


@case("digest-agents")
def digest_agents(trial: Trial) -> None:
    """Gives a real run of two agents the same digest; with one agent it is refused there."""
    with _pair(trial) as pair:
        pair.begin(agents=2)
        stranger = pair.client(Wishes(agents=1))
        stranger.ends(3, "its spaces are not the run's", seconds=_SECONDS)
        pair.compare(pair.client(Wishes(seats=4, agents=2)))


@case("digest-killed")
def digest_killed(trial: Trial) -> None:
    """Gives a real run the same digest when it takes over from a client that is killed."""
    with _pair(trial) as pair:
        pair.begin()
        first = pair.client(Wishes(seats=4))
        pair.remote.wait_for(1)
        second = pair.client(Wishes(seats=4))
        pair.remote.wait_for(_WHEN_KILLED)
        first.kill()
        pair.compare(second)
