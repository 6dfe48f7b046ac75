"""Too little memory: refused in words before the run begins, survived while it goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hts.errors import RoleDied
from hts.memory import room
from hts.runtime import process
from hts.runtime.process import Child
from tests.fakes import children, hungry
from tests.fakes.groups import little_memory

COMMAND = (sys.executable, "-W", "error", "-m", "hts.cli.train")
LAYOUT = ("--executors", "2", "--actors", "1", "--set", "stepping=turns")


def result(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "result.json").read_text())
    return found


def test_a_control_group_s_limit_is_named_before_the_run_begins(tmp_path: Path) -> None:
    """Storages that do not fit below it: one sentence with the limit, its file, and what helps."""
    sizes = ("--set", "replicas=64", "--set", "rollout=1024", "--steps", "65536")
    typed = (*COMMAND, "--env", "atari:Breakout", "--algo", "a2c", *sizes, *LAYOUT)
    with little_memory(800) as inside:
        said = subprocess.run(
            [*inside, *typed, "--run-dir", str(tmp_path / "run")], capture_output=True, text=True
        )
    assert said.returncode == 1, said.stderr
    limit = r"MiB are free below the limit of 800 MiB in /sys/fs/cgroup/\S+"
    sentence = rf"failed: [\d,]+ MiB of shared memory cannot be had \([\d,]+ {limit}\); train with"
    assert re.search(sentence, said.stderr), said.stderr
    assert "Traceback" not in said.stderr


def test_a_process_that_the_kernel_ends_for_want_of_memory_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said why and what helps, and the run ends with the digest that it would have had."""
    typed = (*COMMAND, "--env", "python:tests.fakes.hungry:make", "--algo", "ppo", *LAYOUT)
    sizes = ("--set", "replicas=4", "--set", "rollout=32", "--steps", "6400")
    monkeypatch.setenv(hungry.MARK, str(tmp_path / "eaten"))
    said = []
    for name, mebibytes in (("disturbed", 1500), ("undisturbed", 1500)):
        with little_memory(mebibytes) as inside:
            command = [*inside, *typed, *sizes, "--run-dir", str(tmp_path / name)]
            done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said.append(done.stderr)
    why = "the kernel ended it for want of memory (fewer replicas, or fewer executors, need less"
    assert re.search(rf"executor \d failed: {re.escape(why)}.*another one goes on", said[0])
    assert why not in said[1]
    disturbed, undisturbed = (result(tmp_path / name) for name in ("disturbed", "undisturbed"))
    assert disturbed["digest"] == undisturbed["digest"]
    assert disturbed["interrupted"] == undisturbed["interrupted"] == []


@pytest.mark.parametrize(("counted", "is_told"), [("oom_kill 3\n", False), ("oom_kill 4\n", True)])
def test_a_kill_is_the_kernel_s_where_it_counts_one_more(
    counted: str, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is killed by anybody else, or before this process was started, is not called so."""
    vmstat = tmp_path / "proc" / "vmstat"
    vmstat.parent.mkdir()
    vmstat.write_text("oom_kill 3\n")
    monkeypatch.setattr(process, "kills", lambda: room.kills(tmp_path))
    child = Child("executor 0", children.repeat)
    try:
        vmstat.write_text(counted)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(RoleDied) as caught:
            child.hear()
    finally:
        child.end()
    assert ("for want of memory" in caught.value.short) == is_told
    assert caught.value.short.endswith("it was ended by SIGKILL")
