"""Policies on the disk, and whoever evaluates them: beside a run, after it, by hand."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hts.config import Config, Experiment, Machine
from hts.report import evaluations, policies
from hts.report.recorded import read
from hts.runtime.assemble import Updated, plan
from hts.runtime.evaluation import Evaluation, evaluation, kept
from hts.runtime.process import Child
from hts.runtime.serial import SerialRun
from hts.runtime.standing import Standing
from hts_envs.registry import parse
from tests.fakes import runs
from tests.limits import HANG

TRAIN = (sys.executable, "-W", "error", "-m", "hts.cli.train")
EVAL = (sys.executable, "-W", "error", "-m", "hts.cli.eval")
SMOKE = ("--config", "smoke", "--evaluate", "8", "--set", "normalise_observations=true")
UPDATES = [8, 16, 24, 32]


def run(command: tuple[str, ...], *typed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *typed], capture_output=True, text=True, timeout=HANG)


def digest(path: Path) -> str:
    return str(json.loads((path / "result.json").read_text())["digest"])


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted((path / "policies").iterdir())}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of one parallel run that was evaluated."""
    path = tmp_path_factory.mktemp("runs") / "evaluated"
    said = run(TRAIN, *SMOKE, "--executors", "2", "--run-dir", str(path))
    assert said.returncode == 0, said.stderr
    assert "evaluated at 4,096 steps: return" in said.stderr
    return path


@pytest.fixture
def copy(record: Path, tmp_path: Path) -> Path:
    """The same for a test to change."""
    return shutil.copytree(record, tmp_path / "run")


def test_another_layout_has_the_same_policies_and_evaluations(record: Path, tmp_path: Path) -> None:
    """In one process, and evaluated afterwards by a run that goes on: the digest of a run without
    any evaluation, the same files, the same lines, each once and in order."""
    alone = tmp_path / "serial"
    unevaluated = ("--set", "evaluate_episodes=0", "--set", "machine.serial=true")
    assert run(TRAIN, *SMOKE, *unevaluated, "--run-dir", str(alone)).returncode == 0
    assert contents(alone) == contents(record)
    assert not (alone / "eval.jsonl").exists()
    again = run(TRAIN, "--resume", str(alone), "--set", "evaluate_episodes=10")
    assert again.returncode == 0, again.stderr
    assert "4 policies wait to be evaluated" in again.stderr
    assert (alone / "eval.jsonl").read_text() == (record / "eval.jsonl").read_text()
    assert list(evaluations.read(record)) == UPDATES
    config = read(record).configuration()
    assert [u.link.chain for u in runs.outcome(config.experiment)][-1] == digest(record)
    assert digest(alone) == digest(record)


def test_what_has_a_line_is_not_evaluated_again(copy: Path) -> None:
    """A run that goes on evaluates what is missing, and puts it where it belongs."""
    lines = (copy / "eval.jsonl").read_text().splitlines(keepends=True)
    (copy / "eval.jsonl").write_text(lines[0] + lines[3])
    evaluating = evaluation(copy, read(copy).configuration())
    assert evaluating is not None
    try:
        evaluating.finish()
    finally:
        evaluating.close()
    assert (copy / "eval.jsonl").read_text().splitlines(keepends=True) == lines


def wait_for_lines(path: Path, count: int) -> None:
    until = time.monotonic() + 60.0
    while len(evaluations.read(path)) < count:
        assert time.monotonic() < until, "the evaluator did not move"
        time.sleep(0.01)


def child_of(evaluating: Evaluation) -> Child:
    child = evaluating.child
    assert child is not None, "it has been started"
    return child


def test_an_evaluator_that_is_killed_is_started_again(record: Path, copy: Path) -> None:
    """After its first line: the others are those of an undisturbed one, and idle work it is."""
    (copy / "eval.jsonl").unlink()
    evaluating = evaluation(copy, read(copy).configuration())
    assert evaluating is not None
    try:
        assert evaluating.pids() == []
        evaluating.look(UPDATES[:1])
        wait_for_lines(copy, 1)
        child = child_of(evaluating)
        assert evaluating.pids() == [child.pid]
        assert os.sched_getscheduler(child.pid) == os.SCHED_IDLE
        os.kill(child.pid, signal.SIGKILL)
        evaluating.finish()
    finally:
        evaluating.close()
    assert (copy / "eval.jsonl").read_text() == (record / "eval.jsonl").read_text()


def test_an_evaluator_that_is_waited_for_stands_back_no_more(record: Path, copy: Path) -> None:
    """Behind the last update nobody trains: beside other programs, idle work would take for ever.
    Where the kernel does not let it forward, another one is begun."""
    (copy / "eval.jsonl").unlink()
    evaluating = evaluation(copy, read(copy).configuration())
    assert evaluating is not None
    try:
        evaluating.look(UPDATES[:1])
        wait_for_lines(copy, 1)
        evaluating.finish()
        assert os.sched_getscheduler(child_of(evaluating).pid) == os.SCHED_OTHER
    finally:
        evaluating.close()
    assert (copy / "eval.jsonl").read_text() == (record / "eval.jsonl").read_text()


def test_a_damaged_policy_is_passed_over(copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The others are evaluated, and it is said which one is not and why."""
    (copy / "eval.jsonl").unlink()
    path = policies.path_of(copy / "policies", 16)
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    evaluating = evaluation(copy, read(copy).configuration())
    assert evaluating is not None
    try:
        evaluating.finish()
    finally:
        evaluating.close()
    assert list(evaluations.read(copy)) == [8, 24, 32]
    assert (
        f"{path}: parameters is not what was written; it is not evaluated" in capfd.readouterr().err
    )


def serial(
    asked: Experiment, path: Path, begin: Standing | None = None, **machine: Any
) -> SerialRun:
    config = Config(experiment=asked, machine=Machine(**machine))
    spec = parse(asked.env)
    found = dataclasses.replace(plan(asked, spec, "cpu"), policies=kept(path, config))
    return SerialRun(found, spec, begin)


def updates(running: SerialRun) -> Iterator[Updated]:
    try:
        yield from running
    finally:
        running.close()


@pytest.mark.parametrize("schedule", ["hts", "sync"])
def test_a_successor_writes_what_its_predecessor_could_not(tmp_path: Path, schedule: str) -> None:
    """From every standing at which a policy might be missing, the files are those of a run that
    nobody touched: in the update that made it, and as long as its version is alive. What the
    predecessor had written half of is gone."""
    asked = runs.experiment(updates=6, schedule=schedule, normalise_observations=True)
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        path.mkdir()
    every = {"evaluate_every": 2, "evaluate_episodes": 0}
    standings = []
    running = serial(asked, first, **every)
    for _ in updates(running):
        standings.append(running.standing())
    files = contents(first)
    assert list(policies.written(first / "policies")) == [2, 4, 6]
    for standing in standings[:-1]:
        assert standing is not None
        shutil.rmtree(second / "policies", ignore_errors=True)
        (second / "policies").mkdir()
        (second / "policies" / ".000000003.safetensors").touch()
        for _ in updates(serial(asked, second, standing, **every)):
            pass
        alive = 1 if schedule == "hts" else 0
        expected = [u for u in (2, 4, 6) if u >= standing.updates - alive]
        assert list(policies.written(second / "policies")) == expected
        assert contents(second).items() <= files.items()
        assert not list(second.rglob(".*"))


def test_the_newest_are_kept(tmp_path: Path) -> None:
    """And where somebody evaluates, those that wait for that too."""
    asked = runs.experiment(updates=6)
    for _ in updates(
        serial(asked, tmp_path, evaluate_every=1, evaluate_episodes=0, keep_policies=2)
    ):
        pass
    assert list(policies.written(tmp_path / "policies")) == [5, 6]
    policies.thin(tmp_path / "policies", 1, needed=[5])
    assert list(policies.written(tmp_path / "policies")) == [5, 6]
    policies.thin(tmp_path / "policies", 1)
    assert list(policies.written(tmp_path / "policies")) == [6]


def test_a_disk_that_takes_nothing_stops_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The run has the digest of any other, and says once that its policies are missing."""
    (tmp_path / "policies").write_text("in the way")
    asked = runs.experiment(updates=4)
    made = list(updates(serial(asked, tmp_path, evaluate_every=1)))
    assert [u.link for u in made] == [u.link for u in runs.outcome(asked)]
    assert [u.policies for u in made] == [[], [], [], []]
    assert capfd.readouterr().err.count("takes no policy") == 1


@pytest.mark.parametrize(
    ("env", "updates", "machine", "every", "evaluated"),
    [
        ("gym:CartPole-v1", 99, {}, 0, False),
        ("gym:CartPole-v1", 100, {}, 5, True),
        ("gym:CartPole-v1", 1999, {}, 100, True),
        ("gym:CartPole-v1", 10, {"evaluate_every": 3}, 3, True),
        ("gym:CartPole-v1", 500, {"evaluate_every": 0}, 0, False),
        ("gym:CartPole-v1", 500, {"evaluate_episodes": 0}, 25, False),
        ("python:tests.fakes.team:make", 500, {}, 25, False),
        ("python:tests.fakes.team:make", 500, {"evaluate_every": 50}, 50, True),
        ("gym:CartPole-v1", 500, {"listen": "tcp://127.0.0.1:*"}, 25, False),
    ],
)
def test_who_is_evaluated(
    env: str, updates: int, machine: dict[str, Any], every: int, evaluated: bool
) -> None:
    """About twenty policies of a long run; simulators of one's own are built once more when that
    is asked for, and nobody is evaluated who need not be."""
    asked = runs.experiment(env, updates=updates)
    config = Config(experiment=asked, machine=Machine(**machine))
    found = kept(Path("run"), config)
    assert (found.every if found else 0) == every
    assert (evaluation(Path("run"), config) is not None) == evaluated
    if found is not None:
        assert (found.most is None) == evaluated
        due = [update for update in range(updates + 1) if found.due(update, updates)]
        assert due[0] == every
        assert due[-1] == updates


def test_an_interruption_ends_the_rest_at_once(tmp_path: Path) -> None:
    """Ctrl-C while the last policies are evaluated: the run is done, and its record says so."""
    path = tmp_path / "run"
    long = ("--set", "evaluate_episodes=1000000", "--set", "machine.serial=true")
    command = [*TRAIN, *SMOKE, *long, "--run-dir", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any("wait to be evaluated" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            assert process.wait(timeout=HANG) == 130  # a million episodes take days
        finally:
            process.kill()
    assert "done: digest" in said
    assert f"hts-train --resume {path}" in said
    assert json.loads((path / "result.json").read_text())["status"] == "done"
    assert evaluations.read(path) == {}


def test_hts_eval_says_what_the_run_said(record: Path) -> None:
    """From the lines alone, and played once more: the same numbers to the last bit."""
    known = run(EVAL, str(record), "--json", "--target", "10")
    played = run(EVAL, str(record), "--json", "--target", "10", "--again")
    assert (known.returncode, played.returncode) == (0, 0), known.stderr + played.stderr
    assert played.stdout == known.stdout
    (found,) = json.loads(played.stdout)["runs"]
    lines = list(evaluations.read(record).values())
    assert found["policies"] == lines
    episodes = [value for line in lines for value in line["returns"]]
    assert len(episodes) == 40
    assert found["mean"] == pytest.approx(sum(episodes) / 40)
    assert found["low"] <= found["mean"] <= found["high"]
    assert found["required"] is None, "four policies have no 100 episodes"


def test_hts_eval_shows_a_table(record: Path) -> None:
    """A row for each policy, in order, and the metrics below; several runs together at the end."""
    said = run(EVAL, str(record), "--last", "3", "--target", "1000", "--episodes", "10")
    assert said.returncode == 0, said.stderr
    rows = [line.split() for line in said.stdout.splitlines()]
    assert [row[0] for row in rows[2:5]] == ["16", "24", "32"]
    assert [row[1] for row in rows[2:5]] == ["2,048", "3,072", "4,096"]
    assert rows[5][:2] == ["final", "metric:"]
    assert "never as high" in said.stdout


def test_hts_eval_takes_the_checkpoint_that_is_named(record: Path) -> None:
    """That policy and no other, whether its line is known or it is played."""
    for more in ((), ("--again",)):
        said = run(EVAL, str(record), "--checkpoint", "16", "--json", *more)
        assert said.returncode == 0, said.stderr
        (found,) = json.loads(said.stdout)["runs"]
        assert found["policies"] == [evaluations.read(record)[16]]


def with_seed(record: Path, target: Path, seed: int, means: tuple[float, ...], env: str) -> Path:
    """The same run as another seed of a game has it: of each policy 50 episodes that are alike."""
    copy = shutil.copytree(record, target)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["config"] |= {"experiment.seed": seed, "experiment.env": env}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    (copy / "eval.jsonl").unlink()
    for update, mean in zip(UPDATES, means, strict=True):
        line = {"update": update, "steps": update * 128, "episodes": 50, "eval/return": mean}
        line |= {"eval/length": 1.0, "returns": [mean] * 50, "lengths": [1.0] * 50}
        evaluations.add(copy, line)
    return copy


def test_over_seeds_there_are_intervals(record: Path, tmp_path: Path) -> None:
    """Of the required time, where all seeds reached the target, and otherwise how many did; of
    what is said over games."""
    env = "atari:Breakout"
    with_seed(record, tmp_path / "0", 0, (2.0, 4.0, 6.0, 8.0), env)
    with_seed(record, tmp_path / "1", 1, (2.0, 8.0, 8.0, 8.0), env)
    typed = (str(tmp_path), "--episodes", "50", "--json", "--target")
    found = json.loads(run(EVAL, *typed, "5").stdout)
    times = [each["required"]["seconds"] for each in found["runs"]]
    assert [each["required"]["update"] for each in found["runs"]] == [24, 16]
    (row,) = found["seeds"]
    assert row["required_seconds"] == pytest.approx(sum(times) / 2)
    assert [row["required_low"], row["required_high"]] == pytest.approx(sorted(times))
    atari = found["atari"]
    for name, (low, high) in atari["intervals"].items():
        assert low <= atari[name] <= high
        assert low < high
    (row,) = json.loads(run(EVAL, *typed, "7.5").stdout)["seeds"]
    assert (row["required_reached"], row["required_seconds"]) == (1, None)
    said = run(EVAL, str(tmp_path), "--episodes", "50", "--target", "5").stdout
    assert "target reached after" in said
    assert "human-normalised: median 0.1" in said


def test_hts_eval_takes_a_checkpoint_where_there_is_no_policy(copy: Path) -> None:
    """The version behind the last checkpoint is that of the last policy."""
    lines = evaluations.read(copy)
    shutil.rmtree(copy / "policies")
    (copy / "eval.jsonl").unlink()
    said = run(EVAL, str(copy), "--json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["runs"][0]["policies"] == [lines[32]]


@pytest.mark.parametrize("ending", [".mp4", ".gif"])
def test_a_video_of_an_episode_is_the_same_bytes_every_time(
    record: Path, tmp_path: Path, ending: str
) -> None:
    """Made by the command, of pictures that a Gymnasium world draws of itself: one for each moment
    of that episode, as its world draws them, and the same file from two processes."""
    cv2 = pytest.importorskip("cv2")
    files, told = [tmp_path / f"{turn}{ending}" for turn in range(2)], []
    for file in files:
        typed = ("--checkpoint", "32", "--episodes", "2", "--episode", "1", "--video", str(file))
        said = run(EVAL, str(record), *typed, "--json")
        assert said.returncode == 0, said.stderr
        assert "what the policy sees" not in said.stderr
        told.append(json.loads(said.stdout))
    (one,) = told[0]["runs"][0]["policies"]
    film = told[0]["video"]
    assert (film["update"], film["episode"], film["return"]) == (32, 1, one["returns"][1])
    assert film["frames"] == one["lengths"][1] + 1
    assert film["fingerprint"] == told[1]["video"]["fingerprint"]
    assert files[0].read_bytes() == files[1].read_bytes()
    shown = cv2.VideoCapture(str(files[0]))
    assert (shown.get(cv2.CAP_PROP_FRAME_WIDTH), shown.get(cv2.CAP_PROP_FRAME_HEIGHT)) == (600, 400)
    frames = 0
    while shown.read()[0]:
        frames += 1
    shown.release()
    assert frames == film["frames"]


def test_hts_eval_refuses_in_one_sentence(copy: Path, tmp_path: Path) -> None:
    """No run, no such policy, a damaged one, none at all; with what is there instead."""
    path = policies.path_of(copy / "policies", 16)
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    asked = {
        (str(tmp_path / "nowhere"),): "there is no such directory",
        (str(copy), "--checkpoint", "17"): "has no policy of update 17; available: 8, 16, 24, 32",
        (str(copy), "--checkpoint", "16", "--again"): "parameters is not what was written",
        (str(copy), "--at", "0"): "had no policy by then; name a later time",
        (str(copy), "--video", "x.avi"): "must end in .mp4 or .gif",
        (
            str(copy),
            "--video",
            "x.gif",
            "--episode",
            "10",
        ): "--episode: must be a whole number from 0 to 9, not 10",
        (str(copy), "--epsodes", "3"): "--episodes",
        (str(copy), "--episode", "3"): "--episode needs --video",
        (str(copy), "--greedy", "--target", "3"): "--target cannot be combined with --greedy",
    }
    for typed, words in asked.items():
        said = run(EVAL, *typed)
        assert (said.returncode, said.stdout) == (2, ""), said.stderr
        assert words in said.stderr
        assert said.stderr.count("\n") == 1
    for folder in ("policies", "checkpoints"):
        shutil.rmtree(copy / folder)
    (copy / "eval.jsonl").unlink()
    said = run(EVAL, str(copy))
    assert said.returncode == 2
    assert "has no policy yet" in said.stderr
