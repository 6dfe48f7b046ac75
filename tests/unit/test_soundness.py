"""The examination of simulators: every deliberately broken world is caught, and sound ones pass."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hts.soundness import elsewhere
from hts.soundness.compare import Difference, compare
from hts.soundness.elsewhere import memory_of_replica
from hts.soundness.examine import Budget, examine, survey
from hts.soundness.findings import Broken, Finding, Level, Report
from hts.soundness.profile import Profile, Stretch, undisturbed
from hts.soundness.render import render
from hts.soundness.snapshots import examine_snapshots
from hts.soundness.subject import Batch, Single, actions, build
from hts.soundness.suggest import Resources, rollout_length, suggest, waiting_factor
from hts.soundness.trace import Plan, Position, Trace, play
from hts_envs.contract import Array, Box, Discrete, MultiDiscrete, Spaces
from hts_envs.errors import BadName
from tests.fakes import broken_worlds, shared_state

QUICK = Budget(episodes=20, steps=120, seconds=2.0)
PLAN = Plan(seed=0, world_seed=0, ticks=100, episode_limit=50, episodes=20)


@functools.cache
def examined(world: str) -> Report:
    """Each world is examined once for all the tests that look at it."""
    return examine(f"python:tests.fakes.broken_worlds:{world}", 0, QUICK)


def surveyed(world: str) -> Report:
    """What is seen of one run in this process."""
    kind = getattr(broken_worlds, world)
    batched = issubclass(kind, broken_worlds.SoundBatch)
    report = Report(world, 0)
    survey(Batch(kind(4)) if batched else Single(kind()), PLAN, Trace(), report)
    return report


def sentences(report: Report, check: str, level: Level) -> list[str]:
    return [f.text for f in report.findings if f.check == check and f.level is level]


SOUND = {
    "repeat": "two runs with the same seeds are bit-equal: ",
    "process": "a run in a fresh process is bit-equal",
    "interleaved": "two replicas in one process are bit-equal to each of them alone",
    "history": "is bit-equal in a world that played none before",
    "seed": "another seed differs: observation in episode 0, step 0",
    "spaces": "every observation, reward and flag has its declared type",
    "finite": "no observation or reward is NaN or infinite",
    "aliasing": "is not changed by the next steps and resets",
    "ends": "terminated",
    "facts": "facts hold the return and the length",
    "reset": "a reset returns something else",
}


@pytest.mark.parametrize("world", ["Sound", "SoundBatch", "RefusesAfterEnd"])
def test_a_sound_world_passes_every_check(world: str) -> None:
    """Each check says that it was made, and nothing worse than ok is found."""
    report = examined(world)
    assert report.sound
    assert [f.text for f in report.findings if f.level is not Level.OK] == []
    for check, words in SOUND.items():
        assert any(words in text for text in sentences(report, check, Level.OK)), check


def test_a_snapshot_that_holds_everything_passes() -> None:
    """A sound snapshot is restored here and elsewhere; a batched world has none to examine."""
    assert (
        "bit-equal, also in another world" in sentences(examined("Sound"), "snapshot", Level.OK)[0]
    )
    assert sentences(examined("SoundBatch"), "snapshot", Level.OK) == []


FAULTS = [
    ("WrongDtype", "spaces", "observation has dtype float64, declared is float32"),
    ("WrongShape", "spaces", "observation has shape (1, 2), declared is (1, 3)"),
    ("OutOfRange", "spaces", "at [1], declared is at most 50"),
    ("MissingField", "spaces", "reset returns no 'observation.map'"),
    ("UnknownField", "spaces", "returns 'observation.extra', which its spaces do not declare"),
    ("FloatReward", "spaces", "reward has dtype float64, declared is float32"),
    ("NumberFlags", "spaces", "terminated and truncated are not plain true or false"),
    ("ChangesAction", "spaces", "step changes the array of actions that it is given"),
    ("RowsInOneShape", "spaces", "observation has shape (4, 1, 3), declared is (1, 1, 3)"),
    ("NanObservation", "finite", "observation is NaN (first in episode 0, step 2"),
    ("NanReward", "finite", "reward is NaN (first in episode 0, step 1"),
    ("InfiniteReward", "finite", "reward is infinite"),
    ("Aliasing", "aliasing", "hands out its internal buffer instead of a copy"),
    ("TwoBuffers", "aliasing", "observation of a reset is changed by a later step"),
    ("ClockIgnored", "ends", "an episode goes on after its time limit of 40 steps"),
    ("NoFacts", "facts", "the facts of an ended episode lack 'return'"),
    ("WrongFacts", "facts", "facts say that the episode had 3 steps, it had "),
    ("WrongFacts", "facts", "the rewards add up to "),
]


@pytest.mark.parametrize(("world", "check", "words"), FAULTS)
def test_a_fault_is_seen_in_one_run(world: str, check: str, words: str) -> None:
    """The inspectors name the fault in the right sentence, and it makes the world unsound."""
    report = surveyed(world)
    assert not report.sound
    assert any(words in text for text in sentences(report, check, Level.ERROR)), report.findings


SNAPSHOTS = [
    ("ForgetfulSnapshot", "snapshot", "a snapshot forgets something: after restore: episode "),
    ("ForgetsElsewhere", "snapshot", "forgets something: restored in another world: episode "),
    ("WrongRestore", "snapshot", "forgets something: after restore: episode "),
    ("SnapshotDisturbs", "snapshot", "taking a snapshot changes what follows: episode "),
    ("SnapshotPromised", "snapshot", "SnapshotPromised has no snapshots"),
    ("SnapshotText", "snapshot", "snapshot returns str instead of bytes"),
    ("SnapshotRaises", "raises", "snapshot raised MemoryError: too large"),
]


@pytest.mark.parametrize(("world", "check", "words"), SNAPSHOTS)
def test_a_bad_snapshot_is_caught(world: str, check: str, words: str) -> None:
    """Whatever a snapshot forgets, changes or does not return is said, once."""
    kind = getattr(broken_worlds, world)
    try:
        found = examine_snapshots(lambda: Single(kind()), PLAN, Position(0, 1, 20))
    except Broken as broken:
        found = [Finding(Level.ERROR, broken.check, broken.text)]
    assert len(found) == 1
    assert (found[0].level, found[0].check) == (Level.ERROR, check)
    assert words in found[0].text


ERRORS = [
    ("ListObservation", "contract", "reset returns list as observation instead of a dict"),
    ("FourValues", "contract", "step returns 4 values instead of observation, reward"),
    ("PlainReward", "contract", "reward is float instead of a numpy array"),
    ("ObjectObservation", "contract", "is an array of Python objects instead of numbers"),
    ("OneFlag", "contract", "terminated has shape (), expected one for each replica"),
    ("HiddenRandomness", "repeat", "differ: episode 0, step 6: observation at [0, 0] is "),
    ("OtherInEachProcess", "process", "a run in a fresh process differs: episode 0, step 0: obs"),
    ("DiesElsewhere", "process", "in a fresh process did not come to its end"),
    ("FailsElsewhere", "process", "in a fresh process did not come to its end"),
    ("HistoryDependent", "history", "an episode depends on those before it: in a fresh world "),
    ("RowsLeak", "history", "an episode depends on those before it: in a fresh world replica 2"),
    ("RaisesAtStep", "raises", "step raised ZeroDivisionError in episode "),
    ("RaisesAtReset", "raises", "reset raised ConnectionError in episode 0, step 0: the engine"),
    ("RaisesWhenBuilt", "raises", "it cannot be built: "),
    ("RaisesWhenClosed", "raises", "close raised OSError: already gone"),
]


@pytest.mark.parametrize(("world", "check", "words"), ERRORS)
def test_a_broken_world_is_caught_with_the_right_sentence(
    world: str, check: str, words: str
) -> None:
    """One fault, the error that names it, and no sound verdict."""
    report = examined(world)
    assert not report.sound
    assert any(words in text for text in sentences(report, check, Level.ERROR)), report.findings


@pytest.mark.parametrize(
    ("world", "first"),
    [("SeedsGlobals", [0, 0, 1]), ("SharesAClass", [0, 0, 4]), ("FirstWins", [0, 0, 0])],
)
def test_state_outside_a_simulator_shows_beside_another_one(
    world: str, first: list[int], tmp_path: Path
) -> None:
    """Global generators, class attributes, and what the first one in a process makes for all."""
    name = f"python:tests.fakes.shared_state:{world}"
    trace = trace_of(name)
    vars(shared_state)[world].map = []  # as in a process of its own
    told = told_by("interleave", tmp_path, name, trace)
    assert told["compared"]["position"] == first
    assert told["compared"]["field"] == "observation"


def test_isolation_is_named_where_it_helps() -> None:
    """The examination is repeated with isolated generators, and its result is told."""
    report = examine("python:tests.fakes.shared_state:SeedsGlobals", 0, QUICK)
    assert not report.sound
    (text,) = sentences(report, "interleaved", Level.ERROR)
    assert "two replicas in one process, stepped in turn, differ from each of them alone" in text
    (remedy,) = sentences(report, "isolate", Level.NOTE)
    assert remedy.startswith("?isolate=generators mends it")
    assert "SeedsGlobals?isolate=generators)" in remedy
    report = examine("python:tests.fakes.shared_state:SharesAClass", 0, QUICK)
    (remedy,) = sentences(report, "isolate", Level.NOTE)
    assert "isolate=generators does not mend it" in remedy
    assert "attribute of a class or module" in remedy


ODD = [
    ("Constant", "reset", Level.WARNING, "all observations are the same"),
    ("ResetsNothing", "reset", Level.WARNING, "every reset returns the last observation again"),
    ("BothFlags", "ends", Level.NOTE, "ended terminated and truncated at once"),
    ("NeverEnds", "ends", Level.NOTE, "no episode ended within 50 steps"),
]


@pytest.mark.parametrize(("world", "check", "level", "words"), ODD)
def test_what_is_only_odd_in_a_run_is_no_error(
    world: str, check: str, level: Level, words: str
) -> None:
    """It is said, in the right words, and leaves the world sound."""
    report = surveyed(world)
    assert any(words in text for text in sentences(report, check, level)), report.findings
    assert report.sound


WARNINGS = [
    ("SeedIgnored", "seed", Level.WARNING, "another seed changes nothing in 120 steps"),
    ("ResetsItself", "after_end", Level.WARNING, "it resets itself: stepped on after the end"),
    ("SlowReset", "slow_reset", Level.WARNING, "resets take "),
    ("OneSeed", "history", Level.WARNING, "it takes one seed when it is built"),
    ("GoesOn", "after_end", Level.NOTE, "a step after the end of an episode is not refused"),
    ("DiesAfterEnd", "after_end", Level.NOTE, "without a reset, kills the process"),
]


@pytest.mark.parametrize(("world", "check", "level", "words"), WARNINGS)
def test_a_warning_leaves_a_world_sound(world: str, check: str, level: Level, words: str) -> None:
    """It is said, in the right words, and only errors make a simulator unsound."""
    report = examined(world)
    assert any(words in text for text in sentences(report, check, level)), report.findings
    assert report.sound


def test_the_figures_of_a_slow_reset_are_told() -> None:
    """The warning holds the measured duration, within the tenth that interruptions may hide."""
    (text,) = sentences(examined("SlowReset"), "slow_reset", Level.WARNING)
    assert float(text.split("the time: ")[1].split(" ms")[0]) >= 9.0  # of 10 ms of CPU time
    assert examined("SlowReset").profile["reset_share"] > 0.5


def test_an_error_shows_where_the_simulator_raised() -> None:
    """The last lines of the traceback are kept, so that the fault can be found."""
    (found,) = [f for f in examined("RaisesAtStep").findings if f.check == "raises"]
    assert "the ball left the universe" in found.detail[-1]
    assert any("broken_worlds.py" in line for line in found.detail)
    (found,) = [f for f in examined("FailsElsewhere").findings if f.level is Level.ERROR]
    assert any("one engine only" in line for line in found.detail)


def test_history_is_not_confused_with_snapshots() -> None:
    """A world that depends on its history is not also accused of bad snapshots."""
    assert {f.check for f in examined("HistoryDependent").findings if f.level is Level.ERROR} == {
        "history"
    }


def test_the_examination_is_a_function_of_its_seed() -> None:
    """The same seed finds the same difference again, another seed sees other episodes."""
    name = "python:tests.fakes.broken_worlds:OtherInEachProcess"
    plan = Plan(0, 0, 30, 15, 3)
    traces = []
    for seeds in ((0, 0), (0, 0), (1, 0), (0, 1)):
        subject = build("python:tests.fakes.broken_worlds:Sound", 0)
        trace = Trace()
        plan = Plan(*seeds, 30, 15, 3)
        for event in play(subject, plan):
            trace.record(event)
        traces.append(trace.digests)
    assert traces[0] == traces[1]
    assert traces[0] != traces[2], "other actions"
    assert traces[0] != traces[3], "other episodes"
    with pytest.raises(BadName, match="did you mean"):
        build(name.replace("OtherIn", "OtherInn"), 0)


def test_a_run_that_is_cut_short_agrees_as_far_as_it_goes() -> None:
    """Comparing stops at the end of what is remembered; a field that is new is a difference."""
    trace = Trace()
    for event in play(Single(broken_worlds.Sound()), Plan(0, 0, 5, 50, 3)):
        trace.record(event)
    longer = compare(trace, play(Single(broken_worlds.Sound()), Plan(0, 0, 9, 50, 3)))
    assert longer.difference is None
    assert longer.steps == 5
    other = compare(trace, play(Single(broken_worlds.UnknownField()), Plan(0, 0, 9, 50, 3)))
    assert other.difference is not None
    assert str(other.difference) == "episode 0, step 0: observation.extra is not the same"


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (np.array([1.0, 2.0]), np.array([1.0, 2.5]), "reward at [1] is 2.0, then 2.5"),
        (np.array([0.0]), np.array([-0.0]), "reward at [0] is 0.0, then -0.0"),
        (np.array(3), np.array(4), "reward is 3, then 4"),
        (np.zeros(2, np.float32), np.zeros(2), "reward has dtype float32, then float64"),
        (np.zeros(2), np.zeros(3), "reward has shape (2,), then (3,)"),
        (None, np.zeros(3), "reward is not the same"),
    ],
)
def test_a_difference_names_both_values(first: Array | None, second: Array, said: str) -> None:
    """Position, field, the first element whose bits differ, and what it was in each run."""
    found = Difference(Position(2, 1, 7), "reward", first, second)
    assert str(found) == f"replica 2, episode 1, step 7: {said}"


def test_actions_cover_their_space_and_stay_inside() -> None:
    """Every action is legal, every choice occurs, and unbounded sides stay within one."""
    keys = np.arange(2000, dtype=np.uint64)
    discrete = actions(Spaces({}, Discrete(7), agents=2), keys)
    assert discrete.shape == (2000, 2)
    assert discrete.dtype == np.int64
    assert set(discrete.ravel().tolist()) == set(range(7))
    several = actions(Spaces({}, MultiDiscrete((2, 5))), keys)
    assert several.shape == (2000, 1, 2)
    assert several.reshape(-1, 2).max(axis=0).tolist() == [1, 4]
    bounded = actions(Spaces({}, Box((2,), "float32", (-1.0, 0.0), (1.0, 0.1))), keys)
    assert bounded.dtype == np.float32
    assert bounded[..., 0].min() < -0.9
    assert np.all((bounded[..., 1] >= 0) & (bounded[..., 1] <= np.float32(0.1)))
    unbounded = actions(Spaces({}, Box((3,))), keys)
    assert -1.0 <= unbounded.min() < -0.9
    assert 0.9 < unbounded.max() <= 1.0
    whole = actions(Spaces({}, Box((), "int32", 3, 5)), keys)
    assert set(whole.ravel().tolist()) == {3, 4, 5}


@pytest.mark.parametrize(("alpha", "factor"), [(4, 1.34), (16, 1.10), (64, 1.03)])
def test_waiting_is_what_the_design_says(alpha: int, factor: float) -> None:
    """Sixteen replicas with exponential steps; the mean has settled within 2 %."""
    costs = -np.log1p(-(np.arange(4000) + 0.5) / 4000)
    assert waiting_factor(costs, 16, alpha) == pytest.approx(factor, rel=0.02)


def test_the_rollout_is_as_short_as_unevenness_allows() -> None:
    """Even steps need no length, uneven ones the shortest that loses at most a twentieth."""
    assert rollout_length(np.ones(100), 16) == (8, 0.0)
    costs = -np.log1p(-(np.arange(4000) + 0.5) / 4000)
    length, loss = rollout_length(costs, 16)
    assert length in (32, 64), "32 is on the edge"
    assert loss <= 0.05 < waiting_factor(costs, 16, length // 2) - 1
    hopeless = np.zeros(100_000)
    hopeless[0] = 1.0
    assert rollout_length(hopeless, 16)[0] == 4096


def profile(wall: float, cpu: float, replicas: int = 1) -> Profile:
    return Profile(replicas, steps=[Stretch(wall, cpu, False)] * 50)


def test_the_suggestion_follows_from_what_was_measured() -> None:
    """Computing, waiting, many threads and little memory each lead to their own machine."""
    computing = suggest(profile(0.002, 0.002), Resources(4))
    assert (computing.executors, computing.replicas, computing.rollout) == (4, 4, 8)
    waiting = suggest(profile(0.05, 0.001), Resources(4))
    assert (waiting.executors, waiting.replicas) == (4, 50)
    assert "98%" in waiting.executors_why
    threads = suggest(profile(0.01, 0.04, replicas=4), Resources(8))
    assert (threads.executors, threads.replicas) == (2, 64)
    little = suggest(profile(0.002, 0.002), Resources(4, memory=2**30, memory_of_replica=2**26))
    assert little.replicas == 2
    assert "memory" in little.replicas_why
    uneven = Profile(steps=[Stretch(1e-6 + (k == 0), 0.0, False) for k in range(20_000)])
    assert "even so" in suggest(uneven, Resources(2)).rollout_why


def test_interrupted_steps_are_not_taken_for_waiting() -> None:
    """A step from which the processor was taken counts with the CPU time that it had."""
    steps = [Stretch(2.0, 2.0, False)] * 9 + [Stretch(10.0, 2.0, True)]
    assert undisturbed(steps).tolist() == [2.0] * 10
    found = Profile(steps=steps)
    assert found.waiting == 0.0
    assert found.cores == 1.0
    assert found.interrupted == 0.1
    waits = [Stretch(4.0, 1.0, False)] * 9 + [Stretch(10.0, 1.0, True)]
    assert undisturbed(waits).tolist() == [4.0] * 10
    assert undisturbed([Stretch(3.0, 1.0, True)]).tolist() == [3.0], "nothing to compare with"


def test_waiting_and_computing_are_told_apart() -> None:
    """A world that burns CPU is busy, one that sleeps waits; both have the mean they are given."""
    budget = Budget(episodes=5, steps=60, seconds=1.0)
    burning = examine("sleeper:?mean=1&work=burn", 0, budget).profile
    sleeping = examine("sleeper:?mean=1&work=sleep", 0, budget).profile
    assert burning["waiting_share"] < 0.2
    assert sleeping["waiting_share"] > 0.8
    assert sleeping["step"]["deviation"] > 0.25e-3
    assert sleeping["step"]["variance"] == sleeping["step"]["deviation"] ** 2


def test_resets_are_weighed_against_whole_episodes() -> None:
    """Episodes that were cut lengthen the mean; without an end there is no share."""
    steps, resets = [Stretch(1.0, 1.0, False)] * 100, [Stretch(10.0, 1.0, False)] * 2
    assert Profile(steps=steps, resets=resets).reset_share is None
    found = Profile(steps=steps, resets=resets, ends=2)
    assert found.episode_length == 50
    assert found.reset_share == 10 / 60
    found.reset_after = [40]
    assert found.costs()[39] == 11.0
    assert found.costs().sum() == 110.0


def test_the_report_fits_a_terminal() -> None:
    """Nothing is wider than 80 columns, in colour the same words, in ASCII no sign is lost."""
    for world in ("Sound", "RaisesAtStep", "HiddenRandomness", "SoundBatch", "SlowReset"):
        report = examined(world)
        plain = render(report)
        assert max(map(len, plain.splitlines())) <= 80, plain
        assert "\x1b" not in plain
        assert "\x1b[" in render(report, colour=True)
        assert render(report, unicode=False).isascii()
    assert "UNSOUND" in render(examined("HiddenRandomness"))
    assert "a walk of three numbers" in render(examined("Sound"))
    assert "fields=1" in render(examined("Optional"))
    assert "4 replicas in one call" in render(examined("SoundBatch"))


def test_the_counting_world_is_given_the_one_action_that_it_takes() -> None:
    """Both forms of it pass, which random actions would not let them."""
    for name in ("counting:?length=10", "counting:?length=10&batch=true"):
        report = examine(name, 0, QUICK)
        assert report.sound, report.findings


def test_a_module_that_raises_is_a_finding() -> None:
    """What cannot even be imported is an unsound simulator, not a mistyped name."""
    report = examine("python:tests.fakes.raises_on_import:World", 0, QUICK)
    assert not report.sound
    assert "raised ValueError: no engine" in report.findings[0].text


def test_only_what_cannot_be_looked_at_stops_an_examination() -> None:
    """A broken shape is a finding among others, an observation that is a list ends it."""
    with pytest.raises(Broken, match="instead of a dict"):
        next(play(Single(broken_worlds.ListObservation()), Plan(0, 0, 5, 5, 2)))
    assert len(surveyed("WrongShape").findings) > 1


def told_by(job: str, folder: Path, world: str, trace: Trace) -> dict[str, Any]:
    """What the fresh process would write, asked in this one."""
    digests = [[*position, fields] for position, fields in trace.digests.items()]
    asked = {
        "environment": world if ":" in world else f"python:tests.fakes.broken_worlds:{world}",
        "plan": dataclasses.asdict(PLAN),
        "seed": 0,
        "digests": digests,
    }
    (folder / "asked.json").write_text(json.dumps(asked))
    assert elsewhere.main([job, str(folder)]) == 0
    told: dict[str, Any] = {}
    for line in (folder / "told.jsonl").read_text().splitlines():
        told |= json.loads(line)
    return told


def sound_trace() -> Trace:
    return trace_of("python:tests.fakes.broken_worlds:Sound")


def trace_of(environment: str) -> Trace:
    """A run of this environment, alone in this process."""
    trace = Trace()
    for event in play(build(environment, PLAN.world_seed), PLAN):
        trace.record(event)
    return trace


@pytest.mark.parametrize(
    ("world", "after_end"),
    [("Sound", "stays"), ("RefusesAfterEnd", "refuses"), ("ResetsItself", "restarts")],
)
def test_the_fresh_process_compares_and_steps_on(
    world: str, after_end: str, tmp_path: Path
) -> None:
    """Its side finds no difference to an equal run, and what a step after the end does."""
    told = told_by("compare", tmp_path, world, sound_trace())
    assert told["compared"]["steps"] == 100
    assert told["compared"]["field"] is None
    assert told["after_end"] == after_end


def test_the_fresh_process_names_the_first_difference(tmp_path: Path) -> None:
    """Field, position, and the value it saw, in a file of its own; or what the simulator raised."""
    told = told_by("compare", tmp_path, "GoesElsewhere", sound_trace())
    assert told["compared"]["position"] == [0, 0, 4]
    assert told["compared"]["field"] == "observation"
    assert np.load(tmp_path / "other.npy").shape == (1, 3)
    told = told_by("compare", tmp_path, "RaisesAtReset", Trace())
    assert "reset raised ConnectionError" in told["broken"]["text"]


def test_a_world_without_an_end_cannot_be_stepped_after_it(tmp_path: Path) -> None:
    """Nothing is claimed about what comes after an end that never came."""
    told = told_by("compare", tmp_path, "NeverEnds", Trace())
    assert told["after_end"] == "unknown"


def test_memory_is_that_of_one_replica_more() -> None:
    """A world that holds 64 MB is seen to; the libraries, paid for once, are not counted."""
    grown = memory_of_replica("python:tests.fakes.broken_worlds:Large", 0, 60.0)
    assert grown is not None
    assert 60e6 < grown < 100e6
