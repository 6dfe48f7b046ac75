"""Past runs read back: what was run, whether it is whole, and where two of them part."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hts.cli import diff
from hts.config import Config, Experiment, Machine, Resolved
from hts.determinism.digest import marked, marks
from hts.errors import BadConfig, WrongUsage
from hts.report.recorded import compare, lines, read
from hts.report.run_directory import RunDirectory
from tests.fakes import runs

STRAYING = "python:tests.fakes.straying:make"


def record(path: Path, experiment: Experiment) -> Path:
    """The directory of a whole run in this process."""
    directory = RunDirectory.new(path)
    config = Config(experiment=experiment, machine=Machine(serial=True))
    directory.manifest(Resolved(config, {}), config.machine, "cpu")
    updates = runs.outcome(experiment)
    for updated in updates:
        directory.update(updated.link, updated.told, updated.replicas)
    directory.result({"status": "done", "updates": len(updates)})
    directory.close()
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three updates; tests read it, and change copies."""
    return record(tmp_path_factory.mktemp("runs") / "small", runs.experiment())


def copied(run: Path, to: Path, **changes: Callable[[str], str]) -> Path:
    """The directory with some of its files changed: digests=, manifest=, result=."""
    to.mkdir()
    for file in run.iterdir():
        change = changes.get(file.stem, lambda text: text)
        (to / file.name).write_text(change(file.read_text()))
    return to


def test_a_run_is_read_back_as_it_was_run(small: Path) -> None:
    """The same experiment by its identity, the same machine, and a line for each update."""
    found = read(small)
    config = found.configuration()
    assert config == Config(experiment=runs.experiment(), machine=Machine(serial=True))
    assert config.experiment.identity() == found.identity
    assert [line.link for line in lines(found)] == [
        updated.link for updated in runs.outcome(runs.experiment())
    ]
    assert found.status == "done"


def test_a_manifest_of_another_version_is_told(small: Path, tmp_path: Path) -> None:
    """A value that this version does not know is named with the file that holds it."""
    later = copied(
        small,
        tmp_path / "later",
        manifest=lambda text: text.replace("experiment.rollout", "experiment.later"),
    )
    found = read(later)
    with pytest.raises(BadConfig, match=r"manifest.json: there is no setting 'experiment.later'"):
        found.configuration()


def test_a_shorter_run_is_the_beginning_of_a_longer_one(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was killed in the middle of a line: both are counted, nothing differs."""
    killed = copied(small, tmp_path / "killed", digests=lambda text: text[:-20])
    (killed / "result.json").unlink()
    found = compare(read(small), read(killed))
    assert (found.ours, found.theirs, found.parted) == (3, 2, None)
    assert diff.main([str(small), str(killed)]) == 0
    said = capsys.readouterr().out
    assert "equal as far as both go: the 2 updates of B begin A" in said
    assert "2 updates, still running, or ended without a word" in said


def test_equal_runs_are_equal(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, with the number of updates; other facts that differ are shown."""

    def elsewhere(text: str) -> str:
        manifest = json.loads(text)
        manifest["numerics"]["cpu"] = "x86_64 SSE2"
        manifest["numerics"]["environment"] = {"MKL_CBWR": "AVX2"}
        manifest["config"]["machine.executors"] = 3
        return json.dumps(manifest)

    other = copied(small, tmp_path / "other", manifest=elsewhere)
    assert diff.main([str(small), str(other)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "equal: 3 updates"
    assert "and x86_64 SSE2" in said
    assert "MKL_CBWR                             nothing and AVX2" in said
    assert "machine.executors                    auto and 3" in said


def test_a_planted_difference_is_found_in_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One replica strays at its 37th step: update 3 of 16 steps each, and no other replica."""
    experiment = runs.experiment(STRAYING, updates=4)
    ours = record(tmp_path / "ours", experiment)
    monkeypatch.setenv("HTS_TEST_STRAYS", "always")
    theirs = record(tmp_path / "theirs", experiment)
    found = compare(read(ours), read(theirs)).parted
    assert found is not None
    assert found.ours.link.update == 3
    assert found.rollouts_differ
    assert found.replicas(4) == [range(2, 3)]
    assert diff.main(["--quick", str(ours), str(theirs)]) == 1
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "update 3 differs: its rollout, replicas 2 of 4"


def test_other_experiments_are_compared_as_far_as_they_go(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The values that differ, and the first update made otherwise: here by the learning rate."""
    asked = runs.experiment()
    steeper = Experiment(**{**vars(asked), "algo": type(asked.algo)(epochs=3, minibatches=2)})
    other = record(tmp_path / "other", steeper)
    assert diff.main(["--quick", str(small), str(other)]) == 1
    said = capsys.readouterr().out
    assert "other experiments" in said
    assert "experiment.algo.epochs               2 and 3" in said
    assert said.splitlines()[-1] == (
        "update 1 differs: equal rollouts, other parameters made of them"
    )


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("digests", lambda _: "", "this run has no update to compare (done)"),
        ("digests", lambda text: text.replace("{", "[", 1), "jsonl:1: this line is damaged"),
        ("digests", lambda text: "7\n" + text, "jsonl:1: this line is damaged"),
        ("digests", lambda text: text.split("\n", 1)[1], "jsonl:1: this line does not follow"),
        (
            "digests",
            lambda text: text.replace('"update": 2', '"update": 4'),
            "jsonl:2: this line does not follow from those before it",
        ),
        ("manifest", lambda text: text[:100], "manifest.json: it is damaged: "),
        ("manifest", lambda _: "[]", "it holds no names and values"),
        ("manifest", lambda _: "{}", "experiment, config, numerics or versions is missing"),
        ("result", lambda text: text[:5], "result.json: it is damaged: "),
    ],
)
def test_a_damaged_record_is_told_in_a_sentence(
    small: Path, tmp_path: Path, name: str, change: Callable[[str], str], sentence: str
) -> None:
    """Whatever is cut off, mixed up or edited: the file, the line, and nothing is compared."""
    damaged = copied(small, tmp_path / "damaged", **{name: change})
    with pytest.raises(WrongUsage) as caught:
        compare(read(small), read(damaged))
    assert sentence in str(caught.value)
    assert str(damaged) in str(caught.value)


def test_what_is_no_run_is_told(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No directory, a directory of something else, a record without digests, the same run twice."""
    without = copied(small, tmp_path / "without")
    (without / "digests.jsonl").unlink()
    for other, sentence in [
        (tmp_path / "nowhere", "there is no such directory"),
        (tmp_path, "this is not the directory of a run: it has no manifest.json"),
        (without, "digests.jsonl: it cannot be read: No such file or directory"),
        (small, "is both RUN_A and RUN_B; name two runs"),
    ]:
        assert diff.main([str(small), str(other)]) == 2
        said = capsys.readouterr().err
        assert said.startswith("hts-diff: ")
        assert sentence in said
        assert len(said.splitlines()) == 1


@pytest.mark.parametrize("replicas", [1, 5, 64, 65, 1000])
def test_marks_name_whoever_differs(replicas: int) -> None:
    """Every replica has one mark, at most 64 in a line; a change is seen in its own only."""
    parts = [replica.to_bytes(16) for replica in range(replicas)]
    groups = marked(replicas)
    assert [replica for group in groups for replica in group] == list(range(replicas))
    words = marks(parts).split()
    assert len(words) == len(groups) == min(replicas, 64)
    changed = replicas * 2 // 3
    parts[changed] = b"otherwise"
    others = marks(parts).split()
    differ = [group for group, a, b in zip(groups, words, others, strict=True) if a != b]
    assert len(differ) == 1
    assert changed in differ[0]
