"""`hts-check` as it is typed: its output, its exit codes, and what it says about bad input."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hts.cli.check import main
from hts.report.sealed import Sealed, seal
from tests.fakes.cases import stopped
from tests.limits import HANG

FAKES = "python:tests.fakes.broken_worlds"
QUICK = ["--seconds", "1", "--steps", "60", "--episodes", "5"]
ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "hts.cli.check", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )


def test_a_sound_world_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict is told in words, without colour where nobody looks at a terminal."""
    assert main([f"{FAKES}:Sound", *QUICK]) == 0
    told = capsys.readouterr().out
    assert "  sound: 12 checks passed, 0 warnings" in told
    assert "suggested machine" in told
    assert "\x1b" not in told


def test_an_unsound_world_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    """The error is in the report, beside the lines of the simulator's own traceback."""
    assert main([f"{FAKES}:RaisesAtReset", *QUICK]) == 1
    told = capsys.readouterr()
    assert "ERROR     reset raised ConnectionError in episode 0, step 0" in told.out
    assert "the engine does not answer" in told.out
    assert "UNSOUND: 1 errors" in told.out
    assert "Traceback" not in told.err


@pytest.mark.parametrize(("factory", "phase"), [("exiting", "building"), ("leaving", "building")])
def test_a_simulator_that_exits_is_an_error_in_the_report(
    factory: str, phase: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a factory nor a step ends the command; the report names the phase."""
    assert main([f"python:tests.fakes.failing:{factory}", *QUICK]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert f"while it was examined ({phase}): its process ended with exit code 3" in told
    assert "UNSOUND: 1 errors" in told


def test_json_has_the_documented_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """Every key that the help lists is there, and no other."""
    assert main([f"{FAKES}:Sound", "--json", "--seed", "5", *QUICK]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {
        "format", "environment", "seed", "seconds", "sound",
        "world", "findings", "profile", "suggestion",
    }  # fmt: skip
    assert (told["format"], told["seed"], told["sound"]) == (1, 5, True)
    assert set(told["findings"][0]) == {"level", "check", "text", "detail"}
    assert set(told["profile"]["step"]) == {
        "count", "mean", "p50", "p99", "worst", "deviation", "variance",
    }  # fmt: skip
    assert main(["--help"]) == 0
    documented = capsys.readouterr().out
    nested = {*told, *told["world"], *told["profile"], *told["profile"]["step"]}
    assert [name for name in nested if name not in documented] == []
    assert told["suggestion"]["executors"] >= 1


def test_what_a_simulator_prints_is_kept_out_of_the_report() -> None:
    """Stdout holds one JSON object, whatever the simulator writes there, below Python too."""
    found = run(f"{FAKES}:Talkative", "--json", *QUICK)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["sound"] is True
    assert "hello from Python" in found.stderr
    assert "hello from below" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gfotball:3v1"], "did you mean 'gfootball'?"),
        (["sleeper:?meen=4"], "did you mean 'mean'?"),
        (["sleeper:?mean=fast"], "option mean must be a number from 0, not 'fast'"),
        ([f"{FAKES}:Sounnd"], "did you mean 'Sound'?"),
        (["--list", "atary"], "did you mean 'atari'?"),
        (["sleeper:", "--seed", "-1"], "--seed: must be a whole number from 0"),
        (["sleeper:", "--seed", "one"], "--seed: must be a whole number from 0"),
        (["sleeper:", "--steps", "1"], "--steps: must be a whole number from 2"),
        (["sleeper:", "--seconds", "0"], "must be a number above 0, not "),
        (["sleeper:", "--seconds", "soon"], "must be a number above 0, not 'soon'"),
        (["sleeper:", "--seconds", "nan"], "must be a number above 0, not "),
        (["sleeper:", "--jsn"], "did you mean '--json'?"),
        ([], "name one environment"),
        (["sleeper:", "--list", "gym"], "name one environment"),
        (["sleeper:", "--replay", "case-1.safetensors"], "name one environment"),
        (["--list", "--replay", "case-1.safetensors"], "name one environment"),
        (["--replay", "no-such-case"], "no case can be read: no-such-case: there is no such file"),
        (["--replay", "setup.py"], "no case can be read: setup.py"),
        (["--replay", "case-1.safetensors", "--limit", "0"], "must be a number above 0, not "),
        (["sleeper:", "--limit", "5"], "--limit needs --replay"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence says what is wrong and what is near, on stderr and without a traceback."""
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert words in told.err
    assert "Traceback" not in told.err
    assert told.out == ""


def test_the_list_names_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its state on this machine, for people and for programs."""
    assert main(["--list"]) == 0
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    assert main(["--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"gfootball", "atari", "gym", "python", "sleeper"} <= {one["name"] for one in listed}
    for one in listed:
        assert f"  {one['name']:<10} {'usable' if one['usable'] else 'missing'}" in told


@pytest.mark.parametrize("family", ["gfootball", "atari", "sleeper", "counting", "gym", "batched"])
def test_a_family_lists_its_names_and_options(
    family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every name is there, and every option with its type, default and help."""
    assert main(["--list", family]) == 0
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    assert main(["--list", family, "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    words = " ".join(told.split())
    for group in one["environments"]:
        for name in group["names"]:
            assert name in told
        for option in group["options"]:
            assert f"    {option['name']}" in told
            assert option["help"], f"{family} does not say what {option['name']} does"
            assert option["type"] in words


@pytest.mark.parametrize("family", ["sleeper", "counting", "reference"])
def test_a_family_of_one_says_that_it_takes_no_name(
    family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And shows how it is written, which nothing else in its list does."""
    assert main(["--list", family]) == 0
    told = capsys.readouterr().out
    assert f"  {family}: is one environment, which takes no name\n" in told
    assert f"  options are written {family}:?option=value&option=value\n" in told
    assert "NAME" not in told


def test_a_missing_family_is_listed_with_what_installs_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a package is not there, the list says which, and the command that gets it."""
    from hts_envs.registry import family

    monkeypatch.setattr(family("atari"), "packages", ("a_package_nobody_has",))
    assert main(["--list"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "atari missing" in told
    assert "needs a_package_nobody_has; tools/setup.sh" in told
    assert main(["--list", "atari"]) == 0
    assert "missing here: a_package_nobody_has" in capsys.readouterr().out


def test_a_missing_package_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that imports the simulator says so, and this one says it to the user."""
    (tmp_path / "wants_more.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["python:wants_more:make"]) == 2
    assert "pip install a_package_nobody_has" in capsys.readouterr().err


def test_the_list_does_not_load_torch() -> None:
    """It is answered at once: no simulator and no torch is imported for it."""
    heavy = "torch, gymnasium, gfootball, ale_py, mujoco, envpool"
    program = (
        "import sys; from hts.cli.check import main; main(['--list']); "
        f"print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert found.stdout.splitlines()[-1] == "[]"


def test_a_simulator_beside_the_user_is_found_in_both_processes(tmp_path: Path) -> None:
    """A module of the current directory is examined here and in the fresh process."""
    (tmp_path / "mine.py").write_text(
        "from tests.fakes.broken_worlds import Sound\n\n\nclass Mine(Sound):\n    pass\n"
    )
    found = subprocess.run(
        [sys.executable, "-m", "hts.cli.check", "python:mine:Mine", "--json", *QUICK],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr + found.stdout
    checks = {finding["check"] for finding in json.loads(found.stdout)["findings"]}
    assert "process" in checks


BREAKING = "python:tests.fakes.breaking:make"


def written(folder: Path, env: str, now: str = "") -> str:
    """The file of a case of this world, as if it were that of the other."""
    case = stopped(env, steps=12).case(0)
    path = folder / "case-1.safetensors"
    dataclasses.replace(case, env=now or env).write(path)
    return str(path)


def test_a_failure_that_comes_again_ends_with_1(tmp_path: Path) -> None:
    """The step, the traceback, and how the run said it, on stdout; what the simulator prints and
    nothing else is on stderr."""
    found = run("--replay", written(tmp_path, f"{BREAKING}?how=raises&step=5"))
    assert found.returncode == 1, found.stderr
    told = " ".join(found.stdout.split())
    assert "IT COMES AGAIN: it raises in step 5 of episode 0 of replica 2" in told
    assert "| RuntimeError: the engine has lost the ball 4" in found.stdout
    assert "in the run it raises: RuntimeError: the engine has lost the ball 4" in told
    assert "two fresh processes are bit-equal in 6 calls" in told
    assert found.stderr == ""


def test_a_failure_that_does_not_come_again_ends_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said plainly."""
    path = written(tmp_path, f"{BREAKING}?how=raises&step=5", f"{BREAKING}?how=not")
    assert main(["--replay", path]) == 0
    assert "it does not come again: two fresh processes are" in capsys.readouterr().out


def test_a_hang_ends_with_1_behind_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The limit is the user's."""
    path = written(tmp_path, f"{BREAKING}?how=not", f"{BREAKING}?how=hangs&step=3")
    assert main(["--replay", path, "--limit", "1.5"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "IT COMES AGAIN: it has been in step 3 of episode 0 of replica 2 for 1.5 s" in told


def test_a_replay_as_json_has_the_documented_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every key is in the help."""
    path = written(tmp_path, f"{BREAKING}?how=raises&step=5")
    assert main(["--replay", path, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["comes_again"], told["differs"], told["failed"]) == (True, None, 2)
    assert [each["calls"] for each in told["replays"]] == [6, 6]
    assert main(["--help"]) == 0
    documented = capsys.readouterr().out
    nested = {*told, *told["failure"], *told["replays"][0]}
    assert [name for name in nested if name not in documented] == []


def test_a_case_that_cannot_be_taken_here_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither another kind of file, nor a world that does not exist here; no process is begun."""
    other = tmp_path / "checkpoint-3.safetensors"
    seal(other, "checkpoint", Sealed({}, {}))
    assert main(["--replay", str(other)]) == 2
    assert "it is a checkpoint of format 1, not a case" in capsys.readouterr().err
    gone = written(tmp_path, BREAKING, "python:tests.fakes.breaking:mak")
    assert main(["--replay", gone]) == 2
    told = capsys.readouterr()
    assert "did you mean 'make'?" in told.err
    assert told.out == ""
