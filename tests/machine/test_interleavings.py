"""Ten thousand orders of events, with deaths in them, and mistakes that must be found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine.exploring import explore, explore_apart
from tests.machine.planted import FIVE, MORE
from tests.machine.scheduler import Stuck
from tests.machine.simulation import Failed, Simulation

COUNT = 10_000
SEED = 9  # in which some die, and the run is stopped and resumed
TOOL = Path(__file__).resolve().parents[2] / "tools" / "interleavings"


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    with Simulation() as made:
        yield made


@pytest.mark.timeout(900)
def test_ten_thousand_interleavings(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever runs next, and whoever dies, every run ends with the same updates and episodes."""
    tally = explore_apart(COUNT)
    with capsys.disabled():
        print(f"\n{tally}")
    assert tally.count >= 10_000
    assert len(tally.schedules) > 0.99 * COUNT
    for name in ("executor 0", "executor 1", "actor 0", "actor 1", "learner"):
        assert tally.deaths[name] > 0.03 * COUNT
    assert tally.standings > 0.5 * COUNT
    assert tally.resumed > 0.05 * COUNT


@pytest.mark.parametrize("mistake", [*FIVE, *MORE])
def test_a_planted_mistake_is_found(
    simulation: Simulation, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exploration fails; the seed that it names fails again in the same way, and only then."""
    plant = {**FIVE, **MORE}[mistake]
    with plant(), pytest.raises(Failed) as first:
        explore(simulation, range(COUNT))
    seed = first.value.found.seed
    assert f"seed {seed} " in str(first.value)
    with capsys.disabled():
        print(f"\n{mistake}: found after {seed + 1:,} interleavings")
    with plant(), pytest.raises(Failed) as again:
        simulation.interleave(seed)
    assert str(again.value) == str(first.value)
    simulation.interleave(seed)


def test_a_lost_wake_up_is_a_standstill(simulation: Simulation) -> None:
    """Nobody can run and the run is not over: that is what is said, and who waits."""
    with FIVE["lost wake-up"](), pytest.raises(Failed) as found:
        explore(simulation, range(COUNT))
    assert isinstance(found.value.__cause__, Stuck)
    assert "waiting: run" in str(found.value)


def test_seeds_are_different(simulation: Simulation) -> None:
    """The same seed is the same schedule, and of many seeds no two are the same."""
    first = [simulation.interleave(seed).schedule for seed in range(150)]
    assert len(set(first)) == len(first)
    assert [simulation.interleave(seed).schedule for seed in range(150)] == first


def test_a_seed_says_everything(simulation: Simulation) -> None:
    """Alone, in another process with another hash seed, it is the same, event by event."""
    found = simulation.interleave(SEED, tape=True)
    assert found.killed, "there is a death in it"
    tape = simulation.scheduler.tape
    assert tape
    command = (sys.executable, TOOL, "--seed", str(SEED), "--count", "1", "--tape", "--whole")
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[:-1] == [*tape, f"schedule {found.schedule}"]
    assert "0 failed" in told.stdout.splitlines()[-1]


def test_writing_a_tape_changes_nothing(simulation: Simulation) -> None:
    """What is looked at closely is what happened before."""
    assert simulation.interleave(SEED, tape=True) == simulation.interleave(SEED)
