"""Two networks on this machine with a wire between them, where it lets us make them.

A network lives as long as the process that was started in it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

HERE, THERE = "10.199.99.1", "10.199.99.2"


class Refused(Exception):
    """This machine does not let us, and says why."""


class Wire:
    """Two networks, and what connects them."""

    def __init__(self, here: int, there: int) -> None:
        self.here = ["nsenter", "--net", "--target", str(here)]
        """What has to be said in front of a command to run it in the one network."""
        self.there = ["nsenter", "--net", "--target", str(there)]
        ends = f"link add wire-a netns {here} type veth peer name wire-b netns {there}"
        _run("ip", *ends.split())
        for front, name, address in ((self.here, "wire-a", HERE), (self.there, "wire-b", THERE)):
            _run(*front, "ip", "addr", "add", f"{address}/24", "dev", name)
            _run(*front, "ip", "link", "set", name, "up")
            _run(*front, "ip", "link", "set", "lo", "up")

    def is_bad(self, weather: str) -> None:
        """Delay and lose what goes to the other side; Refused where the kernel cannot."""
        queue = ["tc", "qdisc", "add", "dev", "wire-a", "root", "netem"]
        _run(*self.here, *queue, *weather.split())

    def pull(self) -> None:
        """Nothing arrives, and nobody is told."""
        _run(*self.there, "ip", "link", "set", "wire-b", "down")

    def plug(self) -> None:
        """It arrives again."""
        _run(*self.there, "ip", "link", "set", "wire-b", "up")


@contextmanager
def two_networks() -> Iterator[Wire]:
    """They are gone behind this."""
    with ExitStack() as stack:
        yield Wire(_network(stack), _network(stack))


def _network(stack: ExitStack) -> int:
    """A network, by the process that holds it."""
    words = ["unshare", "--net", "sh", "-c", "echo; exec sleep 600"]
    try:
        holder = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise Refused(f"{words[0]}: {error.strerror}") from None
    stack.callback(holder.communicate)
    stack.callback(holder.kill)
    assert holder.stdout is not None, "it says that it is there"
    if not holder.stdout.readline():
        raise Refused("this machine gives us no network of our own")
    return holder.pid


def _run(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        raise Refused(f"{words[0]}: {error.strerror}") from None
    if done.returncode:
        raise Refused(f"{' '.join(words)}: {done.stderr.strip()}")
