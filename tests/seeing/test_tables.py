"""`hts-plot --table`: the papers' tables from runs, and what they say where rows must be equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hts.cli.plot import main
from hts.report.printed import MINUTES, TABLES
from hts_envs.registry import parse
from tests.seeing import made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real one; what its simulator was is no matter to a table."""
    return made.run(tmp_path_factory.mktemp("tables") / "run")


def with_values(run: Path, target: Path, **values: object) -> Path:
    """The same run as another machine or experiment has it."""
    copy = made.copy(run, target)
    manifest = json.loads((copy / "manifest.json").read_text())
    named = {name.replace("__", "."): value for name, value in values.items()}
    made.change(copy, "manifest.json", config={**manifest["config"], **named})
    return copy


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    assert main([str(each) for each in arguments]) == 0
    return capsys.readouterr().out.splitlines()


def football(run: Path, folder: Path) -> list[Path]:
    """Four numbers of actors, not in order."""
    return [
        with_values(
            run, folder / str(n), machine__actors=n, experiment__env="gfootball:3v1?agents=1"
        )
        for n in (16, 1, 8, 4)
    ]


def evaluated(run: Path, *means: float, episodes: int = 10) -> Path:
    """So many policies, one behind each update, all of whose episodes came to the same."""
    told = [
        {"update": n, "steps": 64 * n, "episodes": episodes, "returns": [mean] * episodes}
        for n, mean in enumerate(means, 1)
    ]
    (run / "eval.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    return run


def cells(lines: list[str], begin: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in lines if line.startswith(f"| {begin}")]


def test_equal_rows_are_said_to_be_equal(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows in order, with the paper's numbers beside ours, all digits of a score, and the digest;
    one row with another digest is told with its seed, and in the exit code."""
    four = football(run, tmp_path)
    lines = printed(capsys, *four, "--table", "4")
    result = json.loads((run / "result.json").read_text())
    rows = cells(lines, "gfootball")
    assert [row[1] for row in rows] == ["1", "4", "8", "16"]
    assert rows[1][-2:] == ["1362", "0.82"]
    assert {row[3] for row in rows} == {f"{result['return_mean']!r} (training)"}
    assert {row[4] for row in rows} == {result["digest"][:12]}
    assert lines[-1].startswith("Compared in 4 rows: gfootball:3v1?agents=1, seed 0. Equal to the")
    assert "no policy was evaluated in all of them" in lines[-1]
    made.change(four[2], "result.json", digest="0" * 32)
    assert main([*map(str, four), "--table", "4"]) == 1
    differ = "**The rows differ**: gfootball:3v1?agents=1, seed 0, by their digests"
    assert differ in capsys.readouterr().out


def test_evaluations_are_compared_policy_by_policy(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that all rows have: equal ones are counted, and one that differs is named, though the
    digests are equal."""
    four = football(run, tmp_path)
    for each in four:
        evaluated(each, 3.0, 4.0)
    evaluated(four[0], 3.0, 4.0, 5.0)
    said = printed(capsys, *four, "--table", "4")[-1]
    assert said.endswith("by their digests, and the evaluations of 2 policies, episode by episode.")
    evaluated(four[1], 3.0, 4.5)
    assert main([*map(str, four), "--table", "4"]) == 1
    assert "in the evaluation of update 2. They must not" in capsys.readouterr().out


def test_nothing_is_called_equal_that_was_not_compared(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One row, rows of different seeds, and rows that have not come equally far."""
    one, two, *_ = football(run, tmp_path)
    assert printed(capsys, one, "--table", "4")[-1].startswith("Nothing is compared")
    manifest = json.loads((two / "manifest.json").read_text())
    made.change(two, "manifest.json", config={**manifest["config"], "experiment.seed": 1})
    assert printed(capsys, one, two, "--table", "4")[-1].startswith("Nothing is compared")
    made.change(two, "manifest.json", config=manifest["config"])
    assert printed(capsys, one, two, "--table", "4")[-1].startswith("Compared in 2 rows")
    made.change(two, "result.json", updates=3)
    assert printed(capsys, one, two, "--table", "4")[-1].startswith("Nothing is compared")


def test_scores_are_those_of_the_last_ten_policies(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a run was evaluated: the mean over their episodes, and over seeds an interval; where
    the paper has no such row, nothing stands beside ours, and where we have none, beside its."""
    for seed in (0, 1):
        copy = with_values(run, tmp_path / str(seed), experiment__seed=seed)
        told = [
            {"update": n, "steps": 64 * n, "episodes": 2, "returns": [n, n + seed], "lengths": []}
            for n in range(1, 13)
        ]
        (copy / "eval.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    lines = printed(capsys, tmp_path, "--table", "5", "--all-environments")
    (row,) = cells(lines, "gym:CartPole-v1")
    assert row[3] == "7.75 (7.5 to 8)"
    assert row[-2:] == ["-", "-"]
    assert cells(lines, "gfootball:3v1")[0][1:] == ["4", "-", "-", "-", "445", "0.82"]


def test_both_targets_and_the_time_limit(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each schedule has its columns beside the paper's: minutes until the mean over ten policies'
    episodes was high enough, and the final metric when the faster run was over."""
    values = {"experiment__env": "gfootball:3v1"}
    fast = with_values(run, tmp_path / "fast", experiment__schedule="hts", **values)
    slow = with_values(run, tmp_path / "slow", experiment__schedule="sync", **values)
    evaluated(fast, *[0.4] * 10, *[0.8] * 10)
    evaluated(slow, *[0.3] * 10, *[0.5] * 5)
    for each, minutes in ((fast, 1.0), (slow, 2.0)):
        line = made.lines(run)[0]
        made.write(
            each, [line | {"update": n, "time/seconds": n * minutes * 60} for n in range(21)]
        )
        made.change(each, "result.json", seconds=minutes * 1200.0, sps=10.0)
    lines = printed(capsys, fast, slow, "--table", "2")
    heads = lines[2].strip("| ").split(" | ")
    (row,) = cells(lines, "gfootball:3v1")
    found = dict(zip(heads, row, strict=True))
    assert found["hts: minutes"] == "10 / 20"
    assert found["sync: minutes"] == "30 / -"
    assert found["their HTS-RL (PPO)"] == "15.9/25.6"
    (row,) = cells(printed(capsys, fast, slow, "--table", "A9"), "gfootball:3v1")
    assert row[1:3] == ["0.3 in 20 min", "0.8 in 20 min"]
    assert row[-1] == "0.81 ± 0.02"


def test_rows_may_be_an_option_of_the_world(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers of agents; however the rest of the world's name is written."""
    for number, env in enumerate(("agents=3&representation=pixels", "representation=pixels")):
        with_values(run, tmp_path / str(number), experiment__env=f"gfootball:3v1?{env}")
    rows = cells(printed(capsys, tmp_path, "--table", "3"), "gfootball:3v1")
    assert [(row[1], row[2] != "-", row[-1]) for row in rows] == [
        ("1", True, "0.30±0.11"),
        ("3", True, "0.63±0.15"),
    ]


def test_every_table_is_whole() -> None:
    """Each row of the paper has a cell below each of its heads, and a target where it needs one;
    every environment is one that there is."""
    for name, table in TABLES.items():
        assert {len(row) for row in table.rows.values()} == {len(table.theirs)}, name
        assert all("" not in row for row in table.rows.values())
        if MINUTES in table.ours:
            assert set(table.targets) == {env for env, _ in table.rows}
        for env, _ in table.rows:
            parse(env)
    assert {name: len(table.rows) for name, table in TABLES.items()} == {
        **dict.fromkeys(("1", "A2", "A7", "A8"), 12),
        **dict.fromkeys(("2", "A9", "A10"), 11),
        "3": 2,
        "4": 4,
        "5": 6,
        "A1": 9,
    }


def test_what_makes_no_table_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that has no result, a table that is not there, and what belongs to pictures."""
    going = made.copy(run, tmp_path / "going")
    (going / "result.json").unlink()
    for arguments, why in (
        ((going, "--table", "4", "--all-environments"), "no result yet"),
        ((run, "--table", "44"), "there is no table '44'"),
        ((run, "--table", "3"), "has no option agents"),
        ((run, "--table", "4"), "is a run of gym:CartPole-v1, which table 4 does not have; leave"),
        ((run, "--all-environments"), "--all-environments needs --table"),
        ((run, "--table", "4", "--json"), "--json cannot be combined with --table"),
        ((run, "--table", "4", "--out", "x.png"), "--out cannot be combined with --table"),
        ((run, "--table", "4", "--x", "time"), "--x cannot be combined with --table"),
    ):
        assert main([str(each) for each in arguments]) == 2
        assert why in capsys.readouterr().err
