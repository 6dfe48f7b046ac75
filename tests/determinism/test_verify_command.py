"""hts-verify as a person meets it: equal runs, and simulators that are not deterministic."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hts.config import configure
from hts.runtime.disturb import Trouble
from tests.fakes import runs
from tests.fakes.flaky import FAULTS, faults
from tests.limits import HANG

ONE = ("--actors", "0", "--learners", "1")


def verify(*typed: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "hts.cli.verify", *typed],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANG,
    )


def test_delays_and_load_change_no_digest() -> None:
    """Executors, actors, learner threads, the barrier, delays and busy cores: one digest."""
    layouts = ("--executors", "2", "--actors", "0,1", "--learners", "2", "--stepping", "threads")
    chaos = ("--schedule", "hts_barrier", "--jitter", "2", "--load")
    smoke = ("--config", "smoke", "--set", "shards=4")
    result = verify(*smoke, *layouts, *chaos, MKL_CBWR="COMPATIBLE")
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if "hts_barrier" in line]
    assert [row[:5] for row in rows] == [
        ["2", actors, "2", "threads", "hts_barrier"] for actors in ("0", "1")
    ]
    assert len({row[5] for row in rows}) == 1
    assert "seed 1" in result.stdout
    assert result.stdout.splitlines()[1].startswith("numerics: torch ")
    assert result.stdout.splitlines()[1].endswith(", MKL_CBWR COMPATIBLE")
    assert result.stdout.splitlines()[-1] == "equal on every layout"


def test_the_digests_are_those_of_training() -> None:
    """Two updates of the experiment as it is: what training has after its second update."""
    result = verify("--config", "smoke", "--executors", "1", *ONE, "--updates", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    run = runs.serial(configure("smoke").config.experiment)
    try:
        _, second = itertools.islice(run, 2)
    finally:
        run.close()
    assert result.stdout.count(second.link.chain) == 2


def test_kills_and_interruptions_change_no_digest() -> None:
    """Processes are killed, and each run goes on on the other layout: the digest of training."""
    harm = ("--kill", "3", "--interrupt", "1", "--jitter", "1")
    layouts = ("--executors", "2", "--actors", "0,1", "--learners", "1")
    result = verify("--config", "smoke", *layouts, *harm)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "12 updates of 128 rows on each layout" in result.stdout
    rows = [line for line in result.stdout.splitlines() if line.endswith("3 killed, 1 interrupted")]
    assert [row.split()[:2] for row in rows] == [["2", "0"], ["2", "1"]]
    assert all("same, 3 killed" in row for row in rows)
    assert result.stderr.count("another one goes on in its place") >= 3
    run = runs.serial(configure("smoke").config.experiment)
    try:
        *_, last = itertools.islice(run, 12)
    finally:
        run.close()
    assert result.stdout.count(last.link.chain) == 3


def test_kills_and_interruptions_change_no_digest_of_a_replay() -> None:
    """The same where V-learner and P-learner teach from a replay, which outlives both: whoever is
    killed, in memory, and across checkpoints in a file."""
    counts = ("batch=32", "replay=256", "warm_up=8", "beta_av=2", "critic_hidden=16")
    asked = ("env=gym:Pendulum-v1", "algo=pql", "rollout=8", *counts)
    sets = [word for each in asked for word in ("--set", each)]
    layouts = ("--executors", "2", "--actors", "0,1", "--learners", "1")
    result = verify("--config", "smoke", *sets, *layouts, "--kill", "4", "--interrupt", "1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "15 updates of 32 rows" in result.stdout, "one of random actions more than usual"
    rows = [line for line in result.stdout.splitlines() if line.endswith("4 killed, 1 interrupted")]
    assert [row.split()[:2] for row in rows] == [["2", "0"], ["2", "1"]]
    assert "P-learner failed: it was ended by SIGKILL" in result.stderr


def test_a_digest_that_differs_after_a_kill_is_told() -> None:
    """A simulator that counts the steps of its life is another one when it is rebuilt: equal on
    every layout, until somebody is killed. The first step that is named is the first that a storage
    still holds: step 0, or a later one where the episode began before that storage did."""
    typed = ("--env", "python:tests.fakes.straying:make", "--executors", "2", *ONE)
    result = verify("--config", "smoke", *typed, "--kill", "3")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "DIFFERENT, 3 killed\n" in result.stdout
    assert re.search(r"cannot be rebuilt: after step \d+ of episode", result.stdout), result.stdout
    assert result.stdout.splitlines()[-1] == "NOT equal"


def test_an_environment_that_raises_now_and_then_can_be_verified(tmp_path: Path) -> None:
    """In each run of the table replica 2 raises in a step, and again while it is rebuilt: in this
    process and in an executor, which are equal all the same."""
    world = ("--env", "python:tests.fakes.flaky:make?steps=17.9")
    result = verify(
        "--config", "smoke", *world, "--executors", "2", *ONE, **{FAULTS: str(tmp_path)}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert faults(tmp_path) == faults(tmp_path, "spawned") == 2
    assert result.stdout.splitlines()[-1] == "equal on every layout"
    assert "not deterministic" not in result.stdout + result.stderr
    assert result.stderr.count("which it had passed before); its simulators are rebuilt") == 1
    assert result.stderr.count("which it had passed before); another one goes on") == 1


def test_a_layout_that_differs_is_found_out_to_the_last_bit() -> None:
    """Replica 2 strays in spawned processes from its 37th step on, by one unit."""
    world = ("--env", "python:tests.fakes.straying:make")
    result = verify(
        "--config", "smoke", *world, "--executors", "2", *ONE, HTS_TEST_STRAYS="spawned"
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "DIFFERENT" in result.stdout
    assert (
        "    update 2, replica 2, step 5, observation[0, 1]: "
        "1.0 and 1.0000001 (1 unit in the last place apart)\n"
    ) in result.stdout
    assert result.stdout.splitlines()[-1] == "NOT equal"


def test_a_simulator_with_hidden_randomness_is_found_out() -> None:
    """The first difference is named: update, replica, step, field, both values, which are not
    those of the runs in the table."""
    world = ("--env", "python:tests.fakes.unsteady:make")
    result = verify("--config", "smoke", *world, "--executors", "2", *ONE, "--updates", "2")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "DIFFERENT" in result.stdout
    assert "update 1, replica 0, step 7, observation[0, 1]: " in result.stdout
    assert (
        "in the last place apart) (when both ran again: the first run and this one gave other "
        "digests than above, so the simulator is not deterministic"
    ) in result.stdout
    assert result.stdout.splitlines()[-1] == "NOT equal"


def test_a_layout_that_fails_is_a_row_and_a_reason() -> None:
    """The serial runner fails first here: no table of nothing, exit code 1, the reason in full."""
    result = verify("--config", "smoke", "--env", "python:tests.fakes.failing:make?after=5", *ONE)
    assert result.returncode == 1
    assert "FAILED" in result.stdout
    assert "the simulator's own words" in result.stderr


def test_impossible_layouts_are_told_before_anything_runs() -> None:
    """Every problem of every list at once, and no row."""
    lists = ("--executors", "0,1,x", "--stepping", "turn", "--schedule", "sync,hts,fast")
    result = verify("--config", "smoke", *lists, "--seed", "y")
    assert result.returncode == 2
    assert result.stdout == ""
    for sentence in (
        "--executors: must be auto or a whole number from 1, not 0",
        "--executors: must be auto or a whole number from 1, not 'x'",
        "--stepping: must be auto, turns or threads, not 'turn'",
        "--schedule: must be hts, hts_barrier or sync, not 'fast'",
        "--schedule: sync is another experiment; verify it alone: --schedule sync",
        "--seed: must be a whole number from 0 to 9223372036854775807, not 'y'",
    ):
        assert sentence in result.stderr
    lists = ("--executors", "1,8,9", "--learners", "1,16")
    result = verify("--config", "smoke", "--set", "shards=4", *lists)
    assert result.returncode == 2
    assert "8 executors for 4 replicas" in result.stderr
    assert "9 executors for 4 replicas" in result.stderr
    assert "16 learner workers for 4 shards" in result.stderr
    assert len(result.stderr.splitlines()) == 3


def test_more_updates_than_there_are_is_told() -> None:
    """Smoke has 32 updates."""
    result = verify("--config", "smoke", "--updates", "33")
    assert result.returncode == 2
    assert "--updates 33: 4,096 steps are 32 updates; give more --steps" in result.stderr


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (("--kill", "x"), "--kill: must be a whole number from 1, not 'x'"),
        (("--kill", "-1"), "--kill: must be a whole number from 1, not -1"),
        (("--interrupt", "0"), "--interrupt: must be a whole number from 1, not 0"),
        (
            ("--interrupt", "4", "--updates", "4"),
            "--interrupt 4: between 4 updates there are 3 places to stop at; give more --updates",
        ),
        (
            ("--interrupt", "40"),
            "--interrupt 40: between 32 updates there are 31 places to stop at; give more --steps",
        ),
    ],
)
def test_harm_that_cannot_be_done_is_one_sentence(typed: tuple[str, ...], sentence: str) -> None:
    """Told before anything runs."""
    result = verify("--config", "smoke", *typed)
    assert result.returncode == 2
    assert result.stderr == f"hts-verify: {sentence}\n"
    assert result.stdout == ""


def test_kills_that_find_no_time_are_told() -> None:
    """Two processes cannot be killed and replaced eight times before the first update."""
    typed = ("--config", "smoke", "--executors", "1", *ONE)
    result = verify(*typed, "--kill", "8", "--updates", "1")
    assert result.returncode == 2, result.stdout + result.stderr
    assert "--kill 8: so many could not be killed and replaced before update 1" in result.stderr
    assert "Traceback" not in result.stderr


def test_moments_follow_from_the_seed() -> None:
    """The same for one seed, others for another; in order, all before the last update but one, the
    stops all different; and of a shorter run, those that it reaches."""
    one, same, other = (Trouble(20, kills=9, stops=6, seed=seed) for seed in (1, 1, 2))
    kills, stops = one.kills_in(20, 0), one.stops_in(20)
    assert kills == same.kills_in(20, 0) != other.kills_in(20, 0)
    assert stops == same.stops_in(20) != other.stops_in(20)
    assert kills != one.kills_in(20, 1), "another attempt has other moments"
    assert kills == sorted(kills)
    assert all(0 <= kill.after < 18 for kill in kills)
    assert len(set(stops)) == 6
    assert all(0 < stop < 20 for stop in stops)
    assert one.stops_in(10) == [stop for stop in stops if stop < 10]
    assert one.kills_in(10, 0) == [kill for kill in kills if kill.after < 8]
    assert len(Trouble(4, stops=3).stops_in(4)) == 3


def test_an_experiment_that_cannot_be_is_no_row() -> None:
    """A model that cannot see the environment: the sentence of hts-train, and exit code 2."""
    result = verify("--config", "smoke", "--set", "model=conv")
    assert result.returncode == 2
    assert "shows no image" in result.stderr
    assert "Traceback" not in result.stderr
    assert "FAILED" not in result.stdout
