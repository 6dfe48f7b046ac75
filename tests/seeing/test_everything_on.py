"""Everything that lets a run be seen, on together and off together: the same run, bit for bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from hts.report import evaluations
from hts.report.metrics import UNREPEATED
from tests.fakes.screens import watched
from tests.limits import HANG

COMMAND = [sys.executable, "-W", "error", "-m", "hts.cli.train", "--config", "smoke"]
CREW = ["--executors", "2", "--actors", "1"]
ON = ["--set", "log=tensorboard", "--evaluate", "4", "--set", "evaluate_episodes=2"]
OFF = ["--quiet", "--set", "log=none", "--evaluate", "0"]


def repeated(path: Path) -> list[dict[str, float]]:
    """What two equal runs write alike."""
    lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return [
        {name: value for name, value in line.items() if not name.startswith(UNREPEATED)}
        for line in lines
    ]


def test_seeing_a_run_changes_nothing_of_it(tmp_path: Path) -> None:
    """A live view at a terminal, TensorBoard and an evaluator beside it, against none of them: the
    same digest after every update, and the same numbers but for times."""
    on, off = tmp_path / "on", tmp_path / "off"
    with watched([*COMMAND, *CREW, *ON, "--run-dir", str(on)]) as there:
        assert there.ended() == 0, there.screen.text
    assert any(b"\x1b[" in code for code in there.screen.codes), "a view was drawn"
    assert len(evaluations.read(on)) == 8
    assert list((on / "tensorboard").iterdir())
    said = subprocess.run(
        [*COMMAND, *CREW, *OFF, "--run-dir", str(off)], capture_output=True, timeout=HANG
    )
    assert said.returncode == 0, said.stderr
    assert not (off / "tensorboard").exists()
    assert not (off / "eval.jsonl").exists()
    assert (on / "digests.jsonl").read_bytes() == (off / "digests.jsonl").read_bytes()
    results = [json.loads((path / "result.json").read_text()) for path in (on, off)]
    assert results[0]["digest"] == results[1]["digest"]
    assert repeated(on) == repeated(off)
