"""A run that is stopped and goes on elsewhere is the run that was never stopped."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hts.config import A2C, PPO, PQL, Conv, Experiment, Machine
from hts.errors import HtsError
from hts.report.checkpoints import read, written
from hts.report.metrics import UNREPEATED
from hts.report.sealed import Damaged, Sealed, seal, unseal
from hts.runtime.assemble import Updated, plan
from hts.runtime.standing import Standing
from hts.runtime.train import make_run
from hts_envs import parse
from tests.fakes.runs import experiment, outcome
from tests.limits import HANG

LEARNING = PPO(epochs=2, minibatches=1)

CASES: dict[str, Experiment] = {
    "episodes longer than both storages": experiment(
        "sleeper:?mean=0.1&length=60", replicas=4, rollout=8, updates=12, frame_stack=3
    ),
    "stacks longer than a rollout": experiment(
        "gym:CartPole-v1", replicas=4, rollout=2, updates=40, frame_stack=5, algo=A2C()
    ),
    "a batched world": experiment(
        "sleeper:?mean=0.1&length=40&batch=true", replicas=6, rollout=8, updates=12
    ),
    "recurrent, both normalisers": experiment(
        "gym:Pendulum-v1",
        algo=LEARNING,
        rollout=32,
        updates=12,
        recurrent="lstm",
        recurrent_units=8,
        normalise_observations=True,
        normalise_rewards=True,
    ),
    "in turn": experiment(schedule="sync", updates=12),
    "pictures": experiment(
        "atari:Breakout",
        algo=A2C(),
        model=Conv(),
        replicas=4,
        rollout=5,
        updates=6,
        frame_stack=4,
        clip_rewards=1.0,
    ),
    "a replay with pictures": experiment(
        "batched:ball_balance?observation=both",
        algo=PQL(
            batch=16,
            replay=64,
            warm_up=8,
            beta_av=2,
            critic_hidden=(16,),
            policy_sees=("pixels",),
            critic_sees=("observation",),
        ),
        model=Conv(),
        rollout=4,
        updates=12,
        frame_stack=3,
    ),
    "long episodes, from snapshots": experiment(
        "python:tests.fakes.long:Long", replicas=4, rollout=128, updates=14, shards=1
    ),
    "football": experiment("gfootball:3v1", model=Conv(), replicas=2, rollout=32, updates=4),
}

SERIAL = Machine(serial=True)
LAYOUTS = [
    Machine(executors=1, actors=0, blocks=1, stepping="turns"),
    Machine(executors=2, actors=1, stepping="threads"),
    SERIAL,
    Machine(executors=2, actors=2, barrier=True, stepping="turns"),
]


def leg(asked: Experiment, machine: Machine, count: int, begin: Standing | None) -> Any:
    """So many updates, what else was learnt meanwhile, and where the run stands then."""
    run = make_run(plan(asked, parse(asked.env), "cpu"), machine, begin)
    try:
        told = list(itertools.islice(run, count))
        told += run.rest()
        return told, run.standing()
    finally:
        run.close()


def carried(standing: Standing, path: Path) -> Standing:
    """What comes back from a file."""
    seal(path, "checkpoint", Sealed({"chain": standing.chain}, standing.arrays))
    held = unseal(path, "checkpoint")
    return Standing(standing.updates, held.facts["chain"], held.arrays)


@pytest.mark.parametrize("case", CASES)
def test_a_run_in_pieces_is_the_whole_run(case: str, tmp_path: Path) -> None:
    """Stopped again and again, each time going on on another machine layout: the same updates,
    the same metrics and the same episodes."""
    asked, machines = CASES[case], itertools.cycle(LAYOUTS)
    told: list[Updated] = []
    standing = None
    while len(told) < asked.updates:
        count = 1 + len(told) % 3
        more, standing = leg(asked, next(machines), count, standing)
        told += more
        assert standing is not None
        assert standing.updates == len(told), "nothing that was learnt is lost"
        standing = carried(standing, tmp_path / "checkpoint")
    expected = outcome(asked)
    assert [update.link for update in told] == [update.link for update in expected]
    assert [update.told for update in told] == [update.told for update in expected]
    assert [update.episodes for update in told] == [update.episodes for update in expected]


def test_every_moment_of_a_running_machine_can_be_seen() -> None:
    """Between any two updates, while everybody works on, the same standing as in turn."""
    asked = experiment(updates=12, replicas=6)
    machine = Machine(executors=2, actors=1, blocks=2, stepping="turns")
    seen: list[list[Standing]] = []
    for layout in (machine, SERIAL):
        run = make_run(plan(asked, parse(asked.env), "cpu"), layout)
        try:
            found = [(update.link.update, run.standing()) for update in run]
        finally:
            run.close()
        seen.append([standing for _, standing in found if standing is not None])
        assert all(at == s.updates for at, s in found if s is not None)
    by_update = {standing.updates: standing for standing in seen[1]}
    assert len(by_update) == 12
    assert len(seen[0]) >= 6, "it can be seen nearly always"
    for standing in seen[0]:
        other = by_update[standing.updates]
        assert standing.chain == other.chain
        assert standing.arrays.keys() == other.arrays.keys()
        for name, array in standing.arrays.items():
            assert array.tobytes() == other.arrays[name].tobytes(), name


def test_what_belongs_to_another_experiment_is_refused() -> None:
    """Another network, another number of replicas: the part that does not fit is named."""
    asked = experiment(updates=4)
    _, standing = leg(asked, SERIAL, 2, None)
    for changes, sentence in (
        ({"replicas": 8}, "kept.reward.running is float64"),
        ({"recurrent": "gru"}, "optimiser"),
        ({"normalise_observations": True}, "versions.observation.count is missing"),
    ):
        other = experiment(updates=4, **changes)
        with pytest.raises(HtsError, match=f"of another experiment: .*{sentence}"):
            leg(other, SERIAL, 2, standing)


@pytest.mark.parametrize("name", ["kept.more", "replicas.more", "versions.more", "more"])
def test_an_array_that_no_run_has_is_refused(name: str) -> None:
    """In any part of a checkpoint: nothing would read it, so it is of something else."""
    asked = experiment(updates=4)
    _, standing = leg(asked, SERIAL, 2, None)
    arrays = {**standing.arrays, name: np.zeros(3, np.float32)}
    with pytest.raises(HtsError, match=f"{re.escape(name)} does not belong there"):
        leg(asked, SERIAL, 2, dataclasses.replace(standing, arrays=arrays))


# The whole command, killed for real.

COMMAND = [sys.executable, "-m", "hts.cli.train"]
SIZES = ("--set", "replicas=4", "--set", "rollout=32")
TASK = ("--env", "gym:CartPole-v1", *SIZES, "--evaluate", "0")
OFTEN = ("--set", "checkpoint_every=0.01")


def hts_train(*typed: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        [*COMMAND, *typed], capture_output=True, text=True, timeout=HANG, env=environment
    )


def newest(path: Path) -> int:
    """The updates that its newest checkpoint stands behind."""
    there = written(path / "checkpoints")
    return int(there[0].stem) if there else 0


def killed(path: Path, *typed: str, number: int = signal.SIGKILL) -> str:
    """The command, sent this signal when it has written a checkpoint: the first comes at once, the
    others at a distance that is a matter of the disk."""
    before = newest(path)
    process = subprocess.Popen([*COMMAND, *typed], stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        if newest(path) > before:
            process.send_signal(number)
            break
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
    _, said = process.communicate(timeout=HANG)
    assert process.returncode in (-number, 130), said
    return said


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_time(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if not k.startswith(UNREPEATED)} for line in found]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    said = hts_train(*TASK, "--steps", "16000", "--executors", "1", "--run-dir", str(path))
    assert said.returncode == 0, said.stderr
    return path


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run left that was killed twice, with two checkpoints."""
    path = tmp_path_factory.mktemp("runs") / "left"
    typed = (*TASK, *OFTEN, "--steps", "16000", "--executors", "2", "--run-dir", str(path))
    killed(path, *typed)
    killed(path, "--resume", str(path))
    return path


@pytest.fixture
def stopped(left: Path, tmp_path: Path) -> Path:
    """A copy of it, to go on with."""
    return Path(shutil.copytree(left, tmp_path / "run"))


def test_killed_as_a_whole_it_goes_on(stopped: Path, whole: Path) -> None:
    """kill -9, three times, then Ctrl-C: the record is that of a run which was never stopped."""
    resume = ("--resume", str(stopped))
    killed(stopped, *resume, "--actors", "1")
    said = killed(stopped, *resume, "--set", "serial=true", number=signal.SIGINT)
    assert f"go on with: hts-train --resume {stopped}" in said
    ended = hts_train(*resume, "--set", "serial=false")
    assert ended.returncode == 0, ended.stderr
    assert "goes on behind update" in ended.stderr
    assert (stopped / "digests.jsonl").read_bytes() == (whole / "digests.jsonl").read_bytes()
    ours, theirs = (lines(path / "metrics.jsonl") for path in (stopped, whole))
    assert without_time(ours) == without_time(theirs)
    result = json.loads((stopped / "result.json").read_text())
    assert (result["status"], result["interrupted"]) == ("done", [])
    assert len(json.loads((stopped / "manifest.json").read_text())["legs"]) == 5
    assert len(written(stopped / "checkpoints")) == 3, "the newest ones"
    assert not list(stopped.rglob(".*")), "nothing half-written is left"
    again = hts_train(*resume)
    assert again.returncode == 0
    assert f"this run is done: digest {result['digest']}" in again.stderr


def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_offered(stopped: Path) -> None:
    """One flipped bit anywhere, or a cut end, says which part; the offer is good."""
    newest, older, *_ = written(stopped / "checkpoints")
    good = newest.read_bytes()
    for content, sentence in (
        (good[:-1] + bytes([good[-1] ^ 1]), "is not what was written"),
        (good[: len(good) // 2], "it cannot be read as a whole"),
        (b"", "it cannot be read as a whole"),
    ):
        newest.write_bytes(content)
        said = hts_train("--resume", str(stopped))
        assert said.returncode == 2, said.stderr
        assert sentence in said.stderr
        assert f"--resume {stopped} --checkpoint {int(older.stem)}" in said.stderr
    taken = ("--resume", str(stopped), "--checkpoint", str(int(older.stem)))
    assert hts_train(*taken).returncode == 0


def test_no_bit_of_a_checkpoint_can_be_changed_unseen(tmp_path: Path) -> None:
    """Every byte of a small one, changed: refused each time."""
    path = tmp_path / "checkpoint"
    seal(path, "checkpoint", Sealed({"a": [1, 2.5]}, {"x": np.arange(3.0), "y": np.ones(2, bool)}))
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        with pytest.raises(Damaged):
            read(path)


def test_another_run_s_checkpoint_is_refused(stopped: Path, tmp_path: Path) -> None:
    """A file of another experiment under the newest name."""
    other = tmp_path / "other"
    said = hts_train(*TASK, "--seed", "1", "--steps", "1000", "--run-dir", str(other))
    assert said.returncode == 0, said.stderr
    foreign = written(other / "checkpoints")[0]
    newest = written(stopped / "checkpoints")[0]
    newest.write_bytes(foreign.read_bytes())
    said = hts_train("--resume", str(stopped))
    assert said.returncode == 2
    assert "it is of experiment" in said.stderr
    assert "to use the one before it: --resume" in said.stderr


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (
            ("--seed", "3"),
            "--seed: this run has seed 0, which cannot change on resume; start a new run",
        ),
        (("--set", "rollout=64"), "this run has rollout 32, which cannot change on resume"),
        (("--config", "smoke"), "--config cannot be combined with --resume: a resumed run"),
        (("--checkpoint", "7"), "--checkpoint: there is no checkpoint for update 7; available: "),
        (("--checkpoint", "x"), "must be a whole number of updates, not 'x'"),
    ],
)
def test_a_run_goes_on_as_what_it_was(typed: tuple[str, ...], sentence: str, stopped: Path) -> None:
    """What would make it another run is refused in a sentence, and nothing is changed."""
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    said = hts_train("--resume", str(stopped), *typed)
    assert said.returncode == 2
    assert sentence in said.stderr
    assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before


def test_one_run_is_run_by_one_process(stopped: Path) -> None:
    """While one goes on, another one is refused."""
    process = subprocess.Popen([*COMMAND, "--resume", str(stopped)], stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if b"goes on behind update" in line:
                break
        process.send_signal(signal.SIGSTOP)
        said = hts_train("--resume", str(stopped))
        assert said.returncode == 2
        assert "this run is going on, in another process" in said.stderr
    finally:
        process.kill()
        process.communicate()


def test_a_record_that_was_otherwise_marks_the_digest(stopped: Path) -> None:
    """What is run again must come out as it is written there: else the result says so."""
    path = stopped / "digests.jsonl"
    behind = newest(stopped)
    records = lines(path)[:behind]
    wrong = {**records[-1], "update": behind + 1, "chain": "0" * 32}
    path.write_text("".join(json.dumps(line) + "\n" for line in [*records, wrong]))
    resume = ("--resume", str(stopped))
    killed(stopped, *resume)  # what is known of it by then goes on with the run
    said = hts_train(*resume)
    assert said.returncode == 0, said.stderr
    assert f"update {behind + 1} came out otherwise" in said.stderr
    result = json.loads((stopped / "result.json").read_text())
    assert result["interrupted"] == [
        f"update {behind + 1} came out otherwise before the run was interrupted"
    ]


def test_a_variable_that_reaches_arithmetic_marks_the_digest(stopped: Path) -> None:
    """Another value than before is said and kept with the result; nothing is said of a record that
    is older than the list of variables. (This one changes nothing on a CPU.)"""
    path = stopped / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["numerics"].pop("environment") == {}
    change = "TORCH_LINALG_PREFER_CUSOLVER was unset and is 1 now"
    path.write_text(json.dumps(manifest))
    killed(stopped, "--resume", str(stopped))
    assert json.loads(path.read_text())["numerics"]["environment"] == {}
    behind = newest(stopped)
    said = hts_train("--resume", str(stopped), TORCH_LINALG_PREFER_CUSOLVER="1")
    assert said.returncode == 0, said.stderr
    assert f"{change}: the digest may be another one from here on" in said.stderr
    result = json.loads((stopped / "result.json").read_text())
    assert result["interrupted"] == [f"behind update {behind:,}, {change}"]


def test_a_run_that_died_before_its_first_checkpoint_begins_again(
    tmp_path: Path, whole: Path
) -> None:
    """Killed while it starts: there is nothing to go on from, and nothing is lost."""
    path = tmp_path / "run"
    typed = (*TASK, "--steps", "16000", "--run-dir", str(path))
    process = subprocess.Popen([*COMMAND, *typed], stderr=subprocess.DEVNULL)
    while not (path / "manifest.json").exists():
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    ended = hts_train("--resume", str(path))
    assert ended.returncode == 0, ended.stderr
    assert "there is no checkpoint yet: the run begins again" in ended.stderr
    assert (path / "digests.jsonl").read_bytes() == (whole / "digests.jsonl").read_bytes()
