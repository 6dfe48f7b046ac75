"""Cases: what is written where a simulator fails, and whether it fails again when it is taken."""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hts.errors import WrongUsage
from hts.report.run_directory import versions
from hts.report.sealed import Sealed, seal
from hts.roles.local import WorldsBlock
from hts.runtime.crew import make_blocks
from hts.soundness import replay as replaying
from hts.soundness.case import Case, Failure, Kind
from hts.soundness.replay import CONSTRUCTION, Replayed, replay
from hts.soundness.reproduce import Reproduced, first_difference, render, reproduce
from hts_envs.contract import Place
from hts_envs.registry import make, parse
from tests.fakes.cases import stopped

WORLD = "python:tests.fakes.breaking:make"
BATCH = "python:tests.fakes.breaking:batch"
LIMIT = 3.0


def elsewhere(case: Case, env: str) -> Case:
    """The same case of a world that does something else."""
    return dataclasses.replace(case, env=env)


def as_if(case: Case, kind: Kind) -> Case:
    """The same case of another failure."""
    return dataclasses.replace(case, failure=Failure(kind, "so it was told"))


def sound(row: int | None = 0, **how: Any) -> Case:
    """Twelve steps of sound worlds."""
    return stopped(f"{WORLD}?how=not", steps=12, **how).case(row)


def words(failure: Failure | None) -> str:
    assert failure is not None, "it failed"
    return failure.words


def arrays(case: Case) -> dict[str, np.ndarray[Any, Any]]:
    found = {"episode": case.episode, "age": case.age, "trail": case.trail}
    if case.action is not None:
        found["action"] = case.action
    return {**found, **case.seen}


@pytest.mark.parametrize("row", [None, 2])
def test_a_file_holds_the_whole_case(tmp_path: Path, row: int | None) -> None:
    """What is read is what was written: every array bit for bit, and every fact."""
    written = stopped(f"{WORLD}?how=raises&step=22").case(row)
    path = tmp_path / "case-1.safetensors"
    written.write(path)
    found = Case.read(path)
    assert found.versions == versions()
    for field in dataclasses.fields(Case):
        if field.name not in ("seen", *arrays(written)):
            assert getattr(found, field.name) == getattr(written, field.name)
    assert set(arrays(found)) == set(arrays(written))
    for name, array in arrays(written).items():
        np.testing.assert_array_equal(arrays(found)[name], array, strict=True)


def test_a_case_is_small() -> None:
    """Of worlds that are stepped one by one the one that failed, and of its actions the running
    episode's; of a batched world all of it."""
    found = stopped(f"{WORLD}?how=not", steps=26).case()
    alone = stopped(f"{WORLD}?how=not", steps=26).case(2)
    assert (found.replicas, found.failed) == (range(2, 5), None)
    assert (alone.replicas, alone.failed) == (range(4, 5), 4)
    age = int(found.age[2])
    assert 0 < age < found.age.max(), "the test would show nothing"
    assert alone.trail.shape == (1, age, 2, 2)
    np.testing.assert_array_equal(alone.trail[0], found.trail[2, -age:])
    np.testing.assert_array_equal(alone.seen["numbers"][0], found.seen["numbers"][2])
    together = stopped(BATCH, steps=26).case(1)
    assert (together.replicas, together.failed) == (range(2, 5), 3)


def test_a_case_is_a_copy() -> None:
    """What a run writes into its storages later does not change it."""
    found = stopped(WORLD, steps=9)
    case = found.case()
    before = {name: array.copy() for name, array in arrays(case).items()}
    assert found.question is not None
    for array in found.question.storage.arrays.values():
        array[:] = 1
    for name, array in arrays(case).items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no such file"),
        (b"", "it cannot be read as a whole"),
        (b"not safetensors at all", "it cannot be read as a whole"),
    ],
)
def test_what_is_no_case_is_refused(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    """One sentence with the file's name, which is wrong usage."""
    path = tmp_path / "case-1.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WrongUsage, match=f"^no case can be read: .*case-1.*{sentence}"):
        Case.read(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A checkpoint is as whole as a case, and is none."""
    path = tmp_path / "checkpoint.safetensors"
    seal(path, "checkpoint", Sealed({}, {"age": np.zeros(1)}))
    with pytest.raises(WrongUsage, match="it is a checkpoint of format 1, not a case"):
        Case.read(path)


def test_damage_is_found_wherever_it_is(tmp_path: Path) -> None:
    """A byte changed anywhere in the file, or its end cut off, and it is refused."""
    path = tmp_path / "case.safetensors"
    sound().write(path)
    whole = path.read_bytes()
    changed = [whole[:-1]]
    for place in range(0, len(whole), 7):
        torn = bytearray(whole)
        torn[place] ^= 4
        changed.append(bytes(torn))
    for content in changed:
        path.write_bytes(content)
        with pytest.raises(WrongUsage, match="no case can be read"):
            Case.read(path)


@pytest.mark.parametrize(
    ("env", "where"),
    [
        (WORLD, "step 22 of episode 1 of replica 3"),
        (BATCH, "step 22 of episode 6 of replica 4"),
    ],
)
def test_what_raises_in_a_step_raises_there_again(env: str, where: str) -> None:
    """Of a whole block, single worlds and a batched one, whose episodes have several ages: the same
    step and the same words, in two processes that are equal up to there."""
    case = stopped(f"{env}?how=raises&step=22").case()
    assert len(set(case.age.tolist())) == 3, "the rows begin at different times"
    found = reproduce(case, LIMIT)
    assert found.comes_again
    assert found.differs is None
    assert found.strayed is None
    for each in found.replays:
        assert each.failure is not None
        assert each.failure.kind is Kind.RAISES
        assert each.where == where
        assert words(each.failure).splitlines()[-1] == words(case.failure).splitlines()[-1]
        assert "the engine has lost the ball 21" in words(each.failure)


@pytest.mark.parametrize("env", [WORLD, BATCH])
def test_what_raises_behind_an_end_raises_there_again(env: str) -> None:
    """The reset that follows an action is taken too: with the next episode's seed."""
    case = stopped(f"{env}?how=raises&reset=2", replicas=range(1, 2)).case(0)
    assert case.episode.tolist() == [0]
    found = replay(case, LIMIT)
    assert found.where == "the reset of episode 1 of replica 1"
    assert words(found.failure).splitlines()[-1] == words(case.failure).splitlines()[-1]


@pytest.mark.parametrize(
    ("env", "where"),
    [
        (f"{WORLD}?how=raises&reset=1", "the reset of episode 0 of replica 3"),
        (f"{BATCH}?how=raises&reset=1", "the reset of episode 0 of replica 3"),
        (f"{WORLD}?how=built", CONSTRUCTION),
        ("python:tests.fakes.raises_on_import:make", CONSTRUCTION),
    ],
)
def test_what_raises_before_anything_was_asked_raises_again(env: str, where: str) -> None:
    """A first reset, a construction, a module: a case without actions."""
    asked = dataclasses.replace(stopped(WORLD, steps=0).asked, env=env)
    row = 0 if env.startswith(WORLD) else None
    case = Case.of(asked, range(3, 5), None, Failure(Kind.RAISES, "it raised"), row=row)
    found = reproduce(case, LIMIT)
    assert found.comes_again
    assert [each.where for each in found.replays] == [where, where]


@pytest.mark.parametrize("how", ["hangs", "hangs below Python"])
def test_what_hangs_is_shown_and_ended(how: str) -> None:
    """Where it has been for how long, with its stack, also where the interpreter is held; its
    process is gone, and nobody waits for a second one."""
    pids: list[int] = []
    case = as_if(elsewhere(sound(), f"{WORLD}?how={how}&step=5"), Kind.HANGS)

    class Known(replaying.Child):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            pids.append(self.pid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replaying, "Child", Known)
        found = reproduce(case, 1.0)
    (only,) = found.replays
    assert only.failure is not None
    assert only.failure.kind is Kind.HANGS
    assert "breaking.py" in words(only.failure)
    assert "in _break" in words(only.failure)
    assert words(only.failure).startswith("Thread 0x")
    assert len([call for call in only.calls if call.step]) == 4
    assert found.comes_again
    assert "COMES AGAIN: it has been in step 5 of episode" in render(found)
    assert "replica 2 for 1 s" in " ".join(render(found).split())
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_what_is_stopped_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot even write down its stack is not waited for."""
    monkeypatch.setattr(replaying, "_GRACE", 3.0)
    found = replay(elsewhere(sound(), f"{WORLD}?how=stops&step=5"), 0.5)
    assert found.failure == Failure(Kind.HANGS, "it does not even show its stack")
    assert found.where == "step 5 of episode 0 of replica 2"


@pytest.mark.parametrize(
    ("how", "said"),
    [("dies", "it was ended by SIGSEGV\nFatal Python error"), ("exits", "with exit code 3")],
)
def test_what_dies_says_where(how: str, said: str) -> None:
    """A simulator that takes its process with it: how it ended, and where it was."""
    case = as_if(elsewhere(sound(), f"{WORLD}?how={how}&step=5"), Kind.DIES)
    found = reproduce(case, LIMIT)
    assert found.comes_again
    for each in found.replays:
        assert each.failure is not None
        assert each.failure.kind is Kind.DIES
        assert each.where == "step 5 of episode 0 of replica 2"
        assert said in words(each.failure)


@pytest.mark.parametrize("env", [WORLD, BATCH])
@pytest.mark.parametrize(
    ("where", "name"), [("step=5", "step 5 of episode 0"), ("reset=1", "the reset of episode 0")]
)
def test_what_is_shown_in_another_shape_raises_again(env: str, where: str, name: str) -> None:
    """It stops a run, and a replay, though it could be spread over its place."""
    case = stopped(f"{env}?how=misshapen&{where}").case()
    found = replay(case, LIMIT)
    assert found.failure is not None
    assert found.where.startswith(name)
    for failure in (case.failure, found.failure):
        assert "numbers has the shape" in words(failure)


@pytest.mark.parametrize("env", [WORLD, BATCH])
def test_what_does_not_fail_again_is_told_plainly(env: str) -> None:
    """All of it was taken, twice, and showed what the run saw: it does not come again."""
    case = stopped(env, steps=26).case()
    assert len(set(case.age.tolist())) > 1, "the rows begin at different times"
    found = reproduce(case, LIMIT)
    assert not found.comes_again
    assert (found.differs, found.strayed) == (None, None)
    told = " ".join(render(found).split())
    assert "it does not come again: two fresh processes are bit-equal in" in told
    assert "see what the run saw" in told
    assert "the last (step " in told


def test_a_simulator_that_is_not_deterministic_is_caught() -> None:
    """Where two replays differ, the first step is named; that is the failure of a case which was
    not reproduced in a run, and not that of one which raised."""
    case = stopped("python:tests.fakes.unsteady:make", steps=12).case(0)
    strays = reproduce(as_if(case, Kind.STRAYS), LIMIT)
    assert strays.differs == "step 7 of episode 0 of replica 2"
    assert strays.comes_again
    raised = reproduce(as_if(case, Kind.RAISES), LIMIT)
    assert not raised.comes_again
    assert "differ first in step 7 of episode 0" in " ".join(render(raised).split())


def test_a_simulator_that_remembers_earlier_episodes_is_caught() -> None:
    """Two replays are equal, but show something else than the run saw."""
    case = stopped("python:tests.fakes.straying:make", steps=13).case(0)
    assert case.episode.tolist() == [1]
    found = reproduce(as_if(case, Kind.STRAYS), LIMIT)
    assert found.differs is None
    assert found.strayed is not None
    assert "step 3 of episode 1 of replica 2 observation is not what the run saw" in found.strayed
    assert found.comes_again
    assert not reproduce(as_if(case, Kind.RAISES), LIMIT).comes_again


def test_an_episode_that_ends_too_early_is_not_stepped_on() -> None:
    """A step behind an end is nobody's to take: the replay stops there and says so."""
    case = elsewhere(sound(), f"{WORLD}?how=not&length=5")
    found = replay(case, LIMIT)
    assert found.failure is None
    assert found.strayed is not None
    assert found.strayed.endswith("ends the episode, which went on in the run")
    assert len([call for call in found.calls if call.step]) < case.age[0]


@pytest.mark.parametrize("squash", [False, True])
def test_actions_are_taken_as_in_the_run(squash: bool) -> None:
    """Drawn beyond their bounds, recorded as drawn, brought within them in the way of the
    experiment: the world, which accepts nothing else, shows the same and is rewarded the same."""
    case, other = sound(squash=squash), sound(squash=not squash)
    assert np.abs(case.trail).max() > 1.0
    assert {case.bounds, other.bounds} == {"squashed", "clipped"}
    marks = [
        [call.mark for call in replay(dataclasses.replace(case, bounds=each), LIMIT).calls]
        for each in (case.bounds, case.bounds, other.bounds)
    ]
    assert marks[0] == marks[1]
    assert marks[0][:2] == marks[2][:2], "neither is taken before the first step"
    assert marks[0][2] != marks[2][2], "the reward is the action's"


def test_the_worlds_are_those_of_the_run() -> None:
    """Built with the same place and seed: what a replay shows is what a block of the run shows."""
    env = "python:tests.fakes.factories:placed"
    case = stopped(env, steps=5, replicas=range(2, 4)).case(1)
    (block,) = make_blocks(
        stopped(env, steps=0).asked,
        parse(env),
        make(parse(env), Place()).spaces,
        [case.replicas],
    )
    assert isinstance(block, WorldsBlock)
    again = replaying.make_worlds(parse(case.env), case.replicas, case.seed)
    assert isinstance(again, list)
    told = [world._env.told for world in (*again, *block.worlds)]  # type: ignore[attr-defined]
    assert told[0] == told[1]
    assert told[0]["replica"] == 3


def test_where_two_replays_part() -> None:
    """In what a call showed, in which call came next, or in how far they went."""
    call = replaying.Call("step 1", 1, 0.1, "a")
    other = dataclasses.replace(call, mark="b")
    further = dataclasses.replace(call, name="step 2", step=2)
    whole, raised = None, Failure(Kind.RAISES, "words")

    def made(*calls: replaying.Call, failure: Failure | None = whole) -> Replayed:
        return Replayed(calls, "step 3" if failure else "step 9", failure)

    assert first_difference(made(call, further), made(call, further)) is None
    assert first_difference(made(call, further), made(other, further)) == "step 1"
    assert first_difference(made(call, further), made(call, further, failure=raised)) is not None
    assert first_difference(made(call, failure=raised), made(call, further)) == "step 3"
    slower = dataclasses.replace(call, seconds=9.0)
    assert first_difference(made(call), made(slower)) is None


@pytest.mark.parametrize(
    ("kinds", "again"),
    [
        *[((ran, None, None), False) for ran in Kind],
        *[((ran, now, now), True) for ran, now in itertools.product(Kind, list(Kind)[:3])],
        ((Kind.RAISES, None, Kind.RAISES), True),
        ((Kind.HANGS, Kind.HANGS), True),
    ],
)
def test_what_counts_as_coming_again(kinds: tuple[Kind | None, ...], again: bool) -> None:
    """Any failure in any replay does, and every verdict can be put into words."""
    before, *now = kinds
    assert before is not None
    case = dataclasses.replace(sound(), failure=Failure(before, "words"))
    replays = tuple(
        Replayed((), "step 3", None if kind is None else Failure(kind, "words")) for kind in now
    )
    found = Reproduced(case, LIMIT, replays, versions())
    assert found.comes_again is again
    assert ("IT COMES AGAIN" in render(found)) is again


def test_other_versions_are_named() -> None:
    """What is installed here and was not where the case was written, and the other way round."""
    case = dataclasses.replace(sound(), versions={**versions(), "numpy": "1.0", "engine": "7"})
    found = Reproduced(case, LIMIT, (Replayed((), "step 1", None),), versions())
    told = " ".join(render(found).split())
    assert f"engine was 7, is absent; numpy was 1.0, is {versions()['numpy']}" in told
