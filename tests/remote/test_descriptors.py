"""Connections that claim another one's routing id: their descriptors do not stay with the run."""

from __future__ import annotations

import os
from typing import Any

import zmq

from tests.fakes import runs
from tests.remote.dialling import Going, free_address, machine, simulators, told
from tests.remote.siege import EXECUTOR

CONNECTIONS, MESSAGES = 600, 300
STEP_SECONDS, UPDATES = 0.02, 16  # so that the run outlives the flood and what follows it


def flood(address: str) -> None:
    """Connect again and again with one routing id, and leave with messages that nobody reads."""
    for _ in range(CONNECTIONS):
        context: zmq.Context[Any] = zmq.Context()
        dealer: zmq.Socket[Any] = context.socket(zmq.DEALER)
        dealer.routing_id = b"the same"
        dealer.connect(address)
        for _ in range(MESSAGES):
            dealer.send(b"message")
        context.destroy(linger=50)


def descriptors(going: Going) -> int:
    (pid,) = [child.pid for child in going.run.children if child.name == EXECUTOR]
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_descriptors_do_not_stay() -> None:
    """They are closed a few seconds after the flood; simulators come back and the digest is that
    of the same run without a socket."""
    address, counts = free_address(), dict[str, int]()
    asked = runs.experiment("reference:", updates=UPDATES)

    def story(going: Going) -> None:
        going.until(1)
        counts["before"] = descriptors(going)
        flood(address)
        counts["flooded"] = counts["after"] = descriptors(going)
        while counts["after"] > counts["before"] + 20:
            going.goes_on(1)
            counts["after"] = descriptors(going)

        assert going.run.crewed().filled() == (4, 4)

    with simulators() as simulating:
        simulating.start(address, 2, seats=2, takes=STEP_SECONDS)
        found = told(asked, machine(address), story)
    assert counts["flooded"] > counts["before"] + 256, "libzmq keeps them by itself"
    assert found.links == [updated.link for updated in runs.outcome(asked)]
    assert (found.replaced, found.marks) == ([], [])
