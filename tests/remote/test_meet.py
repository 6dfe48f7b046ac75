"""The first simulator of `--env remote:NAME`: what is refused, and what a terminal shows of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from hts.cli.show_config import show_config
from hts.config import Config, Given, configure
from hts.remote import wire
from hts.runtime.evaluation import why_none
from hts.runtime.preparation import dialled_in
from hts_envs.contract import Box, Discrete, Space, Spaces
from tests.remote.dialling import free_address
from tests.remote.hostile import Words

SPACES = Spaces({"observation": Box((4,))}, Discrete(2))
ESCAPES = "\x1b[2J\x07" * 100_000


class Simulator:
    """A socket that sends what it is told to, and returns what the run answers."""

    def __init__(self, address: str) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket: zmq.Socket[Any] = self._context.socket(zmq.DEALER)
        self._socket.rcvtimeo = 20_000
        self._socket.connect(address)

    def send(self, **facts: Any) -> None:
        self._socket.send(Words(0, SPACES).hello(**facts))

    def answer(self) -> list[Any]:
        (head,) = self._socket.recv_multipart()
        kind, values = wire.unpack(head)
        return [kind, *values]

    def close(self) -> None:
        self._context.destroy(linger=1_000)


REMOTE = [
    Given("experiment.env", "remote:mine", "--env"),
    Given("machine.listen", "tcp://127.0.0.1:*", "--listen"),
]


@pytest.fixture
def config() -> Config:
    return configure("smoke", [], [*REMOTE, Given("machine.listen", free_address(), "--")]).config


@pytest.fixture
def simulator(config: Config) -> Iterator[Simulator]:
    """A simulator of a run that waits for its first one, and that takes a good one in the end."""
    assert config.machine.listen is not None
    taken: list[Spaces | None] = []
    run = threading.Thread(target=lambda: taken.append(dialled_in(config)[1]))
    run.start()
    found = Simulator(config.machine.listen)
    try:
        yield found
        found.send(spaces=wire.spaces_to_plain(SPACES))
        run.join(20)
    finally:
        found.close()
    assert taken == [SPACES]


@pytest.mark.parametrize(
    "spaces",
    [
        Spaces({"observation": Box((4,))}, Discrete(1 << 31)),
        Spaces({"observation": Discrete(1 << 31)}, Discrete(2)),
        Spaces({"observation": Box((16_384, 16_384))}, Discrete(2)),
        Spaces({f"f{n}": Box((64,), "float64") for n in range(64)}, Discrete(2), 1 << 16),
    ],
    ids=["actions", "choices", "a box", "fields and agents"],
)
def test_spaces_that_do_not_fit_into_memory_are_refused(
    spaces: Spaces, simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    """At both ends in a sentence; and the run waits for the next simulator."""
    simulator.send(spaces=wire.spaces_to_plain(spaces))
    kind, why = simulator.answer()
    assert kind == "refused"
    assert why.startswith("its spaces need at least ")
    assert "MiB are free" in why
    assert f"is refused: {why}\n" in capsys.readouterr().err


@pytest.mark.parametrize("space", [Box((0,)), Box((3, 0))])
def test_an_empty_box_is_no_space(space: Space, simulator: Simulator) -> None:
    """A hello with one is dropped like any other that is not as agreed."""
    simulator.send(spaces=wire.spaces_to_plain(Spaces({"observation": space}, Discrete(2))))
    assert simulator.answer() == ["who"]


@pytest.mark.parametrize("protocol", [ESCAPES, [ESCAPES], None, 1.5, True])
def test_a_protocol_is_a_whole_number(
    protocol: object, simulator: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is none is dropped, and reaches no terminal."""
    simulator.send(protocol=protocol)
    assert simulator.answer() == ["who"]
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert all(len(line) < 200 for line in said.splitlines())


def test_another_protocol_is_refused(simulator: Simulator) -> None:
    """In a sentence that names both."""
    simulator.send(protocol=1 << 60)
    why = f"it speaks protocol {1 << 60}, this run speaks 1"
    assert simulator.answer() == ["refused", why]


def test_a_run_says_that_it_evaluates_nothing() -> None:
    """At its start and in --show-config, where only simulators know the environment."""
    given = [Given("machine.listen", "tcp://127.0.0.1:*", "--listen")]
    for env, is_evaluated in (("remote:mine", False), ("gym:CartPole-v1", True)):
        resolved = configure("ppo-cartpole", [], [*given, Given("experiment.env", env, "--env")])
        (line,) = (
            line
            for line in show_config(resolved, colour=False).splitlines()
            if "evaluate_every" in line
        )
        assert ("no effect" not in line) is is_evaluated
        assert (why_none(resolved.config) is None) is is_evaluated
    quiet = [Given("machine.evaluate_every", "0", "--evaluate")]
    assert why_none(configure("smoke", [], [*REMOTE, *quiet]).config) is None
