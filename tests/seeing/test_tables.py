"""`hts-plot --table`: the papers' tables from runs, and what they say where rows must be equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hts.cli.plot import main
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


def test_equal_rows_are_said_to_be_equal(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows in order, with the paper's numbers beside ours, all digits of a score, and the digest;
    one row with another digest is told with its seed."""
    four = football(run, tmp_path)
    lines = printed(capsys, *four, "--table", "4")
    result = json.loads((run / "result.json").read_text())
    rows = [line for line in lines if line.startswith("| gfootball")]
    assert [row.split(" | ")[1] for row in rows] == ["1", "4", "8", "16"]
    assert rows[1].endswith("| 1362 | 0.82 |")
    assert all(repr(result["return_mean"]) in row for row in rows)
    assert all(result["digest"][:12] in row for row in rows)
    assert lines[-1].startswith("All rows are equal to the last bit")
    made.change(four[2], "result.json", digest="0" * 32)
    assert "**The rows differ**: gfootball:3v1?agents=1, seed 0" in "\n".join(
        printed(capsys, *four, "--table", "4")
    )


def test_scores_are_those_of_the_last_ten_policies(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a run was evaluated: the mean over their episodes, and over seeds an interval; where
    the paper has no such row, nothing stands beside ours."""
    for seed in (0, 1):
        copy = with_values(run, tmp_path / str(seed), experiment__seed=seed)
        told = [
            {"update": n, "steps": 64 * n, "episodes": 2, "returns": [n, n + seed], "lengths": []}
            for n in range(1, 13)
        ]
        (copy / "eval.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    (row,) = (
        line
        for line in printed(capsys, tmp_path, "--table", "5")
        if line.startswith("| gym:CartPole-v1 | 16 |")
    )
    assert "| 7.75 (7.5 to 8) |" in row
    assert row.endswith("| - | - |")


def test_what_makes_no_table_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that has no result, a table that is not there, and what belongs to pictures."""
    going = made.copy(run, tmp_path / "going")
    (going / "result.json").unlink()
    for arguments, why in (
        ((going, "--table", "4"), "no result yet"),
        ((run, "--table", "44"), "there is no table '44'"),
        ((run, "--table", "4", "--json"), "it is Markdown"),
    ):
        assert main([str(each) for each in arguments]) == 2
        assert why in capsys.readouterr().err
