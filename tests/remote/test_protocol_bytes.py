"""The bytes in PROTOCOL.md are those that are sent: each example is packed anew and compared."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import zmq

from hts.remote import wire
from hts.remote.hello import Hello
from hts.remote.listening import Listening
from hts.remote.port import Port
from hts.remote.talk import Offer, Talk
from hts.remote.wire import Format, Frames, Stand
from hts_envs.contract import Array, Box, Discrete, Spaces
from tests.house.sources import ROOT
from tests.remote.storm import GREETING, ready

PAGE = ROOT / "hts" / "remote" / "PROTOCOL.md"
TITLE = re.compile(r"    (?:simulator|run): \[\"(\w+)\"")
EMPTY = "(an empty frame)"

SPACES = Spaces({"observation": Box((2,), "float32", -1.0, 1.0)}, Discrete(2))
FORMAT = Format(SPACES, 1)
SESSION = bytes(range(16))


def seed(number: int) -> bytes:
    return number.to_bytes(8, "little")


def shows(*numbers: float) -> dict[str, Array]:
    return {"observation": np.array([[numbers]], np.float32)}


def stand(turn: int, reward: float, end: int, *shown: dict[str, Array]) -> Frames:
    """What the seat says; where there is a second observation, it is the last of an episode."""
    facts = {0: {"return": reward, "length": 1}} if end else {}
    final = shown[1] if len(shown) > 1 else {}
    ends = np.array([end], np.uint8)
    return FORMAT.stand(
        0, turn, Stand(shown[0], np.array([[reward]], np.float32), ends, final, facts)
    )


def hello() -> bytes:
    """As the Python client says it, but for its name and what it draws."""
    talk = Talk(Offer(SPACES, name="c++"))
    talk.hello()
    ((head,),) = talk.outbox
    _, (facts,) = wire.unpack(head)
    return head.replace(facts["session"], SESSION)


SAID: list[Frames] = [
    [hello()],
    [wire.pack("welcome", {"protocol": wire.PROTOCOL, "run": "3f2a"})],
    [wire.pack("take", 0, 3, 1, seed(5))],
    FORMAT.act(0, 0, [0], b"", seed(7)),
    stand(0, 0.0, 0, shows(0.5, -0.25)),
    FORMAT.act(0, 1, [], np.array([[1]], "<i8").tobytes(), seed(9)),
    stand(1, 1.0, wire.TRUNCATED, shows(0.0, 0.0), shows(1.0, -1.0)),
    [wire.pack("ping", [[0, 1]])],
    [wire.pack("again", 0, 1)],
    [wire.pack("here")],
    [wire.pack("who")],
    [wire.pack("fail", 0, "it broke")],
    [wire.pack("drop", 0)],
    [wire.pack("bye")],
    [wire.pack("refused", "it speaks protocol 2, this run speaks 1")],
    [wire.pack("over")],
]
"""What the examples say, in their order."""


def examples(page: str) -> Iterator[tuple[str, Frames]]:
    """Kind and frames of each example: a line is a frame, and deeper ones go on with it."""
    for block in page.split("\n\n"):
        title = TITLE.match(block)
        if not title:
            continue
        frames: list[str] = []
        for line in block.splitlines():
            depth = len(line) - len(line.lstrip())
            text = line.strip()
            if depth == 6:
                frames.append("" if text == EMPTY else text)
            elif depth > 6:
                frames[-1] += text
        yield title[1], [bytes.fromhex(each) for each in frames]


def test_every_example_is_what_is_sent() -> None:
    """Frame by frame, in the order of the page."""
    found = list(examples(PAGE.read_text()))
    assert [kind for kind, _ in found] == [wire.unpack(frames[0])[0] for frames in SAID]
    for (kind, told), said in zip(found, SAID, strict=True):
        assert [each.hex(" ") for each in told] == [each.hex(" ") for each in said], kind


def test_there_is_an_example_of_every_kind() -> None:
    """Of each that a simulator or a run says."""
    assert {kind for kind, _ in examples(PAGE.read_text())} == set(wire.KINDS)


def test_the_examples_are_read_as_they_are_meant() -> None:
    """By the layer that reads what comes: spaces, arrays and facts are those that were packed."""
    found = dict(examples(PAGE.read_text()))
    assert Hello.read(*wire.unpack(found["hello"][0])[1]).spaces == SPACES
    _, (_, turn, facts) = wire.unpack(found["stand"][0])
    last = FORMAT.read_stand(facts, found["stand"][1:])
    assert (turn, last.reward.item(), last.ends.tolist()) == (1, 1.0, [wire.TRUNCATED])
    assert last.final["observation"].tolist() == [[[1.0, -1.0]]]
    action, seeds = FORMAT.read_act([], found["act"][1:])
    assert action is not None
    assert (action.tolist(), seeds.tolist()) == ([[1]], [9])


def test_a_client_without_libzmq_is_heard_and_answered() -> None:
    """Bytes of ZMTP 3.0 over plain TCP, and no heartbeats."""
    context: zmq.Context[Any] = zmq.Context()
    listening = Listening(Port("tcp://127.0.0.1:*"), context, wire.HEAD_LIMIT)
    host, port = listening.port.address.removeprefix("tcp://").split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=10) as link:
            head = wire.pack("ping", [])
            link.sendall(GREETING + ready())
            assert link.recv(1, socket.MSG_PEEK)
            link.sendall(bytes((0, len(head))) + head)
            assert listening.socket.poll(10_000)
            route, *frames = listening.socket.recv_multipart()
            assert frames == [head]
            answer = wire.pack("here")
            listening.socket.send_multipart([route, answer])
            heard = b""
            while not heard.endswith(bytes((0, len(answer))) + answer):
                heard += link.recv(1_000)
    finally:
        context.destroy(linger=0)
