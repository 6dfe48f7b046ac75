"""Keys: who may dial in is heard, and nobody else; and no address is open by mistake."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.auth import load_certificate
from zmq.utils.monitor import recv_monitor_message

from hts.cli import keys as command
from hts.cli import train
from hts.errors import WrongUsage
from hts.remote.keys import Keys
from hts.remote.listening import Listening
from hts.remote.port import Port
from tests.fakes import runs
from tests.limits import HANG
from tests.remote.dialling import Going, free_address, machine, simulators, told

ANY = "tcp://127.0.0.1:*"
SECONDS = HANG
REFUSED = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_DISCONNECTED,
}


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """Of a run, and of one simulator: `one`."""
    assert command.main([str(tmp_path / "keys"), "one"]) == 0
    return Keys(tmp_path / "keys")


# --- making them ----------------------------------------------------------------------------------


def test_the_command_makes_what_each_side_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pairs fit together, secrets are their owner's, and it says what is to be carried where."""
    folder = tmp_path / "keys"
    before = os.umask(0)
    try:
        assert command.main([str(folder), "lab-1", "lab-2"]) == 0
    finally:
        os.umask(before)
    run, _ = load_certificate(folder / "run.key")
    said = capsys.readouterr().out
    for name in ("lab-1", "lab-2"):
        public, secret = load_certificate(folder / name / f"{name}.key_secret")
        assert secret is not None
        assert zmq.curve_public(secret) == public
        assert load_certificate(folder / "clients" / f"{name}.key") == (public, None)
        assert load_certificate(folder / name / "run.key") == (run, None)
        assert f"Carry {folder / name} to" in said
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert Keys(folder).allowed().keys() == {
        load_certificate(path)[0] for path in (folder / "clients").iterdir()
    }


def test_what_is_there_is_never_replaced(keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that has keys is refused before any other is made, and every file stays as it was."""
    before = {path: path.read_bytes() for path in keys.folder.rglob("*") if path.is_file()}
    assert command.main([str(keys.folder), "two", "one"]) == 2
    assert "never replaced" in capsys.readouterr().err
    after = {path: path.read_bytes() for path in keys.folder.rglob("*") if path.is_file()}
    assert after == before
    assert command.main([str(keys.folder), "two"]) == 0
    for path, held in before.items():
        assert path.read_bytes() == held


@pytest.mark.parametrize("name", ["run", "clients", "", ".", "../x", "a/b", "-", "a b", "x" * 65])
def test_a_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    """Names become files: none leads elsewhere, or is taken."""
    assert command.main([str(tmp_path / "keys"), "--", name]) == 2
    assert not (tmp_path / "keys").exists()


def test_usage_is_told_in_a_sentence(
    tmp_path: Path, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code says whether it was typed wrong, or could not be written."""
    with pytest.raises(SystemExit) as left:
        command.main([str(tmp_path)])
    assert left.value.code == 2
    assert command.main([str(keys.folder), "two", "two"]) == 2
    (tmp_path / "file").touch()
    assert command.main([str(tmp_path / "file" / "keys"), "one"]) == 1
    assert "Traceback" not in capsys.readouterr().err


# --- addresses ------------------------------------------------------------------------------------

OPEN = (
    "tcp://*:5555",
    "tcp://0.0.0.0:*",
    "tcp://0:5555",
    "tcp://[::]:5555",
    "tcp://10.0.0.5:5555",
    "tcp://eth0:5555",
    "tcp://lo:5555",
    "tcp://localhost.example:5555",
    "tcp://LOCALHOST:5555",
    "tcp://[::ffff:10.0.0.5]:5555",
    "tcp://[::ffff:0.0.0.0]:5555",
    "tcp://127.1:5555",
    "tcp://0x7f.0.0.1:5555",
)
NO_ADDRESS = (
    "",
    "127.0.0.1:5555",
    "tcp://127.0.0.1",
    "tcp://127.0.0.1:",
    "tcp://127.0.0.1:70000",
    "tcp://127.0.0.1:-1",
    "tcp://127.0.0.1:5x",
    "tcp://127.0.0.1:\N{FULLWIDTH DIGIT FIVE}",
    "tcp://127.0.0.1:5555;tcp://0.0.0.0:5555",
    "tcp://127.0.0.1;0.0.0.0:5555",
    "tcp://127.0.0.1:5555/x",
    "tcp://127.0.0.1 :5555",
    "tcp://127.0.0.1\n:5555",
    " tcp://127.0.0.1:5555",
    "tcp://:5555",
    "TCP://127.0.0.1:5555",
    "udp://127.0.0.1:5555",
    "inproc://here",
    "ws://127.0.0.1:5555",
    "ipc://",
    "ipc://*",
)


@pytest.mark.parametrize("address", OPEN)
def test_an_address_that_others_can_reach_needs_keys(address: str, keys: Keys) -> None:
    """Only numbers of this machine's own loopback go without; names are not asked for at all."""
    with pytest.raises(WrongUsage, match=r"others can reach this address, so it needs keys"):
        Port.checked(address, None)
    assert Port.checked(address, str(keys.folder)).address == address


@pytest.mark.parametrize("address", NO_ADDRESS)
def test_what_is_no_address_is_refused_with_keys_too(address: str, keys: Keys) -> None:
    """Nothing is left for ZeroMQ to understand in its own way."""
    for given in (None, str(keys.folder)):
        with pytest.raises(WrongUsage, match=r"(?s)machine\.listen: .*(must be|needs a path)"):
            Port.checked(address, given)


@pytest.mark.parametrize(
    ("address", "known"),
    [
        ("tcp://127.0.0.1:*", "tcp://127.0.0.1:"),
        ("tcp://localhost:*", "tcp://127.0.0.1:"),
        ("tcp://127.0.0.9:*", "tcp://127.0.0.9:"),
        ("tcp://[::1]:*", "tcp://[::1]:"),
        ("ipc://@hts-a-test", "ipc://@hts-a-test"),
    ],
)
def test_loopback_is_listened_at_and_nothing_else(address: str, known: str) -> None:
    """Where the socket really is, as the kernel has it, is where it was said to be."""
    context: zmq.Context[Any] = zmq.Context()
    try:
        listening = Listening(Port.checked(address, None), context, 1)
        found = listening.port.address
        assert found.startswith(known)
        assert Port.checked(found, None).address == found
    finally:
        context.destroy(linger=0)


def test_a_file_in_the_way_of_a_socket_is_kept(tmp_path: Path) -> None:
    """ZeroMQ would delete whatever is at the path."""
    (tmp_path / "model").write_text("of weeks")
    with pytest.raises(WrongUsage, match="there is something at this path already"):
        Port.checked(f"ipc://{tmp_path}/model", None)
    assert (tmp_path / "model").exists()


@pytest.mark.parametrize("given", [[], ["--set", "keys=nowhere"]])
def test_a_run_at_an_open_address_ends_with_a_sentence(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without keys, or with a folder that holds none: exit code 2, and no run on the disk."""
    where = ["--listen", "tcp://0.0.0.0:*", "--run-dir", str(tmp_path / "run")]
    assert train.main(["--config", "smoke", "--env", "reference:", *where, *given]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "hts-keys" in said[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["train", "verify"])
def test_a_wrong_address_is_refused_before_torch_is_imported(command: str) -> None:
    """That takes seconds, and many of them on a machine that is busy."""
    listen = ["--config", "smoke", "--env", "reference:", "--listen", "tcp://0.0.0.0:5555"]
    script = (
        f"import sys; from hts.cli.{command} import main; code = main(sys.argv[1:]); "
        "sys.exit('torch' if 'torch' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", script, *listen], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "others can reach this address" in done.stderr


def test_a_key_that_is_none_is_told(keys: Keys) -> None:
    """Whichever file is damaged: a sentence with its path, and no client is let in by it."""
    for damaged in ("", 'public-key = "short"', f'public-key = "{"#" * 40}"', "\0" * 100):
        (keys.clients / "two.key").write_text(damaged)
        assert set(keys.allowed().values()) == {"one"}
    (keys.folder / "run.key_secret").write_text((keys.folder / "run.key").read_text())
    with (
        open_port(Port(ANY), zmq.Context()) as listening,
        pytest.raises(WrongUsage, match="secret"),
    ):
        keys.listen(listening.socket)


# --- who is heard ---------------------------------------------------------------------------------


@contextlib.contextmanager
def open_port(port: Port, context: zmq.Context[Any]) -> Iterator[Listening]:
    listening = Listening(port, context, 1 << 20)
    try:
        yield listening
    finally:
        listening.close()
        context.destroy(linger=0)


class Knocking:
    """Somebody who dials in with whatever keys it has, and says something at once."""

    def __init__(self, context: zmq.Context[Any], address: str) -> None:
        self.socket: zmq.Socket[Any] = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self._address = address
        self._events = self.socket.get_monitor_socket()

    def knock(self, word: bytes) -> None:
        self.socket.connect(self._address)
        self.socket.send(word)

    def is_refused(self, seconds: float = 0.0) -> bool:
        while self._events.poll(int(1e3 * seconds)):
            if recv_monitor_message(self._events)["event"] in REFUSED:
                return True
        return False


def refusals(listening: Listening, knocking: Knocking) -> list[str]:
    """What is said of it until its connection is ended; nothing of it was heard."""
    said: list[str] = []
    until = time.monotonic() + SECONDS
    while not knocking.is_refused():
        zmq.select(listening.doors, [], [], 0.05)
        said += listening.admit()
        assert not listening.socket.poll(0), "somebody without a right was heard"
        assert time.monotonic() < until, "nobody was refused"
    return said


def heard(listening: Listening) -> bytes:
    """The first word of anybody."""
    until = time.monotonic() + SECONDS
    while not listening.socket.poll(0):
        zmq.select(listening.doors, [], [], 0.05)
        assert not list(listening.admit())
        assert time.monotonic() < until, "nobody was heard"
    return listening.socket.recv_multipart()[1]


def test_only_a_known_key_is_heard(keys: Keys, tmp_path: Path) -> None:
    """No key, an unknown one, one for another run: not a byte reaches the run; the right one."""
    other = Keys(tmp_path / "other")
    other.make_run()
    other.make_client("stranger")
    context: zmq.Context[Any] = zmq.Context()
    with open_port(Port(ANY, keys.folder), context) as listening:
        address = listening.port.address

        plain = Knocking(context, address)
        plain.knock(b"no keys")
        assert refusals(listening, plain) == []

        unknown = Knocking(context, address)
        Keys(other.folder / "stranger").dial(unknown.socket)
        unknown.socket.curve_serverkey, _ = load_certificate(keys.folder / "run.key")
        unknown.knock(b"an unknown key")
        (said,) = refusals(listening, unknown)
        assert load_certificate(other.clients / "stranger.key")[0].decode() in said

        astray = Knocking(context, address)
        Keys(keys.folder / "one").dial(astray.socket)
        astray.socket.curve_serverkey, _ = load_certificate(other.folder / "run.key")
        astray.knock(b"another run's key")
        assert refusals(listening, astray) == []

        password = Knocking(context, address)
        password.socket.plain_username = password.socket.plain_password = b"one"
        password.knock(b"a password")
        assert refusals(listening, password) == []

        right = Knocking(context, address)
        Keys(keys.folder / "one").dial(right.socket)
        right.knock(b"the right key")
        assert heard(listening) == b"the right key"


def test_who_may_dial_in_can_change_while_a_run_listens(keys: Keys) -> None:
    """A simulator that is added is let in, and one whose key was removed is not."""
    context: zmq.Context[Any] = zmq.Context()
    with open_port(Port(ANY, keys.folder), context) as listening:
        keys.make_client("two")
        two = Knocking(context, listening.port.address)
        Keys(keys.folder / "two").dial(two.socket)
        two.knock(b"two")
        assert heard(listening) == b"two"
        (keys.clients / "one.key").unlink()
        one = Knocking(context, listening.port.address)
        Keys(keys.folder / "one").dial(one.socket)
        one.knock(b"one")
        assert len(refusals(listening, one)) == 1


def test_keys_that_cannot_be_read_for_a_while_change_nothing(keys: Keys) -> None:
    """Those that were read last still hold: a known one is let in, and no other."""
    context: zmq.Context[Any] = zmq.Context()
    with open_port(Port(ANY, keys.folder), context) as listening:
        keys.make_client("two")
        keys.clients.rename(keys.folder / "elsewhere")
        one = Knocking(context, listening.port.address)
        Keys(keys.folder / "one").dial(one.socket)
        one.knock(b"one")
        assert heard(listening) == b"one"
        two = Knocking(context, listening.port.address)
        Keys(keys.folder / "two").dial(two.socket)
        two.knock(b"two")
        assert len(refusals(listening, two)) == 1


def test_nothing_is_left_behind_a_port_with_keys(keys: Keys) -> None:
    """No thread is needed to look at keys, and the same address can be listened at again."""
    before = threading.enumerate()
    port = Port(ANY, keys.folder)
    for _ in range(3):
        context: zmq.Context[Any] = zmq.Context()
        with open_port(port, context) as listening:
            assert threading.enumerate() == before
            port = listening.port


LEAVES = """
import os, sys, zmq
from pathlib import Path
from hts.remote.listening import Listening
from hts.remote.port import Port
listening = Listening(Port("tcp://127.0.0.1:*", Path(sys.argv[1])), zmq.Context(), 1)
child = os.fork()
if not child:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
listening.socket.poll(0)
"""


def test_a_process_that_listens_may_fork_and_exit(keys: Keys) -> None:
    """Neither waits for the other, and nothing is complained about."""
    words = [sys.executable, "-c", LEAVES, str(keys.folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_with_keys_is_the_run_without_a_socket(keys: Keys) -> None:
    """Real processes over CURVE, with one at the door that nobody knows: the same digest."""
    asked = runs.experiment("reference:", updates=2)
    expected = [updated.link for updated in runs.outcome(asked)]
    address = free_address()
    stranger: zmq.Context[Any] = zmq.Context()
    knocking = Knocking(stranger, address)
    knocking.knock(b"\x91\xa3bye")
    with simulators() as dialled:

        def story(_: Going) -> None:
            until = time.monotonic() + SECONDS
            while not knocking.is_refused(0.1):
                assert time.monotonic() < until, "the stranger was not refused"
            dialled.start(address, 2, seats=2, keys=str(keys.folder / "one"))

        try:
            found = told(asked, machine(address, keys=str(keys.folder)), story)
        finally:
            stranger.destroy(linger=0)
    assert found.links == expected
