"""The table of metrics and what is written are the same names."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from hts.config import PQL
from hts.learn.losses import TOLD
from hts.machine import TIMES
from hts.report.metrics import METRICS, UNREPEATED, described, table
from hts.report.progress import Progress
from hts.report.vitals import ACTORS, EXECUTORS, LEARNER, SIMULATORS, WORKED, Kind, Setting, Vitals
from hts.roles.blocks import Episode
from hts.runtime.parallel import time_sentence
from hts.runtime.vitals import Spent
from tests.fakes.runs import experiment, serial
from tests.limits import HANG

COMMAND = (sys.executable, "-W", "error", "-m", "hts.cli.train")
SLEEPING = ("--config", "smoke", "--env", "sleeper:?mean=0.2", "--evaluate", "0")
CREW = ("--executors", "2", "--actors", "1", "--set", "stepping=threads", "--set", "log=none")


def names() -> set[str]:
    return {metric.name for metric in METRICS}


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """What a run of every kind of process has written."""
    path = tmp_path_factory.mktemp("runs") / "run"
    typed = [*COMMAND, *SLEEPING, *CREW, "--run-dir", str(path)]
    said = subprocess.run(typed, capture_output=True, text=True, timeout=HANG)
    assert said.returncode == 0, said.stderr
    assert not (path / "tensorboard").exists(), "what is switched off is not there"
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def everything(lines: list[dict[str, float]]) -> set[str]:
    """Every name that is ever written, but for those of evaluations."""
    run = serial(experiment(updates=1))
    told = Progress(run.experiment)
    facts = {"return": 1.0, "length": 2.0, "score": 1.0, "shaped_return": 3.0}
    (updated,) = run
    run.close()
    line = told.update({**updated.told, **replayed()}, [Episode(0, 0, facts)])
    roles = ("executor", "actor", "P-learner", "learner")
    kinds = [Kind(role, 2, dict.fromkeys(TIMES, 0.0)) for role in roles]
    waits = {
        "executor": (LEARNER, ACTORS, SIMULATORS),
        "actor": (EXECUTORS,),
        "P-learner": (LEARNER,),
        "learner": (EXECUTORS, LEARNER),
    }
    for kind in kinds:
        columns = (WORKED, *waits[kind.role])
        kind.shares.update(dict.fromkeys(columns, 0.25))  # type: ignore[attr-defined]
    machine = Vitals(Setting(replicas=4, shards=1), tuple(kinds)).metrics()
    return {*line, *machine, *(name for each in lines for name in each)}


def replayed() -> dict[str, float]:
    """What learners tell that teach from a replay."""
    algo = PQL(batch=8, replay=256, warm_up=4, beta_av=1, critic_hidden=(8,), policy="sac")
    run = serial(experiment("gym:Pendulum-v1", algo=algo, rollout=8, updates=2))
    *_, last = run
    run.close()
    return last.told


def test_what_is_written_stands_in_the_table(lines: list[dict[str, float]]) -> None:
    """And the other way round: no name of the table is one that nobody writes."""
    evaluated = {name for name in names() if name.startswith("eval/")}
    assert everything(lines) == names() - evaluated
    assert {f"train/{name}" for name in TOLD} <= names()


def test_titles_are_words() -> None:
    """With a unit where it says more; an unknown name is its own title."""
    assert described("episode/return").label == "Training return (reward)"
    assert described("train/explained_variance").label == "Explained variance"
    assert described("machine/cores_busy").label == "Busy cores"
    assert described("eval/score").label == "Evaluation score"
    assert described("own/thing").label == "own/thing"
    assert described("train/entropy").heading == "Entropy"
    assert not [name for name in names() if "_" in described(name).title]


def test_where_time_went_names_each_wait() -> None:
    """A role that only waited for executors says that it waited."""
    times = np.array([[1.0, 0.0, 0.0, 3.0, 0.0]])
    assert (
        time_sentence(Spent("learner", times)) == "learner worked 25 %, waited for executors 75 %"
    )
    times = np.array([[2.0, 1.0, 1.0, 0.0, 0.0]] * 2)
    assert time_sentence(Spent("executor", times)) == (
        "2 executors worked 50 %, waited for the learner 25 %, for actors 25 %"
    )


def test_each_name_has_one_line_with_a_unit_and_a_meaning() -> None:
    """`--help-metrics` prints them, as a table in Markdown."""
    said = subprocess.run(
        [*COMMAND, "--help-metrics"], capture_output=True, text=True, timeout=HANG
    )
    assert said.returncode == 0
    assert said.stdout.splitlines() == list(table())
    assert len(names()) == len(METRICS)
    cells = [line.replace("\\|", "").split("|") for line in table()]
    assert all(len(row) == 5 and all(cell.strip() for cell in row[1:-1]) for row in cells)


def test_the_machine_is_told_of_beside_what_repeats(lines: list[dict[str, float]]) -> None:
    """In the last line at least: shares that add up, cores, memory."""
    last = lines[-1]
    for role in ("executors", "actors", "learner"):
        shares = [value for name, value in last.items() if name.startswith(f"machine/{role}_")]
        assert sum(shares) == pytest.approx(1.0, abs=0.001)
    assert {line["train/lag"] for line in lines} == {1.0}
    assert last["machine/replaced"] == 0
    assert 100 < last["machine/memory"] < 10_000
    assert last["machine/cores_busy"] > 0
    assert last["time/steps_per_second"] > 0
    repeated = {name for name in last if not name.startswith(UNREPEATED)}
    assert repeated >= {"update", "steps", "train/entropy", "episode/count"}


def test_returns_are_raw_and_shaped_ones_stand_beside_them() -> None:
    """A world that shapes rewards tells both; where rewards are clipped, the return is not."""
    told = Progress(experiment("atari:Breakout", clip_rewards=1.0))
    facts = {"return": 7.0, "shaped_return": 9.5, "length": 3.0}
    line = told.update({}, [Episode(0, 0, facts), Episode(0, 1, {"return": 5.0, "length": 3.0})])
    assert (line["episode/return"], line["episode/shaped_return"]) == (6.0, 9.5)
    again = Progress(experiment())
    state = told.state()
    again.take(state)
    assert again.update({}, [])["episode/shaped_return"] == 9.5
    del state["shaped"]  # as written by a run that knew nothing of it
    again = Progress(experiment())
    again.take(state)
    assert "episode/shaped_return" not in again.update({}, [])
