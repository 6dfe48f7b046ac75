"""The clients in C++ and JavaScript: built as others build them, and trained on in real runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import zmq

from hts.remote import wire
from hts.remote.hello import Hello
from hts.remote.wire import Format, Frames, Stand
from hts_envs.contract import Array, Box, Discrete, MultiDiscrete, Spaces
from tests.fakes import runs
from tests.house.sources import ROOT
from tests.limits import HANG
from tests.remote.conformance import Whole, whole

HERE = Path(__file__).parent / "other_languages"
CPP, JS = ROOT / "hts" / "remote" / "cpp", ROOT / ".cache" / "js"
LACKS = "what builds this client is not there: tools/setup.sh dev installs it"
TRAIN = (sys.executable, "-m", "hts.cli.train", "--config", "smoke", "--evaluate", "0")

Program = Callable[[str], list[str]]
"""The command of one of its programs, by name."""


def _built(source: Path, folder: Path, *options: str) -> Path:
    flags = "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Wshadow -Werror"
    _succeeds(["cmake", "-S", str(source), "-B", str(folder), flags, *options])
    _succeeds(["cmake", "--build", str(folder), "--parallel", "2"])
    return folder


def _succeeds(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def _cpp(folder: Path) -> Program:
    headers = "#include <zmq.h>\n#include <msgpack.hpp>\n"
    tries = ["g++", "-std=c++17", "-DMSGPACK_NO_BOOST", "-E", "-x", "c++", "-"]
    if not (shutil.which("cmake") and shutil.which("g++")):
        pytest.skip(LACKS)
    if subprocess.run(tries, input=headers, text=True, capture_output=True).returncode:
        pytest.skip(LACKS)
    examples = _built(CPP, folder / "examples")
    embedding = _built(HERE, folder / "embedding", f"-DHTS_SEAT={CPP}")
    places = {"every_space": embedding}
    return lambda name: [str(places.get(name, examples) / name)]


def _js() -> Program:
    if not (shutil.which("node") and (JS / "node_modules" / "zeromq").is_dir()):
        pytest.skip(LACKS)
    node = ["node", "--preserve-symlinks", "--preserve-symlinks-main"]
    others = {"every_space": [str(HERE / "every_space.mjs"), str(JS / "seat.mjs")]}
    return lambda name: [*node, *others.get(name, [str(JS / f"{name}.mjs")])]


@pytest.fixture(scope="module", params=["cpp", "js"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return _cpp(tmp_path_factory.mktemp("cpp")) if request.param == "cpp" else _js()


@pytest.fixture(scope="module")
def all_cases(program: Program) -> Iterator[Whole]:
    """Of `tools/conformance`, beside the other tests of this client."""
    with whole(program("reference")) as begun:
        yield begun


# --- real runs ------------------------------------------------------------------------------------


class _Run:
    """A run that listens, and whoever is started to dial in; none outlives the test."""

    def __init__(self, stack: ExitStack, steps: int) -> None:
        self._stack = stack
        folder = stack.enter_context(TemporaryDirectory())
        words = ["--env", "reference:", "--steps", str(steps), "--run-dir", f"{folder}/run"]
        self._process = self.start([*TRAIN, "--listen", "tcp://127.0.0.1:*", *words])

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, text=True, cwd=ROOT, **pipes)
        self._stack.callback(_end, process)
        return process

    def hears(self, pattern: str) -> re.Match[str]:
        """Wait until it has said this."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"it has never said {pattern}")

    def address(self) -> str:
        return self.hears(r"dial in at (tcp://\S+)")[1]

    def digest(self) -> str:
        """Its last one, when it is over."""
        return self.hears(r"done: digest (\w+)")[1]


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _over(clients: list[subprocess.Popen[str]]) -> None:
    """All of them have ended by themselves, with nothing to say."""
    for client in clients:
        said, _ = client.communicate(timeout=HANG)
        assert (said, client.returncode) == ("", 0)


@pytest.mark.usefixtures("all_cases")
def test_loops_of_their_own_have_the_digest_of_a_run_without_a_socket(program: Program) -> None:
    """Four simulators that ask, as the READMEs beside the clients show it."""
    with ExitStack() as stack:
        run = _Run(stack, 1024)
        address = run.address()
        clients = [run.start([*program("own_loop"), address]) for _ in range(4)]
        expected = runs.outcome(runs.experiment("reference:", rollout=32, steps=1024))
        assert run.digest() == expected[-1].link.chain
        _over(clients)


# --- spaces of every kind, and mistakes -----------------------------------------------------------

SPACES = Spaces(
    {
        "flag": Box((2,), "bool", 0.0, 1.0),
        "half": Box((), "float16"),
        "deep": Box((2, 1), "float64", ((-1.0,), (0.0,)), ((1.0,), (2.0,))),
        "large": Box((1,), "uint64", 0.0, 1e19),
        "one": Discrete(5),
        "several": MultiDiscrete((2, 3)),
    },
    Box((2,), "float32", -1.0, 1.0),
    agents=2,
)


class _Table:
    """The run's side of a conversation, with one simulator."""

    def __init__(self, socket: zmq.Socket[Any]) -> None:
        self._socket = socket
        self._format = Format(SPACES, 2)
        address = f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.address = address

    def hear(self, kind: str) -> tuple[list[Any], Frames]:
        while True:
            assert self._socket.poll(10_000), f"a {kind} was to come"
            self._route, head, *frames = self._socket.recv_multipart()
            found, values = wire.unpack(head)
            if found == kind:
                return values, frames

    def say(self, *values: Any) -> None:
        self._socket.send_multipart([self._route, wire.pack(*values)])

    def act(self, turn: int, begins: list[int], action: Array | None) -> Stand:
        raw = b"" if action is None else action.tobytes()
        frames = self._format.act(0, turn, begins, raw, np.arange(2, dtype="<u8").tobytes())
        self._socket.send_multipart([self._route, *frames])
        (seat, said, facts), frames = self.hear("stand")
        assert (seat, said) == (0, turn)
        return self._format.read_stand(facts, frames)


@contextmanager
def _table(command: list[str]) -> Iterator[tuple[_Table, subprocess.Popen[str]]]:
    context: zmq.Context[Any] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    try:
        table = _Table(socket)
        words = [*command, table.address, "20"]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        try:
            yield table, process
        finally:
            _end(process)
    finally:
        context.destroy(linger=0)


def test_spaces_of_every_kind_go_to_and_fro(program: Program) -> None:
    """As the run reads them: bounds, dtypes, facts, actions; mistakes are noticed before that."""
    with _table(program("every_space")) as (table, process):
        (facts,), _ = table.hear("hello")
        hello = Hello.read(facts)
        assert hello.spaces == SPACES
        assert (hello.seats, hello.rows, hello.replayable) == (1, 2, False)
        table.say("welcome", {"protocol": wire.PROTOCOL, "run": "a run"})
        table.say("take", 0, 6, 2, bytes(8))
        first = table.act(0, [0, 1], None)
        assert first.observation["flag"].all()
        assert (first.observation["half"] == 1).all()
        assert (first.observation["large"] == 0xFEDCBA9876543210).all()
        assert (first.observation["one"] == 4).all()
        assert (first.observation["several"] == [1, 2]).all()
        action = np.linspace(-1, 1, 8, dtype=np.float32)
        stand = table.act(1, [], action)
        assert stand.ends.tolist() == [1, 2]
        assert stand.reward.tolist() == [[0.25, 0.75], [-1.0, -2.0]]
        assert (stand.observation["deep"] == 0.5).all(), "the next episodes have begun"
        assert (stand.final["deep"].reshape(-1) == action[4:]).all()
        assert stand.facts[0] == {"return": 0.5, "length": 1}
        assert stand.facts[1] == {"return": -1.5, "length": 1, "score": 1.5}
        table.say("refused", "no\x1b")
        assert (process.communicate(timeout=10)[1], process.returncode) == ("no?", 3)


def test_patience_ends(program: Program) -> None:
    """Where no run has said a word for long enough, a client says so."""
    nobody = "tcp://127.0.0.1:9"
    result = subprocess.run(
        [*program("every_space"), nobody, "0.5"], stderr=subprocess.PIPE, text=True, timeout=HANG
    )
    assert result.returncode == 4
    assert result.stderr.startswith("no run has said a word for 0.5")


def test_it_passes_the_whole_conformance_suite(all_cases: Whole) -> None:
    """As the Python client does: every case there is, keys and whole runs among them."""
    all_cases.passes()
