"""Where children are born: a process that has imported everything once, and forks.

An interpreter that imports torch anew takes seconds and a hundred megabytes; a fork of one that
has it takes milliseconds, and shares that memory. The nursery itself is spawned, runs one thread
and no code but this, so that a child knows nothing of its parent's memory but what it is given
(hts/design/0013). It is no parent either: who is born is handed over to the process that asked,
which hears of its end, and with which it dies. A nursery that is gone takes nobody along, and is
replaced with the next birth.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import gc
import importlib
import json
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from typing import Any

from hts.determinism import numerics

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_AT_ONCE = 250  # descriptors; the kernel takes 253 in one message
_MESSAGE = 1 << 12
_PID = struct.Struct("=i")
_ATTEMPTS = 6  # somebody may kill one after the other; one that cannot live is not tried for ever
_STREAMS = (1, 2)  # as they are now where the child is asked for
_ROOMS = ("hts.runtime.answering", "hts.runtime.learners", "hts.runtime.learning")
_COMMAND = "from hts.runtime import nursery; nursery.main()"
NAME = "hts nursery"
"""As it is shown by `ps` and `top`; children are by their own."""
_NEWBORN = b"hts newborn"

_LIBC = ctypes.CDLL(None, use_errno=True)


class Born:
    """A child of this process: its end can be waited for, and said how it was."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.sentinel = os.pidfd_open(pid)
        self._code: int | None = None

    @property
    def exitcode(self) -> int | None:
        """None while it lives; less than 0 where a signal ended it."""
        if self._code is None:
            ended = os.waitid(os.P_PIDFD, self.sentinel, os.WEXITED | os.WNOHANG)
            if ended is not None:
                by_itself = ended.si_code == os.CLD_EXITED
                self._code = ended.si_status if by_itself else -ended.si_status
        return self._code

    def is_alive(self) -> bool:
        return self.exitcode is None

    def join(self, seconds: float | None = None) -> None:
        """Until it has ended, or time is over."""
        waiting = select.poll()
        waiting.register(self.sentinel, select.POLLIN)
        waiting.poll(None if seconds is None else seconds * 1000)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.sentinel, number)

    def close(self) -> None:
        assert self.exitcode is not None, "who lives is not forgotten"
        os.close(self.sentinel)


def warm() -> None:
    """Have torch imported for all children to come, while this process goes on."""
    with _LOCK:
        if not _Nursery.warm:
            _close()
            _Nursery.warm = True
            _open()


def bear(name: str, role: Callable[..., None], given: Sequence[Any]) -> Born:
    """A child of this process that runs `role(*given)`."""
    with _LOCK, contextlib.closing(_Parcel(name, role, given)) as parcel:
        for _ in range(_ATTEMPTS):
            pid = _ask(parcel.descriptors)
            if pid < 0:
                raise OSError(-pid, f"{name} cannot be started: {os.strerror(-pid)}")
            if pid:
                born = Born(pid)
                parcel.go()
                return born
    raise RuntimeError(f"{name} cannot be started: the process that bears others ends at once")


class _Nursery:
    """The one of this process."""

    line: socket.socket | None = None
    process: subprocess.Popen[bytes] | None = None
    owner = 0  # a fork of this process has none
    warm = False


_LOCK = threading.Lock()


def _ask(descriptors: Sequence[int]) -> int:
    """Whoever was born; less than 0 where the system does not let it; 0 where nobody answers."""
    if _Nursery.owner != os.getpid():
        _open()
    assert _Nursery.line is not None, "it is open"
    said = b""
    try:
        with contextlib.suppress(ConnectionError), _adopting():
            _send(_Nursery.line, {"bear": True}, descriptors)
            said = _Nursery.line.recv(_MESSAGE)
    finally:
        if not said:  # it is gone, or we were interrupted: what it says now is no answer to others
            _close()
    return int(json.loads(said)["pid"]) if said else 0


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Meanwhile, orphans below this process are handed to it; and no longer than that, since it
    knows nothing of other people's, and would not bury them."""
    before = ctypes.c_int()
    _LIBC.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def _open() -> None:
    """Start it."""
    numerics.set_environment()  # C reads some of it when a process starts
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, _blocked(signal.SIGINT):  # or Ctrl-C at a terminal ends the nursery as it starts
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, str(theirs.fileno()), str(os.getpid())],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    _Nursery.line, _Nursery.process, _Nursery.owner = ours, process, os.getpid()
    if _Nursery.warm:
        _send(ours, {"warm": True})


@contextlib.contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """Hold a signal back meanwhile, here and in the processes that are started."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@atexit.register
def _close() -> None:
    """End it; whoever was born there lives on."""
    if _Nursery.owner != os.getpid():
        return
    assert _Nursery.line is not None, "it was opened"
    assert _Nursery.process is not None, "it was opened"
    _Nursery.owner = 0
    _Nursery.line.close()
    _Nursery.process.kill()
    _Nursery.process.wait()


class _Parcel:
    """What a child is given: bytes in memory without a name, and the descriptors among it.

    Whatever travels by descriptor asks for `duplicate_for_child`, as it does of multiprocessing.
    """

    def __init__(self, name: str, role: Callable[..., None], given: Sequence[Any]) -> None:
        streams = [stream for stream in _STREAMS if _is_open(stream)]
        self._memory = open(os.memfd_create("hts-given"), "w+b")  # noqa: SIM115 - closed by `bear`
        self._held, self._go = os.pipe()
        self.descriptors = [self._memory.fileno(), self._held, *streams]
        pickle.dump(_Around.here(name, streams), self._memory)
        before = context.get_spawning_popen()
        context.set_spawning_popen(self)  # type: ignore[arg-type]  # it does what they do
        try:
            ForkingPickler(self._memory).dump((role, tuple(given)))
        finally:
            context.set_spawning_popen(before)
        self._memory.seek(0)

    def duplicate_for_child(self, descriptor: int) -> int:
        self.descriptors.append(descriptor)
        return len(self.descriptors) - 1

    def DupFd(self, place: int) -> _Handed:  # noqa: N802 - as multiprocessing calls it
        return _Handed(place)

    def go(self) -> None:
        """Let the child begin: one of which nobody knows does nothing."""
        os.write(self._go, b".")

    def close(self) -> None:
        self._memory.close()
        os.close(self._held)
        os.close(self._go)


@dataclass(frozen=True)
class _Handed:
    """A descriptor, by its place among those that a child is given."""

    place: int

    def detach(self) -> int:
        return _Cradle.descriptors[self.place]


class _Cradle:
    """What came with a child that is being born in this process."""

    descriptors: list[int] = []  # noqa: RUF012 - there is one, not one for each instance


@dataclass(frozen=True)
class _Around:
    """What a child has in common with the process that asks for it, as of that moment."""

    name: str
    streams: list[int]
    folder: str
    paths: list[str]
    words: list[str]
    variables: dict[str, str]
    cores: set[int]

    @staticmethod
    def here(name: str, streams: list[int]) -> _Around:
        cores = os.sched_getaffinity(0)
        return _Around(name, streams, os.getcwd(), sys.path, sys.argv, dict(os.environ), cores)

    def settle(self) -> None:
        """Have this process be there too."""
        for place, stream in enumerate(self.streams, 2):
            os.dup2(_Cradle.descriptors[place], stream)
            os.close(_Cradle.descriptors[place])
        os.chdir(self.folder)
        sys.path[:], sys.argv[:] = self.paths, self.words
        os.environ.clear()
        os.environ.update(self.variables)
        numerics.set_environment()
        os.sched_setaffinity(0, self.cores)
        _LIBC.prctl(_PR_SET_NAME, self.name.encode())


def main() -> None:
    """The nursery's life; and, in whoever is born, its own."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    _LIBC.prctl(_PR_SET_NAME, NAME.encode())
    line = socket.socket(fileno=descriptor)
    while asked := _receive(line):
        message, descriptors = asked
        if "warm" in message:
            _warm()
        elif _bear(line):
            line.close()
            _live(parent, descriptors)
            return
        for each in descriptors:
            os.close(each)


def _live(parent: int, descriptors: list[int]) -> None:
    """A child's side: when the parent knows of it, be where the parent is, and do what is asked."""
    _LIBC.prctl(_PR_SET_NAME, _NEWBORN)
    memory, held, *_ = _Cradle.descriptors = descriptors
    if not os.read(held, 1):
        os._exit(1)
    os.close(held)
    die_with(parent)
    with open(memory, "rb") as file:
        pickle.load(file).settle()
        role, given = pickle.load(file)
    role(*given)


def _warm() -> None:
    """Import it for everybody who will be born, with the rooms of the house that need it."""
    numerics.prepare()
    for module in _ROOMS:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a child does not touch, and so copy, what all of them share


def _bear(line: socket.socket) -> bool:
    """Fork twice, so that the kernel hands the child to whoever asked; True in the child."""
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in the child"
    told, tell = os.pipe()
    between = _fork()
    if not between:
        born = _fork()
        if not born:
            os.close(told)
            os.close(tell)
            return True
        os.write(tell, _PID.pack(born))
        os._exit(0)
    os.close(tell)
    said = os.read(told, _PID.size) if between > 0 else _PID.pack(between)
    os.close(told)
    if between > 0:
        os.waitpid(between, 0)  # with its end the child is the other's
    _send(line, {"pid": _PID.unpack(said)[0] if said else -errno.EAGAIN})
    return False


def _fork() -> int:
    """As `os.fork`; less than 0 where there is no room for a process more."""
    try:
        return os.fork()
    except OSError as error:
        return -(error.errno or errno.EAGAIN)


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent is gone."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(1)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _send(line: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """A message, and behind it as many more as its descriptors need."""
    line.send(json.dumps({**message, "descriptors": len(descriptors)}).encode())
    for begin in range(0, len(descriptors), _AT_ONCE):
        socket.send_fds(line, [b"."], descriptors[begin : begin + _AT_ONCE])


def _receive(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message with its descriptors; None when nobody is there any more."""
    said = line.recv(_MESSAGE)
    if not said:
        return None
    message = json.loads(said)
    descriptors: list[int] = []
    while len(descriptors) < message["descriptors"]:
        said, more, _, _ = socket.recv_fds(line, 1, _AT_ONCE)
        if not said:
            return None
        descriptors += more
    return message, descriptors
