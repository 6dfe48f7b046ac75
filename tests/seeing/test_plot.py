"""`hts-plot`: curves of real runs, and sentences for what cannot be drawn."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hts.cli.plot import main
from hts.report.intervals import bootstrapped
from tests.seeing import made

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments: one with seeds 0, 1 and 2, one with seed 0. The clock of these records is
    not that of a machine under load, on which runs so short may have no second in common."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        run = made.run(folder / f"slow{seed}", seed=seed)
        record = made.lines(run)
        made.write(run, [{**line, "time/seconds": line["update"] + seed / 8} for line in record])
    made.run(folder / "fast0", learning_rate=0.003)
    return folder


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What --json prints."""
    assert main([str(each) for each in (*arguments, "--json")]) == 0
    return dict(json.loads(capsys.readouterr().out))


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The sentence for a wrong call."""
    assert main([str(each) for each in arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    return said.err


def test_runs_that_differ_in_their_seed_are_one_curve(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mean and interval over seeds, at the places of the record; another experiment is another
    curve, and a single seed has no interval."""
    found = told(capsys, runs, "--y", "train/entropy")
    fast, slow = found["curves"]
    assert (fast["seeds"], slow["seeds"]) == ([0], [0, 1, 2])
    assert fast["label"] == "ppo gym:CartPole-v1, learning_rate 0.003"
    assert fast["low"] is None
    records = [made.lines(runs / f"slow{seed}") for seed in range(3)]
    values = np.array([[line["train/entropy"] for line in record] for record in records])
    assert slow["x"] == [line["steps"] for line in records[0]]
    assert slow["mean"] == pytest.approx(values.mean(axis=0), rel=1e-12)
    assert (np.array(slow["low"]) <= slow["mean"]).all()
    assert (np.array(slow["low"]) >= values.min(axis=0) - 1e-12).all()
    assert (np.array(slow["high"]) <= values.max(axis=0) + 1e-12).all()


def test_the_interval_is_that_of_the_mean() -> None:
    """Of 200 normal samples it is 1.96 standard errors wide on either side, to 5 %; asked again
    it is the same bits."""
    samples = np.random.default_rng(3).normal(5.0, 2.0, (200, 3))
    found, again = bootstrapped(samples), bootstrapped(samples)
    error = samples.std(axis=0) / np.sqrt(200)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.05)
    assert found.low.tolist() == again.low.tolist()


def test_a_picture_is_the_same_bytes_every_time(runs: Path, tmp_path: Path) -> None:
    """PNG and SVG, along steps and along time."""
    for name, axis in (("a.png", "steps"), ("b.svg", "time")):
        drawn = []
        for turn in range(2):
            out = tmp_path / f"{turn}{name}"
            assert main([str(runs), "--x", axis, "--out", str(out)]) == 0
            drawn.append(out.read_bytes())
        assert drawn[0] == drawn[1]
        assert drawn[0].startswith(PNG) or b"<svg" in drawn[0]


@pytest.mark.parametrize(
    ("y", "seeds", "words"),
    [
        (
            "episode/return",
            "slow*",
            ["Training return, mean over the latest 100 episodes that ended", "reward", "3 seeds"],
        ),
        ("episode/return", "slow0", ["latest 100 episodes", "reward", "environment steps"]),
        ("train/entropy", "slow0", ["Entropy", "nats"]),
        ("train/explained_variance", "slow0", ["Explained variance"]),
    ],
)
def test_a_picture_says_what_it_shows_and_says_it_once(
    runs: Path, tmp_path: Path, y: str, seeds: str, words: list[str]
) -> None:
    """Title, unit and label differ, and none of them is the name in the record."""
    out = tmp_path / "a.svg"
    chosen = [str(each) for each in sorted(runs.glob(seeds))]
    assert main([*chosen, "--y", y, "--out", str(out)]) == 0
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", out.read_text())
    shown = [text for text in texts if not re.fullmatch(r"[−\d.k]+", text)]
    assert y not in shown
    assert len(set(shown)) == len(shown)
    for word in words:
        assert word in "\n".join(shown)
    assert ("mean and 95 % interval over seeds" in shown) == ("*" in seeds)


def test_along_time_runs_share_a_grid(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It ends when the first of them ended, and each mean is between what the runs had there."""
    slow = told(capsys, runs, "--x", "time", "--y", "steps")["curves"][1]
    ends = [made.lines(runs / f"slow{seed}")[-1]["time/seconds"] for seed in range(3)]
    assert slow["x"][-1] == pytest.approx(min(ends))
    assert np.all(np.diff(slow["mean"]) >= 0)


def test_a_run_that_goes_on_is_drawn_as_far_as_it_is(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a last line is left out, what is no number is left out, and the other seeds are cut
    where this one is."""
    going = made.copy(runs / "slow1", tmp_path / "going")
    (going / "result.json").unlink()
    record = made.lines(going)[:6]
    record[2]["train/entropy"] = float("nan")
    made.write(going, record, '{"update": 7, "ste')
    (alone,) = told(capsys, going, "--y", "train/entropy")["curves"]
    assert alone["x"] == [line["steps"] for line in record if line is not record[2]]
    (both,) = told(capsys, going, runs / "slow0", "--y", "train/entropy")["curves"]
    assert both["seeds"] == [0, 1]
    assert both["x"][-1] == record[-1]["steps"]


def test_one_point_long_labels_and_many_curves_are_drawn(runs: Path, tmp_path: Path) -> None:
    """Nothing of it makes matplotlib complain: warnings are errors here."""
    one = made.copy(runs / "slow0", tmp_path / "one")
    made.write(one, made.lines(one)[-1:])
    out = tmp_path / "one.png"
    label = "_" + "a label with $x_1^2$ and % that nobody reads to its end " * 4
    assert main([str(one), str(runs / "fast0"), "--labels", f"{label},b", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(PNG)


def test_a_seed_counts_once(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two runs with one seed the longer one is taken, and that is said."""
    short = made.copy(runs / "slow0", tmp_path / "short")
    made.write(short, made.lines(short)[:3])
    assert main([str(short), str(runs / "slow0"), "--json"]) == 0
    said = capsys.readouterr()
    assert "1 of 2 runs repeat a seed" in said.err
    (curve,) = json.loads(said.out)["curves"]
    assert curve["runs"] == [str(runs / "slow0")]


def test_evaluations_are_curves_too(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Along steps as they are written; along time, at the time when the run was that far."""
    run = made.copy(runs / "slow0", tmp_path / "evaluated")
    record = made.lines(run)
    told_of = [{"update": n, "steps": 64 * n, "eval/return": 2.0 * n} for n in (4, 8)]
    (run / "eval.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told_of))
    (steps,) = told(capsys, run, "--y", "eval/return")["curves"]
    assert (steps["x"], steps["mean"]) == ([256.0, 512.0], [8.0, 16.0])
    (timed,) = told(capsys, run, "--y", "eval/return", "--x", "time")["curves"]
    assert timed["x"] == pytest.approx([record[3]["time/seconds"], record[7]["time/seconds"]])


def test_who_waited_is_drawn_from_the_record(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shares by role; a kind that a line does not name was nothing then."""
    run = made.copy(runs / "slow0", tmp_path / "waiting")
    record = made.lines(run)
    for line, share in zip(record[:3], (1.0, 0.25, 0.5), strict=True):
        line["machine/learner_working"] = share
        if share < 1.0:
            line["machine/learner_for_executors"] = 1.0 - share
    made.write(run, record)
    (learner,) = told(capsys, run, "--waiting")["waiting"]
    assert learner["role"] == "learner"
    assert learner["working"] == [1.0, 0.25, 0.5]
    assert learner["for executors"] == [0.0, 0.75, 0.5]
    out = tmp_path / "waiting.png"
    assert main([str(run), "--waiting", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(PNG)


def test_wrong_calls_are_answered_in_a_sentence(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No such run, number, ending or place; an empty run; labels that do not fit."""
    empty = made.copy(runs / "slow0", tmp_path / "empty")
    made.write(empty, [])
    damaged = made.copy(runs / "slow0", tmp_path / "damaged")
    made.write(damaged, [], "no line\n")
    (tmp_path / "nothing").mkdir()
    slow = runs / "slow0"
    assert "did you mean 'slow0'" in refused(capsys, runs / "slow00")
    assert "no run in this directory" in refused(capsys, tmp_path / "nothing")
    assert "did you mean 'train/entropy'" in refused(capsys, slow, "--y", "train/entropi")
    assert "episode/return" in refused(capsys, slow, "--y", "xyz")
    assert "no update to show" in refused(capsys, empty)
    assert "metrics.jsonl:1: this line is damaged" in refused(capsys, damaged)
    assert ".png, .svg, .pdf" in refused(capsys, slow, "--out", "curve.gif")
    assert "there is no directory" in refused(capsys, slow, "--out", tmp_path / "no" / "c.png")
    there = tmp_path / "there.png"
    there.write_bytes(b"mine")
    assert "already exists; choose another or add --overwrite" in refused(
        capsys, slow, "--out", there
    )
    assert there.read_bytes() == b"mine"
    assert main([str(slow), "--out", str(there), "--overwrite"]) == 0
    assert there.read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert "--labels: must be one for each experiment (" in refused(
        capsys, runs, "--labels", "a,b,c"
    )
    assert "shows one run" in refused(capsys, runs, "--waiting")
    assert "--y cannot be combined with --waiting" in refused(
        capsys, slow, "--waiting", "--y", "steps"
    )
    assert "--labels cannot be combined with --throughput" in refused(
        capsys, slow, "--throughput", "--labels", "a"
    )
    assert "of sleeper: worlds" in refused(capsys, slow, "--speedup")


def fast(run: Path, target: Path, speed: float, **values: object) -> Path:
    """The same run as another one has it that was so fast."""
    copy = made.copy(run, target)
    manifest = json.loads((copy / "manifest.json").read_text())
    named = {f"experiment.{name}": value for name, value in values.items()}
    made.change(copy, "manifest.json", config={**manifest["config"], **named})
    made.change(copy, "result.json", sps=speed)
    return copy


def test_throughput_over_replicas(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each schedule, a point for each number of replicas: the mean over its seeds."""
    for number, (speed, schedule, replicas, seed) in enumerate(
        ((40.0, "hts", 4, 0), (60.0, "hts", 4, 1), (90.0, "hts", 8, 0), (20.0, "sync", 4, 0))
    ):
        folder, values = tmp_path / str(number), {"schedule": schedule, "seed": seed}
        fast(runs / "slow0", folder, speed, replicas=replicas, **values)
    found = told(capsys, tmp_path, "--throughput")
    lines = {line["label"]: line for line in found["lines"]}
    assert list(lines) == ["hts", "sync"]
    assert (lines["hts"]["x"], lines["hts"]["mean"]) == ([4.0, 8.0], [50.0, 90.0])
    assert (lines["hts"]["low"][0], lines["hts"]["high"][0]) == (40.0, 60.0)
    assert (lines["sync"]["x"], lines["sync"]["low"]) == ([4.0], None)
    out = tmp_path / "throughput.png"
    assert main([str(tmp_path), "--throughput", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(PNG)


def test_speedup_over_the_variance_of_a_step(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a gamma distribution with mean 2 ms: 4 / shape; ratios are taken seed by seed, and a seed
    that was run with one schedule only is none."""
    made_of = ((30.0, "hts", 4.0, 0), (10.0, "sync", 4.0, 0), (25.0, "hts_barrier", 4.0, 0))
    made_of = (*made_of, (12.0, "hts", 0.5, 0), (3.0, "sync", 0.5, 0), (9.0, "hts", 0.5, 1))
    for number, (speed, schedule, shape, seed) in enumerate(made_of):
        env = f"sleeper:?shape={shape}&mean=2"
        values = {"schedule": schedule.partition("_")[0], "seed": seed, "env": env}
        copy = fast(runs / "slow0", tmp_path / str(number), speed, **values)
        if schedule == "hts_barrier":
            config = json.loads((copy / "manifest.json").read_text())["config"]
            made.change(copy, "manifest.json", config={**config, "machine.barrier": True})
    lines = {line["label"]: line for line in told(capsys, tmp_path, "--speedup")["lines"]}
    assert lines["hts over sync"]["x"] == [1.0, 8.0]
    assert lines["hts over sync"]["mean"] == [3.0, 4.0]
    assert lines["hts over hts_barrier"]["mean"] == [1.2]
    (tmp_path / "4" / "result.json").write_text("{}")
    assert "no result yet" in refused(capsys, tmp_path, "--speedup")
