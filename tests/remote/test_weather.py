"""Whatever happens to connections, simulators and the run, the digest is that of a quiet one.

Everything is real: processes, signals, sockets. What is in between is a proxy, or a pair of network
namespaces. Where a simulator cannot be replayed, the run says what that cost.
"""

from __future__ import annotations

import itertools
import json
import re
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zmq

from hts.config import Experiment
from hts.remote import wire
from hts.remote.keys import Keys
from hts.remote.talk import Offer, Talk
from hts_envs.reference import ReferenceWorld
from tests.fakes.runs import experiment, outcome
from tests.fakes.weather import Proxy
from tests.remote.commands import Command, lines, result
from tests.remote.dialling import Going, Told, free_address, machine, simulators, told
from tests.remote.networks import HERE, Refused, two_networks

SMALL = ("--config", "smoke", "--executors", "1", "--set", "stepping=turns", "--set", "rollout=8")
OFTEN = ("--set", "checkpoint_every=0.01")
PATIENCE = 5.0
"""Seconds: longer than seats are kept, and than it takes to notice that a connection was cut."""

ANYWHERE = ("--listen", "tcp://127.0.0.1:*")


def small(updates: int, **changes: Any) -> Experiment:
    """Four replicas, eight steps, so many updates."""
    return experiment("reference:", rollout=8, updates=updates, **changes)


def same(found: Told, asked: Experiment) -> bool:
    """It is the run that nothing happened to."""
    expected = outcome(asked)
    return (
        [update.link for update in found.updates] == [update.link for update in expected]
        and [update.episodes for update in found.updates] == [e.episodes for e in expected]
        and not found.marks
    )


def test_killed_in_the_middle_of_a_step_of_a_begin_and_all_at_once() -> None:
    """Whoever dials in next goes on where the dead stood."""
    asked, address = small(60), free_address()
    with simulators() as started:
        first = started.start(address, 2)
        (stepping,) = started.start(address, stays_at=("step", 37))

        def story(going: Going) -> None:
            (beginning,) = started.start(address, stays_at=("begin", 3))
            stepping.tells()
            stepping.send(signal.SIGKILL)
            spares = started.start(address, 2)
            beginning.tells()
            beginning.send(signal.SIGKILL)
            going.goes_on()
            for each in (*first, *spares):
                each.send(signal.SIGKILL)
            started.start(address, 4)

        assert same(told(asked, machine(address), story), asked)


def test_a_simulator_that_is_stopped_is_replaced_and_may_come_back(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """SIGSTOP for longer than a step may take; with SIGCONT it finds its seat taken, and waits
    until somebody else's is free."""
    asked, address = small(80), free_address()
    with simulators() as started:
        (stopped, *others) = started.start(address, 4)

        def story(going: Going) -> None:
            going.until(3)
            stopped.send(signal.SIGSTOP)
            started.start(address)
            going.goes_on()
            stopped.send(signal.SIGCONT)
            going.goes_on()
            others[0].send(signal.SIGKILL)
            going.goes_on()

        found = told(asked, machine(address, step_limit=1.0), story)
    assert same(found, asked)
    assert re.search(r"replica \d: python \w+ cannot go on: a step takes", capfd.readouterr().err)


def through(
    address: str, asked: Experiment, story: Callable[[Going, Proxy], None], **changes: Any
) -> Told:
    """The run, with simulators that dial in through a proxy."""
    with simulators() as started, Proxy(address) as proxy:
        started.start(proxy.address, 4)
        return told(asked, machine(address, **changes), lambda going: story(going, proxy))


def test_connections_are_cut_again_and_again() -> None:
    """Every 300 ms, every second time in the middle of what is being said."""
    asked = small(30)

    def story(going: Going, proxy: Proxy) -> None:
        going.until(2)
        for cut in itertools.count():
            if going.over:
                return
            if cut % 2:
                proxy.left = 17 * cut % 120 + 1
            else:
                proxy.cut()
            time.sleep(0.3)

    assert same(through(free_address(), asked, story), asked)


def test_what_is_held_back_comes_late_or_behind_another_connection(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Everything waits and arrives later; is swallowed while both sides believe in it; no client
    can connect for longer than seats are kept, which the run's complaint about a free seat tells:
    its patience is longer than that."""
    asked = small(60)

    def story(going: Going, proxy: Proxy) -> None:
        going.until(2)
        proxy.hold()
        time.sleep(1.5)
        proxy.let_go()
        going.goes_on()
        proxy.swallows = True
        time.sleep(1.5)
        proxy.cut()
        proxy.swallows = False
        going.goes_on()
        proxy.refuses = True
        proxy.cut()
        going.sees(lambda: "no simulator holds the seat" in capfd.readouterr().err)
        proxy.refuses = False
        going.goes_on()

    assert same(through(free_address(), asked, story, patience=PATIENCE), asked)


def test_everything_is_late() -> None:
    """Up to 50 ms each way, each time another."""
    asked = small(3)

    def story(_: Going, proxy: Proxy) -> None:
        proxy.delay = 0.05

    assert same(through(free_address(), asked, story), asked)


def test_who_listens_is_killed_and_simulators_stay() -> None:
    """Again, and again while they still come back, and once with a cut connection."""
    asked = small(60)

    def story(going: Going, proxy: Proxy) -> None:
        going.until(3)
        for _ in range(2):
            going.replaces("executor 0")
        going.goes_on()
        going.kill("executor 0")
        proxy.cut()
        going.goes_on()

    assert same(through(free_address(), asked, story), asked)


def test_batches_of_two_agents_beside_local_replicas() -> None:
    """Two seats of two replicas dial in, two replicas are here: a kill, and one of who listens."""
    asked = experiment("reference:?agents=2", rollout=8, updates=40, replicas=6)
    address, how = free_address(), {"rows": 2, "agents": 2}
    with simulators() as started:
        (first, _) = started.start(address, 2, **how)

        def story(going: Going) -> None:
            going.until(3)
            first.send(signal.SIGKILL)
            started.start(address, **how)
            going.goes_on()
            going.kill("executor 1")
            going.goes_on()

        found = told(asked, machine(address, remote=4, seat=2), story)
    assert same(found, asked)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"replayable": False}, "its world has no seed for each episode"),
        ({"hidden": True}, "it shows something else than before"),
    ],
)
def test_who_cannot_be_replayed_costs_an_episode_and_only_when_lost(
    how: dict[str, Any], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A cut connection costs nothing; a death cuts one episode short, and the run says so."""
    asked, address, seen = small(60), free_address(), []
    with simulators() as started, Proxy(address) as proxy:
        (first, *_) = started.start(proxy.address, 4, **how)

        def story(going: Going) -> None:
            going.until(3)
            proxy.cut()
            going.goes_on()
            seen.append(list(going.run.marks))
            first.send(signal.SIGKILL)
            started.start(proxy.address, **how)
            going.goes_on()

        found = told(asked, machine(address), story)
    assert seen == [[]]
    assert len(found.updates) == 60
    (mark,) = found.marks
    assert re.match(rf"replica \d cannot be rebuilt: .*{why}", mark)
    assert f"hts: {mark}; its next episode begins, and the digest is marked" in (
        capfd.readouterr().err
    )


def test_a_simulator_that_raises_is_tried_again_and_then_another_one(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What it raised is said; the run waits for whoever can, and its digest is the same."""
    asked, address = small(20), free_address()
    with simulators() as started:
        started.start(address, 3)
        (failing,) = started.start(address, raises_from=20)

        def story(going: Going) -> None:
            failing.tells()
            failing.tells()
            started.start(address)
            going.goes_on()

        assert same(told(asked, machine(address), story), asked)
    said = capfd.readouterr().err
    assert said.count("cannot go on: RuntimeError: the engine is on fire") >= 2


def test_who_says_hello_twice_is_given_its_seats_twice() -> None:
    """Before it has heard that it has any: they are not kept for it while it waits for them."""
    asked, address = small(2), free_address()
    talk = Talk(Offer(ReferenceWorld(1).spaces, seats=4))
    talk.hello()
    heard: list[tuple[str, int]] = []
    once = [("welcome", 0), *((kind, seat) for seat in range(4) for kind in ("take", "act"))]
    context: zmq.Context[Any] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    with simulators() as started:

        def story(_: Going) -> None:
            socket.connect(address)
            for _ in range(3):
                socket.send_multipart(talk.outbox[0])
            while len(heard) < 3 * len(once):
                kind, values = wire.unpack(socket.recv_multipart()[0])
                if kind == "welcome":
                    heard.append((kind, 0))
                elif kind in ("take", "act"):
                    heard.append((kind, values[0]))
            socket.send_multipart([wire.pack("bye")])
            started.start(address, 4)

        try:
            found = told(asked, machine(address), story)
        finally:
            context.destroy(linger=0)
    assert heard == [*once, *once, *once]
    assert same(found, asked)


def learnt(path: Path) -> list[tuple[str, str]]:
    """What a run saw and made of it, whatever its experiment was called."""
    found = [json.loads(line) for line in lines(path)]
    return [(line["rollout"], line["parameters"]) for line in found]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """What is learnt where all simulators are inside, and nothing happens."""
    path = tmp_path_factory.mktemp("runs") / "quiet"
    with Command.new(path, *SMALL, "--steps", "1920", "--env", "reference:") as run:
        assert run.ends() == 0, run.said
    return learnt(path)


@pytest.mark.parametrize(
    ("env", "sent"),
    [("remote:mine", [signal.SIGKILL, signal.SIGINT]), ("reference:", [signal.SIGKILL])],
)
def test_the_run_is_killed_and_goes_on_and_simulators_stay(
    env: str, sent: list[signal.Signals], quiet: list[tuple[str, str]], tmp_path: Path
) -> None:
    """kill -9, then Ctrl-C: it listens where it did before, though the kernel chose the port."""
    path, typed = tmp_path / "run", (*SMALL, *OFTEN, "--steps", "1920", "--env", env)
    mixed = ("--set", "remote=2") if env == "reference:" else ()
    with simulators() as started:
        with Command.new(path, *typed, *ANYWHERE, *mixed) as run:
            stay = started.start(run.address, 4)
            run.gets_to(20)
            assert run.sent(sent[0]) == -signal.SIGKILL
        for number in sent[1:]:
            with Command.again(path) as run:
                run.gets_to(40)
                assert run.sent(number) == 130, run.said
        with Command.again(path) as run:
            assert run.ends() == 0, run.said
        assert [each.process.wait(10) for each in stay] == [0] * 4
    assert result(path)["interrupted"] == []
    assert learnt(path) == quiet


@pytest.mark.parametrize("weather", ["", "delay 2ms 2ms loss 1%"], ids=["unplugged", "netem"])
def test_two_networks_with_a_bad_wire(
    weather: str, quiet: list[tuple[str, str]], tmp_path: Path
) -> None:
    """The run in one, simulators with keys in another; the wire is pulled out for a while, and in
    bad weather it also loses and delays what goes over it."""
    keys = Keys(tmp_path / "keys")
    keys.make_run()
    keys.make_client("one")
    path = tmp_path / "run"
    listening = ("--listen", f"tcp://{HERE}:*", "--set", f"keys={keys.folder}")
    try:
        with ExitStack() as stack:
            wires = stack.enter_context(two_networks())
            if weather:
                wires.is_bad(weather)
            typed = (*SMALL, "--steps", "1920", "--env", "reference:", *listening)
            run = stack.enter_context(Command.new(path, *typed, front=wires.here))
            started = stack.enter_context(simulators())
            one = str(keys.folder / "one")
            started.start(run.address, 2, front=wires.there, seats=2, keys=one)
            run.gets_to(10)
            wires.pull()
            time.sleep(1.5)
            wires.plug()
            assert run.ends() == 0, run.said
    except Refused as error:
        pytest.skip(f"this machine makes no such networks: {error}")
    assert result(path)["interrupted"] == []
    assert learnt(path) == quiet
