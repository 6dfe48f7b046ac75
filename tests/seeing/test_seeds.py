"""`hts-train --seeds`: several seeds in turn, each a run of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import HANG

COMMAND = (sys.executable, "-W", "error", "-m", "hts.cli.train")
SMOKE = ("--config", "smoke", "--set", "serial=true", "--evaluate", "0", "--set", "log=none")


def test_each_seed_is_the_run_that_it_is_alone(tmp_path: Path) -> None:
    """Two seeds in one command: the second has the digest that it has by itself; then a line for
    each, and mean and spread."""
    folder = tmp_path / "all"
    typed = [*COMMAND, *SMOKE, "--quiet", "--seeds", "0,3", "--run-dir", str(folder)]
    said = subprocess.run(typed, capture_output=True, text=True, timeout=HANG)
    assert said.returncode == 0, said.stderr
    alone = [*COMMAND, *SMOKE, "--quiet", "--seed", "3", "--run-dir", str(tmp_path / "alone")]
    assert subprocess.run(alone, capture_output=True, timeout=HANG).returncode == 0
    zero, three, other = (
        json.loads((path / "result.json").read_text())
        for path in (folder / "seed-0", folder / "seed-3", tmp_path / "alone")
    )
    assert three["digest"] == other["digest"] != zero["digest"]
    assert f"seed-3: done, 4,096 steps, return {three['return_mean']:,.4g}" in said.stderr
    mean = (zero["return_mean"] + three["return_mean"]) / 2
    assert "2 seeds are done" in said.stderr
    assert f"return: mean {mean:,.4g}, deviation " in said.stderr


def test_an_interruption_ends_all_of_them(tmp_path: Path) -> None:
    """Ctrl-C in the first one: exit code 130, and how to run the others."""
    folder = tmp_path / "all"
    world = ("--env", "python:tests.fakes.small_worlds:Announcing", "--steps", "1e9")
    typed = [*COMMAND, *SMOKE, *world, "--seeds", "0..2", "--run-dir", str(folder)]
    with subprocess.Popen(typed, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if "step 300 is played" in line:
                    break
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=HANG)
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert f"not run: --seeds 1,2 --run-dir {folder} does that" in said
    assert [path.name for path in folder.iterdir()] == ["seed-0"]


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (("--seeds", "0..x"), "write it as 0..4 or 0,3,7"),
        (("--seeds", "4..0"), "write it as 0..4 or 0,3,7"),
        (("--seeds", "1,0..2"), "names a seed twice; name each once"),
        (("--seeds", "0..2", "--seed", "1"), "--seeds cannot be combined with --seed"),
        (("--seeds", "0..2", "--resume", "there"), "--seeds cannot be combined with --resume"),
        (("--seeds", "0..2", "--run-dir", "."), "this seed has been run there"),
    ],
)
def test_seeds_that_cannot_be_run_are_refused(
    typed: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
) -> None:
    """One sentence, exit code 2, and nothing is run."""
    (tmp_path / "seed-1").mkdir()
    said = subprocess.run([*COMMAND, *SMOKE, *typed], capture_output=True, text=True, cwd=tmp_path)
    assert said.returncode == 2
    assert sentence in said.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["seed-1"]
