"""`hts-train` as a person runs it: a real process, its exit code and what it leaves behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.limits import HANG

COMMAND = (sys.executable, "-W", "error", "-m", "hts.cli.train")
SERIAL = ("--set", "machine.serial=true")
PARALLEL = ("--executors", "2", "--set", "stepping=turns")


def train(*typed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *typed], capture_output=True, text=True, timeout=HANG)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of one smoke run, in one process."""
    path = tmp_path_factory.mktemp("runs") / "deep" / "smoke"
    said = train("--config", "smoke", *SERIAL, "--run-dir", str(path))
    assert said.returncode == 0, said.stderr
    assert "hts-train: done: digest" in said.stderr
    assert "Traceback" not in said.stderr
    assert "inference:" not in said.stderr, "a detail, which --verbose shows"
    return path


def test_the_manifest_says_what_was_run(record: Path) -> None:
    """Resolved values with their origins, versions and numerics."""
    found = read(record / "manifest.json")
    assert found["config"]["experiment.replicas"] == 4
    assert "smoke.yaml" in found["origins"]["experiment.replicas"]
    assert len(found["experiment"]) == 16
    assert {"torch", "numpy", "gymnasium"} <= set(found["versions"])
    assert {"torch", "python", "cpu", "device"} <= set(found["numerics"])
    assert "commit" in found


def test_a_run_says_how_its_world_is_played(tmp_path: Path) -> None:
    """Rule 13: frame skip on both sides, sticky actions and no-ops, as they come out of a preset
    and what is changed in it."""
    world = ("--algo", "a2c", "--env", "atari:Breakout?preset=cleanba&skip=3&noops=7")
    small = ("--set", "replicas=2", "--set", "rollout=4", "--steps", "8", "--evaluate", "0")
    said = train(*world, *small, *SERIAL, "--verbose", "--run-dir", str(tmp_path / "run"))
    assert said.returncode == 0, said.stderr
    (detail,) = [line for line in said.stderr.splitlines() if "inference:" in line]
    assert detail.endswith("(exact reproducibility)")
    (line,) = [line for line in said.stderr.splitlines() if "world:" in line]
    assert "3 frames a step (emulator 1 x world 3)" in line
    assert "sticky actions 0.25, 1 to 7 no-ops at the start" in line


def test_a_run_that_the_clock_paces_says_what_its_digest_is_worth(tmp_path: Path) -> None:
    """At its begin, at its end and in its record."""
    counts = ("batch=8", "replay=256", "warm_up=4", "rollout=4", "critic_hidden=8")
    sets = [word for each in counts for word in ("--set", each)]
    path = tmp_path / "run"
    typed = ("--config", "pql-pendulum", "--pacing", "clock", "--steps", "512", "--evaluate", "0")
    said = train(*typed, *sets, "--run-dir", str(path))
    assert said.returncode == 0, said.stderr
    assert said.stderr.count("the digest means nothing") == 2, said.stderr
    (mark,) = read(path / "result.json")["interrupted"]
    assert "the clock paced its updates" in mark


def test_there_is_a_line_for_each_update(record: Path) -> None:
    """4,096 steps in rollouts of 128: 32 lines in both records, with what is promised in each."""
    digests, metrics = lines(record / "digests.jsonl"), lines(record / "metrics.jsonl")
    assert [line["update"] for line in digests] == list(range(1, 33))
    assert [line["steps"] for line in metrics] == list(range(128, 4097, 128))
    promised = {"update", "rollout", "parameters", "chain", "replicas"}
    assert all(set(line) == promised for line in digests)
    assert all(len(line["replicas"].split()) == 4 for line in digests)
    assert len({line["chain"] for line in digests}) == 32
    for name in ("train/entropy", "train/policy_loss", "train/value_loss", "episode/return"):
        assert name in metrics[-1]
    assert all(line["train/ratio_error_first"] == 0.0 for line in metrics)


def test_the_result_says_how_it_ended(record: Path) -> None:
    """At least steps, updates, digest, speed, seconds and the mean return; and that it is done."""
    found = read(record / "result.json")
    assert {"steps", "updates", "digest", "sps", "seconds", "return_mean"} <= set(found)
    assert (found["status"], found["steps"], found["updates"]) == ("done", 4096, 32)
    assert found["digest"] == lines(record / "digests.jsonl")[-1]["chain"]
    assert found["return_mean"] == lines(record / "metrics.jsonl")[-1]["episode/return"]
    assert found["episodes"] > 20
    assert "rows" in found["inference"]
    assert "take turns" in found["time"]
    assert not list(record.glob(".*")), "nothing half-written is left"


@pytest.mark.parametrize(
    ("layout", "told"),
    [(SERIAL, signal.SIGINT), (PARALLEL, signal.SIGINT), (PARALLEL, signal.SIGTERM)],
    ids=["serial", "parallel", "parallel, from a service manager"],
)
def test_one_interruption_ends_it_cleanly(
    layout: tuple[str, ...], told: signal.Signals, tmp_path: Path
) -> None:
    """Ctrl-C in the middle: exit code 130 within three seconds, and a record that says so. Of three
    runs the quickest counts: other work on the machine only ever makes one slower."""
    paths = (tmp_path / str(attempt) for attempt in range(3))
    assert any(seconds_to_end(layout, told, path) < 3.0 for path in paths)


def seconds_to_end(layout: tuple[str, ...], told: signal.Signals, path: Path) -> float:
    """Of a run that is told to end in the middle of its episodes, and does so cleanly."""
    world = "python:tests.fakes.small_worlds:Announcing"
    typed = ("--config", "smoke", "--env", world, "--steps", "1e9", *layout, "--run-dir", str(path))
    process = subprocess.Popen([*COMMAND, *typed], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "step 300 is played" in line:
            break
    process.send_signal(told)
    since = time.monotonic()
    _, said = process.communicate(timeout=HANG)
    seconds = time.monotonic() - since
    assert process.returncode == 130, said
    assert "Traceback" not in said
    found = read(path / "result.json")
    assert found["status"] == "interrupted"
    digests = lines(path / "digests.jsonl")
    assert len(digests) == len(lines(path / "metrics.jsonl"))
    assert found["updates"] == len(digests)
    assert f"go on with: hts-train --resume {path}" in said
    assert (path / "checkpoints" / f"{len(digests):09}.safetensors").exists() == bool(digests)
    return seconds


@pytest.mark.parametrize(
    ("typed", "sentences"),
    [
        (
            ("--executors", "5", "--learners", "2"),
            ("--executors: 5 executors", "--learners: 2 learner"),
        ),
        (("--executors", "5"), ("5 executors for 4 replicas",)),
        (("--set", "model=conv"), ("conv sees one image", "shows no image", "--set model=mlp")),
    ],
)
def test_what_cannot_be_run_is_refused(
    typed: tuple[str, ...], sentences: tuple[str, ...], tmp_path: Path
) -> None:
    """A layout or a model that does not fit: one sentence, exit code 2, and no directory."""
    path = tmp_path / "run"
    said = train("--config", "smoke", *typed, "--run-dir", str(path))
    assert said.returncode == 2, said.stderr
    assert all(sentence in said.stderr for sentence in sentences), said.stderr
    assert "Traceback" not in said.stderr
    assert not path.exists()


def test_a_run_directory_is_never_written_twice(record: Path) -> None:
    """What exists already is refused, and left as it was."""
    before = {path: path.read_bytes() for path in record.rglob("*") if path.is_file()}
    said = train("--config", "smoke", *SERIAL, "--run-dir", str(record))
    assert said.returncode == 2, said.stderr
    assert f"already exists; choose another or use --resume {record}" in said.stderr
    after = {path: path.read_bytes() for path in record.rglob("*") if path.is_file()}
    assert after == before


def test_a_run_that_diverges_fails_with_a_sentence(tmp_path: Path) -> None:
    """Parameters that are not finite: exit code 1, and the record says which update."""
    path = tmp_path / "run"
    steep = ("--set", "learning_rate=1e38")
    said = train("--config", "smoke", *steep, *SERIAL, "--run-dir", str(path))
    assert said.returncode == 1, said.stderr
    assert "made parameters that are not finite" in said.stderr
    assert read(path / "result.json")["status"].startswith("failed: update 1 ")


def test_images_get_a_model_that_sees_them(tmp_path: Path) -> None:
    """Where no model is named, one is chosen, which is said and recorded, and resuming keeps it."""
    path = tmp_path / "run"
    world = ("--algo", "ppo", "--env", "python:tests.fakes.factories:camera", "--evaluate", "0")
    small = ("--envs", "2", "--set", "rollout=4", "--set", "minibatches=2", "--steps", "8")
    said = train(*world, *small, *SERIAL, "--run-dir", str(path))
    assert said.returncode == 0, said.stderr
    assert "model: impala, chosen, since the environment shows an image" in said.stderr
    assert "camera is an image of 3x20x20 with its channels first" in said.stderr
    manifest = read(path / "manifest.json")
    assert manifest["config"]["experiment.model.name"] == "impala"
    said = train("--resume", str(path))
    assert said.returncode == 0, said.stderr
    assert "this run is done" in said.stderr


def test_a_factory_that_raises_shows_its_own_traceback_and_a_sentence(tmp_path: Path) -> None:
    """Exit code 1, no line of ours between the two, and no directory for a run that never began."""
    path = tmp_path / "run"
    world = ("--env", "python:tests.fakes.failing:raising?level=7")
    said = train("--config", "smoke", *world, "--run-dir", str(path))
    assert said.returncode == 1
    told = said.stderr.splitlines()
    assert told[0] == "Traceback (most recent call last):"
    assert told[-1].startswith("hts-train: python:tests.fakes.failing:raising: the factory raised ")
    assert [line for line in told if "File" in line and "failing.py" not in line] == []
    assert not path.exists()


@pytest.mark.parametrize("layout", [SERIAL, PARALLEL])
def test_a_simulator_that_raises_is_told_in_a_line_and_kept_whole(
    tmp_path: Path, layout: tuple[str, ...]
) -> None:
    """Exit code 1, one line with the simulator's words, the traceback in the run's directory."""
    path = tmp_path / "run"
    world = ("--env", "python:tests.fakes.failing:make?after=5")
    said = train("--config", "smoke", *world, *layout, "--run-dir", str(path))
    assert said.returncode == 1
    assert "Traceback" not in said.stderr
    assert "the simulator's own words" in said.stderr
    assert read(path / "result.json")["status"].startswith("failed: ")
    failure = (path / "failure.txt").read_text()
    assert "Traceback" in failure
    assert "the simulator's own words" in failure
