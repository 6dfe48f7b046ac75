"""Runs that go on from another one: finished runs with more steps, and weights of another run."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hts.config import A2C, PPO, PQL, Experiment, Given, Machine, Resolved, configure
from hts.config.extended import Extended
from hts.errors import WrongUsage
from hts.report import checkpoints, curves, policies, run_directory
from hts.report.page import page
from hts.report.recorded import compare, read
from hts.report.resume import resume
from hts.report.sealed import Sealed, seal
from hts.report.start import Start, find_start
from hts.runtime import train as training
from hts.runtime.assemble import Updated, plan
from hts.runtime.standing import Standing
from hts.runtime.train import go_on, make_run, train
from hts_envs import parse
from tests.determinism.test_resume import carried, hts_train, killed
from tests.fakes.runs import experiment, outcome

SERIAL = Machine(serial=True)
LAYOUTS = [
    Machine(executors=1, actors=0, blocks=1, stepping="turns"),
    SERIAL,
    Machine(executors=2, actors=1, stepping="threads"),
]


def pieces(
    asked: Experiment, counts: Sequence[int], begin: Standing | None, start: Start | None = None
) -> tuple[list[Updated], Standing]:
    """Updates of a run, stopped after so many, each time going on on another layout."""
    told: list[Updated] = []
    for count, machine in zip(counts, itertools.cycle(LAYOUTS), strict=False):
        run = make_run(plan(asked, parse(asked.env), "cpu", start=start), machine, begin)
        try:
            told += [*itertools.islice(run, count), *run.rest()]
            begin = run.standing()
        finally:
            run.close()
        assert begin is not None
    assert begin is not None
    return told, begin


CASES: dict[str, tuple[Experiment, str]] = {
    "ppo, stretched": (
        experiment(algo=PPO(epochs=2, minibatches=2, learning_rate_schedule="linear"), updates=6),
        "stretch",
    ),
    "a2c, restarted, normalised": (
        experiment(
            "gym:Pendulum-v1", algo=A2C(), normalise_observations=True, rollout=32, updates=6
        ),
        "restart",
    ),
    "pql": (
        experiment(
            "gym:Pendulum-v1",
            algo=PQL(batch=16, replay=256, warm_up=16, beta_av=2, critic_hidden=(16,)),
            updates=6,
        ),
        "constant",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_extended_run_is_one_run_of_its_experiment(case: str, tmp_path: Path) -> None:
    """Finished, extended from its checkpoint, and stopped in between, on one layout after the
    other: the updates of the extended experiment, run serially from its first step."""
    first, horizon = CASES[case]
    told, standing = pieces(first, (6,), None)
    extended = Extended(
        from_steps=(first.steps,), from_digests=(standing.chain,), horizons=(horizon,)
    )  # type: ignore[arg-type]
    longer = dataclasses.replace(first, steps=2 * first.steps, extended=extended)
    more, _ = pieces(longer, (1, 2, 9), carried(standing, tmp_path / "checkpoint"))
    expected = outcome(longer)
    assert [update.link for update in [*told, *more]] == [update.link for update in expected]
    assert [update.told for update in [*told, *more]] == [update.told for update in expected]
    planned = outcome(dataclasses.replace(first, steps=2 * first.steps))
    differ = [a.link.chain != b.link.chain for a, b in zip(expected, planned, strict=True)]
    assert differ == [True] * 12, "another experiment has another digest"
    made, other = ([update.link.parameters for update in run] for run in (expected, planned))
    assert (made == other) == (horizon == "constant"), "with constant rates only the chain differs"


@pytest.mark.parametrize("case", CASES)
def test_a_run_from_weights_is_the_same_on_every_layout(case: str) -> None:
    """In pieces and elsewhere, or serially: and not the run that draws its weights."""
    asked, _ = CASES[case]
    _, standing = pieces(asked, (2,), None)
    newest = {n.removeprefix("versions."): a[-1] for n, a in standing.part("versions.").items()}
    start = Start(newest, {}, "a test")
    asked = dataclasses.replace(asked, start_from=start.content)
    told, _ = pieces(asked, (1, 2, 9), None, start)
    expected = outcome(asked, start)
    assert [update.link for update in told] == [update.link for update in expected]
    drawn = outcome(dataclasses.replace(asked, start_from=None))
    assert [u.link.parameters for u in drawn] != [u.link.parameters for u in expected]


# Whole runs with their directories, serially in this process unless one has to be killed.

LINEAR = ("learning_rate_schedule=linear", "evaluate_every=5", "evaluate_episodes=0", "log=none")


def configured(*sets: str, **given: str) -> Resolved:
    flags = [Given(path, value, f"--{path}") for path, value in given.items()]
    return configure("smoke", (*LINEAR, "serial=true", "steps=1280", *sets), flags)


def extend(run: Path, steps: int, horizon: str | None = None) -> int:
    """The exit code of the command, with a quiet terminal."""
    given = [Given("experiment.steps", str(steps), "--steps")]
    return go_on(resume(run, given, horizon=horizon), "quiet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ten updates; tests read it, or go on with a copy."""
    path = tmp_path_factory.mktemp("runs") / "finished"
    assert train(configured(), path, "quiet") == 0
    return path


@pytest.fixture(scope="module")
def extended(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with ten updates more."""
    path = tmp_path_factory.mktemp("runs") / "extended"
    shutil.copytree(finished, path)
    assert extend(path, 2560, "stretch") == 0
    return path


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to go on with."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def manifest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    return found


def test_an_extended_run_goes_on_in_its_record(finished: Path, extended: Path) -> None:
    """One directory, one record: what was finished stays as it was, and the manifest says when it
    was extended, from where and how."""
    for name in ("digests.jsonl", "metrics.jsonl"):
        before, after = ((run / name).read_bytes() for run in (finished, extended))
        assert after.startswith(before)
        assert len(after.splitlines()) == 2 * len(before.splitlines()) == 20
    was, found = read(finished), read(extended)
    assert (found.status, found.result["updates"], found.result["steps"]) == ("done", 20, 2560)
    assert found.result["digest"] != was.result["digest"]
    assert found.result["interrupted"] == []
    assert found.identities == {0: was.identity, 10: found.identity}
    first, leg = manifest(extended)["legs"]
    assert "extends" not in first
    assert leg["extends"] == {
        "experiment": was.identity,
        "updates": 10,
        "digest": was.result["digest"],
        "steps": 1280,
        "horizon": "stretch",
    }
    compared = compare(was, found)
    assert (compared.ours, compared.theirs, compared.parted) == (10, 20, None)
    written = page(found, manifest(extended))
    assert "extends the run that was finished with 1,280 steps" in written
    assert f"extended.from_digests={was.result['digest']}" in written, "it can be run again"


def test_policies_of_every_stage_can_be_read(finished: Path, extended: Path) -> None:
    """Those that the finished run has kept, and those of the extension."""
    there = policies.available(extended)
    assert list(there) == [5, 10, 15, 20]
    made = {update: find_start(f"{extended}:{update}").content for update in there}
    assert len(set(made.values())) == 4
    (checkpoint,) = checkpoints.written(finished / "checkpoints")
    held = policies.read(checkpoint, read(finished).identities)
    assert made[10] == Start(held.arrays, {}, "").content, "a checkpoint and a policy are equal"


def test_an_extended_run_is_one_curve(extended: Path) -> None:
    """Over all of its steps; and seeds that were extended alike are one experiment, although each
    goes on from a digest of its own."""
    one = read(extended)
    other = {"experiment.seed": 1, "experiment.extended.from_digests": ["1" * 32]}
    runs = [one, dataclasses.replace(one, config={**one.config, **other})]
    (both,) = curves.experiments(runs)
    assert list(both.runs) == [0, 1]
    found = curves.curve(both, "train/entropy", "steps")
    assert found.x.tolist() == [128 * update for update in range(1, 21)]


def test_an_extended_run_can_be_run_from_nothing(extended: Path, tmp_path: Path) -> None:
    """Its configuration alone makes the same record; a run that does not come to the digest that
    it names is marked."""
    config = read(extended).configuration()
    assert train(Resolved(config, {}), tmp_path / "again", "quiet") == 0
    assert (tmp_path / "again/digests.jsonl").read_bytes() == (
        extended / "digests.jsonl"
    ).read_bytes()
    wrong = dataclasses.replace(config.experiment.extended, from_digests=("0" * 32,))
    other = dataclasses.replace(config.experiment, extended=wrong)
    changed = dataclasses.replace(config, experiment=other)
    assert train(Resolved(changed, {}), tmp_path / "other", "quiet") == 0
    (mark,) = read(tmp_path / "other").result["interrupted"]
    assert mark.startswith("update 10 ends with digest")


def test_an_extended_run_can_be_extended(extended: Path, tmp_path: Path) -> None:
    """By two routes to the same steps: other experiments, with other digests."""
    twice = Path(shutil.copytree(extended, tmp_path / "twice"))
    assert extend(twice, 3200, "restart") == 0
    found = read(twice)
    assert list(found.identities) == [0, 10, 20]
    assert compare(read(extended), found).parted is None
    assert [leg.get("extends", {}).get("steps") for leg in manifest(twice)["legs"]] == [
        None,
        1280,
        2560,
    ]


def test_killed_and_stopped_while_it_is_extended(extended: Path, copy: Path) -> None:
    """kill -9 and Ctrl-C of the command, on other layouts each time, and a plain --resume after
    that: the record of an undisturbed extension."""
    often = ("--set", "checkpoint_every=0.01", "--set", "serial=false")
    killed(
        copy,
        *("--resume", str(copy), "--steps", "2560", "--schedule-horizon", "stretch"),
        *(*often, "--executors", "2", "--actors", "1", "--set", "jitter=5"),
    )
    assert read(copy).status.startswith("still running"), "the old result is gone"
    killed(copy, "--resume", str(copy), "--set", "serial=true", number=signal.SIGINT)
    ended = hts_train("--resume", str(copy), "--set", "jitter=0")
    assert ended.returncode == 0, ended.stderr
    assert (copy / "digests.jsonl").read_bytes() == (extended / "digests.jsonl").read_bytes()
    assert read(copy).result["interrupted"] == []


@pytest.mark.parametrize("moment", ["before the manifest", "after it", "before the result goes"])
def test_a_run_is_finished_or_extended_and_nothing_between(
    moment: str, finished: Path, extended: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the first moment of extending: either the finished run is there as it was, or
    --resume goes on with the extension."""
    patched = {
        "before the manifest": (run_directory.os, "replace"),
        "after it": (run_directory, "cut"),
        "before the result goes": (run_directory.Path, "unlink"),
    }

    def die(*_: object, **__: object) -> None:
        raise SystemExit(9)

    with monkeypatch.context() as patch:
        patch.setattr(*patched[moment], die)
        with pytest.raises(SystemExit):
            extend(copy, 2560, "stretch")
    if moment == "before the manifest":
        assert (read(copy).identity, read(copy).status) == (read(finished).identity, "done")
        assert extend(copy, 2560, "stretch") == 0
    else:
        assert json.loads((copy / "result.json").read_text())["status"] == "done", "the old one"
        assert read(copy).identity == read(extended).identity
        assert read(copy).status.startswith("still running")
        assert go_on(resume(copy, []), "quiet") == 0
    assert (copy / "digests.jsonl").read_bytes() == (extended / "digests.jsonl").read_bytes()
    assert read(copy).result["updates"] == 20


def test_stopped_before_its_first_update(
    extended: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C as soon as everything is ready: the extension goes on from there."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training._Training, "_follow", interrupted)
        assert extend(copy, 2560, "stretch") == 130
    stopped = read(copy)
    assert (stopped.status, stopped.identity) == ("interrupted", read(extended).identity)
    assert stopped.result["digest"] == stopped.config["experiment.extended.from_digests"][0]
    assert go_on(resume(copy, []), "quiet") == 0
    assert (copy / "digests.jsonl").read_bytes() == (extended / "digests.jsonl").read_bytes()


def refused(run: Path, *sets: str, horizon: str | None = None) -> str:
    """The sentence, after which nothing has changed."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    given = [Given(*each.split("="), origin=f"--set {each}") for each in sets]
    with pytest.raises(WrongUsage) as told:
        resume(run, given, horizon=horizon)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    return str(told.value)


def test_what_cannot_be_extended_is_refused(copy: Path) -> None:
    """Each with a sentence of its own."""
    for steps in ("100", "1279"):
        assert "give at least 1281" in refused(copy, f"steps={steps}", horizon="stretch")
    told = refused(copy, "steps=1281")
    assert "say whether it is to stretch (goes on as in a run planned for all steps), or" in told
    assert "this run has seed 0, which cannot change" in refused(
        copy, "steps=2560", "seed=1", horizon="stretch"
    )
    assert "give --steps with the new total" in refused(copy, horizon="stretch")
    result = json.loads((copy / "result.json").read_text())
    (last,) = checkpoints.written(copy / "checkpoints")
    held = checkpoints.read(last)
    last.unlink()
    for older in (False, True):
        if older:
            facts = {**held.facts, "updates": 9}
            seal(last.with_stem("000000009"), checkpoints.KIND, Sealed(facts, held.arrays))
        told = refused(copy, "steps=2560", horizon="restart")
        assert "the checkpoint after its last update, 10, is not there any more" in told
    (copy / "result.json").write_text(json.dumps({**result, "status": "interrupted"}))
    told = refused(copy, "steps=2560", horizon="restart")
    assert f"finish it with hts-train --resume {copy}, then extend it with --steps 2560" in told


def test_a_constant_rate_has_no_horizon(tmp_path: Path) -> None:
    """It is not asked for, and refused where it is given."""
    assert train(configured("learning_rate_schedule=constant"), tmp_path / "run", "quiet") == 0
    told = refused(tmp_path / "run", "steps=2560", horizon="stretch")
    assert "the learning rate of this run is constant; leave it out" in told
    assert extend(tmp_path / "run", 2560) == 0


def test_a_run_keeps_the_weights_that_it_started_from(
    finished: Path, copy: Path, tmp_path: Path
) -> None:
    """From a checkpoint of another run, which is gone afterwards: resumed from its begin and from a
    checkpoint, started again from its own copy, and extended."""
    start = find_start(f"{copy}:10")
    shutil.rmtree(copy)
    asked = configured(**{"experiment.start_from": start.content})
    run, other = tmp_path / "started", tmp_path / "other"
    assert train(asked, run, "quiet", start) == 0
    lines = (run / "digests.jsonl").read_bytes()
    assert lines.splitlines()[0] != (finished / "digests.jsonl").read_bytes().splitlines()[0]
    newest = np.array(find_start(str(run)).arrays["parameters"])
    assert not np.array_equal(newest, start.arrays["parameters"])
    shutil.copytree(run, other)
    (other / "result.json").unlink()
    shutil.rmtree(other / "checkpoints")
    assert go_on(resume(other, []), "quiet") == 0
    assert (other / "digests.jsonl").read_bytes() == lines
    assert find_start(f"{other}:0").content == start.content
    assert extend(other, 1408, "restart") == 0
    assert (other / "digests.jsonl").read_bytes().startswith(lines)
