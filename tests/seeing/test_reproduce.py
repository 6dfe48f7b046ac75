"""`tools/reproduce`: which runs a table or figure takes, and what is said of the rest."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hts.cli import train
from hts.config import configure
from hts.report.printed import TABLES
from tests.limits import HANG
from tools.reproducing import command
from tools.reproducing.presets import PRESETS, Preset, Scale

SCALES = [(name, scale) for name in PRESETS for scale in command.SCALES]


def planned(name: str, scale: str, *, env: str | None = None) -> list[command.Run]:
    preset = PRESETS[name]
    return list(command.runs(preset, getattr(preset, scale), Path("there"), env=env, seeds=[0, 1]))


@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_every_run_is_one_that_can_be_made(name: str, scale: str) -> None:
    """hts-train takes its arguments; each has a directory of its own, and there are as many for a
    seed as there are environments and arms."""
    made = planned(name, scale)
    assert len({run.folder for run in made}) == len(made)
    for run in made:
        typed = train.parser().parse_args(run.arguments)
        config = configure(typed.config, typed.set, train.flags(typed)).config
        assert config.experiment.steps == getattr(PRESETS[name], scale).steps
    part = getattr(PRESETS[name], scale)
    arms, envs = part.arms or PRESETS[name].arms, part.envs or PRESETS[name].envs
    assert set(arms) <= set(PRESETS[name].arms)
    assert set(envs) <= set(PRESETS[name].envs)
    assert len(made) == 2 * len(arms) * len(envs)


def test_the_rows_of_full_are_those_of_the_paper() -> None:
    """Every row that the paper prints has runs; so has every table that hts-plot knows."""
    shown = {}
    for preset in PRESETS.values():
        for flags in preset.show:
            if flags.startswith("--table"):
                table = TABLES[flags.split()[1]]
                shown[table.title] = table
                if not preset.compares_envs:
                    assert {env for env, _ in table.rows} == set(preset.envs)
                if table.value:
                    assert {value for _, value in table.rows} <= {"1", "3", *preset.arms}
    assert set(shown) == {table.title for table in TABLES.values()}


def test_another_environment_has_other_directories() -> None:
    """So that the runs of one are never taken for those of another."""
    folders = [{run.folder for run in planned("hts-rl-table4", "small", env=env)} for env in ENVS]
    assert not folders[0] & folders[1]
    assert Path("there/gym-CartPole-v1/16-s1") in folders[1]


ENVS = ("gfootball:3v1", "gym:CartPole-v1")


def test_small_says_what_it_leaves_out() -> None:
    """Rows, environments, seeds and steps, each by what it is; of a full one nothing is said."""
    preset = PRESETS["hts-rl-table5"]
    said = list(command.left_out(preset, preset.small, env=None, seeds=[0]))
    assert said[0] == "left out of the rows: 4, 128, 512."
    assert said[1] == "left out of the seeds: 1, 2, 3, 4."
    assert said[2] == "16,384 of 5,000,000 steps in each run."
    assert list(command.left_out(preset, preset.full, env=None, seeds=range(5))) == []
    atari = PRESETS["hts-rl-table1"]
    first = next(command.left_out(atari, atari.small, env=None, seeds=[0]))
    assert first.startswith("left out of the environments: atari:BankHeist, atari:BeamRider")
    assert "Breakout" not in first


TINY = Preset(
    about="two rows in seconds",
    envs=("gym:CartPole-v1",),
    arms={"0": "--actors 0", "1": "--actors 1"},
    flags="--algo ppo --envs 4 --set rollout=16 --executors 1 --set log=none",
    show=("--table 4", "--throughput"),
    full=Scale(steps=1024),
    small=Scale(steps=256, flags="--evaluate 2 --set evaluate_episodes=2", seeds="0"),
)


def test_from_runs_to_a_table_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Real runs and evaluations, compared to the last bit; asked again, none is made again."""
    monkeypatch.setattr(command, "PRESETS", {"tiny": TINY})
    typed = argparse.Namespace(name="tiny", scale=None, seeds=None, env=None, out=tmp_path)
    assert command.reproduce(typed) == 0
    said = capfd.readouterr()
    assert "Compared in 2 rows: gym:CartPole-v1" in said.out
    assert "and the evaluations of 2 policies, episode by episode" in said.out
    assert "small: 256 of 1,024 steps in each run." in said.out
    assert (tmp_path / "throughput.png").read_bytes().startswith(b"\x89PNG")
    results = {path: path.read_bytes() for path in tmp_path.glob("*/*/result.json")}
    assert len(results) == 2
    assert command.reproduce(typed) == 0
    assert capfd.readouterr().err.count("this run is done") == 2
    assert results == {path: path.read_bytes() for path in tmp_path.glob("*/*/result.json")}


def test_an_interruption_reaches_the_run(tmp_path: Path) -> None:
    """SIGTERM to the tool alone: the run ends behind a checkpoint, then the tool, with 130."""
    world = ("--env", "python:tests.fakes.small_worlds:Announcing", "--seeds", "5..6")
    asked = [command.TOOLS / "reproduce", "hts-rl-table4", *world, "--out", tmp_path]
    with subprocess.Popen(asked, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for sentence in ("hts-train: machine:", "step 300 is played"):
                assert any(sentence in line for line in process.stderr)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=HANG)
        finally:
            process.kill()
    assert process.returncode == 130, said
    (run,) = tmp_path.glob("*/*")
    assert run.name == "1-s5"
    assert json.loads((run / "result.json").read_text())["status"] == "interrupted"
    assert list((run / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (("hts-rl-table3", "--env", "gym:CartPole-v1"), "compares environments"),
        (("hts-rl-figure3", "--seeds", "1"), "takes no runs"),
        (("hts-rl-table4", "--seeds", "4..0"), "write it as 0..4 or 0,3,7"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    typed: tuple[str, ...], sentence: str, refused: Callable[[tuple[str, ...]], str]
) -> None:
    """One sentence, exit code 2, and nothing is run."""
    assert sentence in refused(typed)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[[tuple[str, ...]], str]:
    """What is said to a wrong call."""

    def said(typed: tuple[str, ...]) -> str:
        assert command.main(typed) == 2
        return capsys.readouterr().err

    return said
