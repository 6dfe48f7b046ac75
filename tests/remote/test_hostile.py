"""Whoever means harm at the port of a run: nobody else notices, and nothing grows."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from hts.remote import wire
from hts.remote.wire import HEAD_LIMIT, Frames, Malformed
from hts_envs.contract import Spaces
from hts_envs.reference import ReferenceWorld
from tests.limits import HANG
from tests.remote.besieged import TROUBLES, Besieged, besiege, decode
from tests.remote.generated import tried
from tests.remote.growth import Held
from tests.remote.hostile import Words
from tests.remote.schedules import STEPS, Schedule, Shape, local
from tests.remote.siege import siege

SPACES = ReferenceWorld(1).spaces
AT_ONCE = 2 << 20  # of a layer that keeps nothing at all
STAND = [bytes(4), bytes(1), bytes(16), bytes(16)]
EACH = 40  # hostile messages before each thing that honest simulators do
TOOL = Path(__file__).resolve().parents[2] / "tools" / "fuzz_remote"


def test_the_decoding_layer_takes_or_refuses_and_nothing_else() -> None:
    """A hundred thousand messages raise Malformed or are as agreed; memory does not grow."""
    words = Words(0, SPACES)
    decode(words, 20_000)
    before = Held()
    taken = decode(words, 80_000)
    assert 1_000 < taken < 40_000, "some are honest, most are not"
    growth = Held().since(before, 80_000, AT_ONCE)
    assert not growth.leaks, str(growth)


class Leaks(Words):
    """Something of each message stays."""

    def __init__(self, seed: int, spaces: Spaces, keep: Callable[[], Any]) -> None:
        super().__init__(seed, spaces)
        self._keep = keep

    def next(self) -> Frames:
        LEAKED.append(self._keep())
        return super().next()


LEAKED: list[Any] = []
LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p


@pytest.mark.parametrize(
    ("keep", "count"),
    [
        (lambda: bytes(100 - sys.getsizeof(b"")), 2_000),  # in one of Python's own pools
        (lambda: LIBC.malloc(100 - 8) or 0, 80_000),  # elsewhere; 8 bytes are malloc's own
    ],
    ids=["an object", "a piece of memory"],
)
def test_a_hundred_bytes_of_each_message_would_be_found(
    keep: Callable[[], Any], count: int
) -> None:
    """By what the tests above and below, and tools/fuzz_remote, ask for."""
    words = Leaks(0, SPACES, keep)
    decode(words, 20_000)
    before = Held()
    decode(words, count)
    growth = Held().since(before, count, AT_ONCE)
    if sys.getsizeof(b"") != 33:
        pytest.skip("sizes of objects are others in this Python")
    assert growth.leaks, str(growth)
    LEAKED.clear()


def test_a_siege_without_a_socket_finds_a_leak_too() -> None:
    """What the tool calls: the same messages with and without something that stays of them."""
    assert not besiege(0, 8_000).growth.leaks
    keep = partial(Leaks, keep=lambda: bytes(60))
    assert besiege(0, 8_000, keep).growth.leaks
    LEAKED.clear()


def test_what_the_grammar_makes_disturbs_nobody() -> None:
    """Messages by Hypothesis, between those of honest simulators; and all are read or refused."""
    count, well_formed = tried(15, 0)
    assert count > 300
    assert well_formed > 50


def test_a_message_that_does_harm_would_be_found() -> None:
    """Where somebody else's seat could be taken with the right words, the rollouts would differ."""

    class Trusting(Besieged):
        def _harm(self) -> None:
            for client in self._clients:
                turn = self._seating._blocks[0].turn + 1
                self._seating.hear(client.route, [wire.pack("stand", 0, turn, {}), *STAND])

    found = Trusting(0, Shape(), (), 1).run()
    assert found.hashes != local(Shape()).hashes


@pytest.mark.parametrize("shape", [Shape(), Shape(replicas=6, rows=3, agents=2)], ids=str)
def test_honest_simulators_are_not_disturbed(shape: Shape) -> None:
    """Between their messages, lost connections and deaths: tens of thousands of hostile ones."""
    expected, before, heard, warm = local(shape), None, 0, 0
    for seed in range(3):
        besieged = Besieged(seed, shape, TROUBLES, EACH)
        found = besieged.run()
        assert (found.hashes, found.ended, found.lost) == (expected.hashes, expected.ended, [])
        assert len(besieged.words.counts) == 10, "every kind was said"
        heard += besieged.heard
        del besieged
        if before is None and seed:
            before, warm = Held(), heard
    assert before is not None
    assert heard > 20_000
    growth = Held().since(before, heard - warm)
    assert not growth.leaks, str(growth)


def test_another_name_on_the_same_connection_frees_the_seats_of_the_first() -> None:
    """A simulator that becomes somebody else takes no seat out of the run for good."""
    expected = local(Shape())

    class Becomes(Schedule):
        said = 0

        def _point(self) -> None:
            if self.said < 20 and self.stage.desk.asked.max() >= STEPS:
                self.said += 1
                words = Words(self.said, SPACES)
                self._seating.hear(b"other", [words.fitting()])
                if self.said == 20:
                    self._seating.lost(b"other")
            super()._point()

    found = Becomes(0, Shape(), ("die",)).run()
    assert (found.hashes, found.ended) == (expected.hashes, expected.ended)


@pytest.mark.parametrize(
    "head",
    [
        b"\xdd\x00\x00\xea\x60" * 1_000 + bytes(60_000),
        b"\xdd\x00\x0f\xff\x00" * 1_000 + bytes(HEAD_LIMIT - 5_000),
        b"\xdf\x00\x0f\xff\x00" * 1_000,
        b"\x92\xa5hello" + b"\x91" * 100_000,
    ],
)
def test_what_lists_claim_to_hold_costs_nothing(head: bytes) -> None:
    """A list that claims to fill the rest, inside another one, takes no longer to refuse than an
    honest list of as many bytes takes to read."""
    honest = msgpack.packb([1] * len(head))
    reading, refusing = [], []
    for _ in range(20):
        since = time.process_time()
        msgpack.unpackb(honest)
        reading.append(time.process_time() - since)
        since = time.process_time()
        with pytest.raises(Malformed):
            wire.unpack(head)
        refusing.append(time.process_time() - since)
    assert min(refusing) < 10 * min(reading)


def test_spaces_of_wrong_types_are_malformed() -> None:
    """Anything at all where a dtype, a shape, a bound or a name belongs."""
    plain = wire.spaces_to_plain(SPACES)
    for thing in (None, [], {}, [[1]], b"x", -1, 1.5, "x", True, msgpack.Timestamp(1)):
        for at in range(5):
            box = ["box", [2], "float32", 0.0, 1.0]
            box[at] = thing
            if (at > 2 and type(thing) in (int, float)) or (at, thing) == (1, []):
                continue  # a bound, or the shape of a single number
            with pytest.raises(Malformed):
                wire.spaces_from_plain(plain | {"action": box})
        with pytest.raises(Malformed):
            wire.spaces_from_plain(plain | {"observation": [[thing, ["discrete", thing]]]})


def test_a_refusal_is_short_however_much_differs() -> None:
    """A simulator that is refused has not written the sentence that says why."""
    schedule = Schedule(0, Shape(), ())
    box = ["box", [50_000], "float32", [0.5] * 50_000, 1.0]
    names = [[f"{number:064d}", ["discrete", 2]] for number in range(64)]
    sent: list[list[bytes]] = []
    schedule._seating._send = lambda _, frames: sent.append(frames)
    plain = wire.spaces_to_plain(SPACES)
    for spaces in (plain | {"action": box}, plain | {"observation": names}):
        schedule._seating.hear(b"other", [Words(0, SPACES).hello(spaces=spaces)])
    assert len(sent) == 2
    assert all(wire.unpack(frames[0])[0] == "refused" for frames in sent)
    assert all(len(sentence) < 600 for sentence in [*schedule.notes, *(f[0] for f in sent)])


FLOODED = """
import socket, struct, sys, zmq
from hts.remote.listening import Listening
from hts.remote.port import Port
from tests.remote.storm import GREETING, ready
listening = Listening(Port("tcp://127.0.0.1:*"), zmq.Context(), 1 << 20)
there = "127.0.0.1", int(listening.port.address.rpartition(":")[2])
for _ in range(5):
    link = socket.create_connection(there)
    link.sendall(GREETING + ready())
    assert link.recv(1, socket.MSG_PEEK)
    link.sendall(bytes((0, 2)) * 50_000)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()
zmq.Context().socket(zmq.PULL).poll(1e3 * float(sys.argv[1]))
assert listening.socket.poll(0)
"""


def test_who_says_much_and_is_cut_off_harms_nobody() -> None:
    """Not even in the seconds in which nobody hears it, when libzmq would send a heartbeat."""
    words = [sys.executable, "-c", FLOODED, "2.5"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("locked", [False, True], ids=["open", "keys"])
def test_a_besieged_run_is_the_undisturbed_one(locked: bool) -> None:
    """Real processes: tens of thousands of messages, broken connections, and the same digest; also
    where those who mean harm have a key that is known, or another one, or none."""
    found = siege(updates=160, storms=1, locked=locked)
    assert found.is_undisturbed
    assert found.replaced == []
    assert found.heard > found.dropped > 5_000
    assert found.said["raw connections"] > 200
    assert (found.turned_away > 0) is locked
    assert not found.leaks, f"{found.growth:,} bytes in {found.heard:,} messages"


def test_the_tool_says_what_was_tried() -> None:
    """Counts, seconds, memory and digests, and exit code 0 where nothing showed."""
    words = ["--count", "8000", "--examples", "3", "--updates", "12", "--storms", "1"]
    done = subprocess.run([sys.executable, str(TOOL), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the rollouts are the same: True") == 2
    assert len(set(re.findall(r"the digest is the same: True: (\w+)", done.stdout))) == 1
    assert done.stdout.count("the digest is the same: True") == 2
    assert done.stdout.count("a leak: False") == 3
    came = re.findall(r"at a port with(?:out)? keys: ([\d,]+) messages came", done.stdout)
    assert len(came) == 2
    assert all(int(each.replace(",", "")) > 100 for each in came)
