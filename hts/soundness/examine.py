"""The whole examination, phase by phase; the most telling question first.

probe        how fast is it? decides how much of the rest fits into the time
survey       one run, remembered, watched by the inspectors
repeat       the same run in a fresh world of this process
elsewhere    the same run in a fresh process; then a step after the end of an episode
interleaved  the same run beside a second replica, stepped in turn in one process
history      a later episode, now as the first of a fresh world
seed         the same actions with another seed
isolated     where runs differ: does it help that each replica has generators of its own?
snapshots    what follows a restore
profile      time and memory, and the machine that they suggest
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

import hts_envs
from hts.soundness.compare import Comparison, compare
from hts.soundness.elsewhere import compare_elsewhere, compare_interleaved, memory_of_replica
from hts.soundness.facts import profile_facts, world_facts
from hts.soundness.findings import Broken, Level, Report, last_lines, plural
from hts.soundness.inspectors import inspectors
from hts.soundness.profile import measure
from hts.soundness.snapshots import examine_snapshots
from hts.soundness.subject import Subject, build
from hts.soundness.suggest import resources, suggest
from hts.soundness.trace import Plan, Trace, play
from hts_envs.errors import BrokenSimulator
from hts_envs.isolation import Isolation

SLOW_RESET = 0.25
"""Resets that take more of the time than this are worth a warning."""

_RUNS = 12  # the phases that carry out a whole run, process start-up counted as two
_REPEATED = ("repeat", "process", "interleaved", "history")
"""Checks that repeat a run, and find what it depends on besides its seed."""

_ISOLATED = "isolate=generators"
_PROBE_TICKS = 12
_TICKS_MIN = 8


_AFTER_END: dict[str | None, tuple[Level, str]] = {
    None: (Level.NOTE, "a step after the end of an episode, without a reset, kills the process"),
    "goes on": (
        Level.NOTE,
        "a step after the end of an episode is not refused, but goes on: nobody may take it",
    ),
    "restarts": (
        Level.WARNING,
        "it resets itself: stepped on after the end of an episode, it begins another, whose seed "
        "nobody gave; the reset hides the last observation unless the caller's comes first",
    ),
}


@dataclass(frozen=True)
class Budget:
    """How much may be tried: episodes and steps of each run, seconds altogether."""

    episodes: int = 100
    steps: int = 2000
    seconds: float = 10.0


Tell = Callable[[str], None]


def examine(environment: str, seed: int, budget: Budget, tell: Tell = lambda _: None) -> Report:
    """Find out everything; only what the user mistyped is raised."""
    report = Report(environment, seed)
    examine_into(report, budget, tell)
    return report


def examine_into(report: Report, budget: Budget, tell: Tell) -> None:
    """Add everything to a report of this environment and seed, as it is found."""
    started = time.monotonic()
    environment = report.environment
    try:
        report.environment = _canonical(environment)
        _Examination(environment, report.seed, budget, report, tell).run()
    except Broken as broken:
        report.add(Level.ERROR, broken.check, broken.text, broken.detail)
    report.seconds = time.monotonic() - started


def survey(subject: Subject, plan: Plan, trace: Trace, report: Report) -> None:
    """One run, remembered in the trace; the report tells what the inspectors saw of it."""
    watching = inspectors(subject.spaces, subject.traits)
    try:
        for event in play(subject, plan):
            for inspector in watching:
                inspector.see(event)
            trace.record(event)
    finally:
        report.findings += [found for one in watching for found in one.findings()]


def _canonical(environment: str) -> str:
    """The name with every option; a module of the user's that raises is a broken simulator."""
    try:
        return hts_envs.parse(environment).canonical()
    except BrokenSimulator as error:
        raise Broken("raises", str(error), last_lines(error.__cause__ or error)) from error


def _can_be_isolated(environment: str) -> bool:
    spec = hts_envs.parse(environment)
    return isinstance(spec.options, Isolation) and not spec.isolated


class _Examination:
    def __init__(
        self, environment: str, seed: int, budget: Budget, report: Report, tell: Tell
    ) -> None:
        self._environment = environment
        self._seed = seed
        self._budget = budget
        self._report = report
        self._tell = tell
        self._trace = Trace()

    def run(self) -> None:
        self._plan = self._probe()
        self._survey()
        independent = self._repeated()
        self._isolated()
        if independent:
            self._tell("snapshots")
            longest = max(self._trace.digests, key=lambda position: position.step)
            self._report.findings += examine_snapshots(self._build, self._plan, longest)
        self._profile()

    def _repeated(self) -> bool:
        """Repeat the run in every way; returns whether an episode depends on its seed alone."""
        if not self._repeat():
            return False
        if self._elsewhere():
            self._interleaved()
        independent = self._history()
        self._other_seed()
        return independent

    def _build(self) -> Subject:
        return build(self._environment, self._plan.world_seed)

    def _probe(self) -> Plan:
        """Fit the run into the time there is; the plan is all that the other phases go by."""
        self._tell("building")
        subject = build(self._environment, self._seed)
        self._report.facts = world_facts(subject)
        limit = max(1, self._budget.steps // 2)
        plan = Plan(self._seed, self._seed, self._budget.steps, limit, self._budget.episodes)
        trace = Trace()
        events = play(subject, dataclasses.replace(plan, ticks=_PROBE_TICKS))
        trace.record(next(events))
        started = time.perf_counter()
        ticks = 0
        for event in events:
            trace.record(event)
            ticks += event.call == "step"
        tick_seconds = (time.perf_counter() - started) / max(ticks, 1)
        subject.close()
        fitting = max(_TICKS_MIN, int(self._budget.seconds / _RUNS / tick_seconds))
        ticks = min(self._budget.steps, fitting)
        return dataclasses.replace(plan, ticks=ticks, episode_limit=max(1, ticks // 2))

    def _survey(self) -> None:
        self._tell("one run")
        subject = self._build()
        try:
            survey(subject, self._plan, self._trace, self._report)
        finally:
            subject.close()

    def _compared(self, plan: Plan) -> Comparison:
        subject = self._build()
        try:
            return compare(self._trace, play(subject, plan))
        finally:
            subject.close()

    def _repeat(self) -> bool:
        """Without this, the other comparisons would only find the same again."""
        self._tell("the same run again")
        found = self._compared(self._plan)
        if found.difference is not None:
            text = f"two runs with the same seeds and actions differ: {found.difference}"
            self._report.add(Level.ERROR, "repeat", text)
            return False
        done = f"{plural(found.steps, 'step')} in {plural(self._trace.episodes, 'episode')}"
        self._report.add(Level.OK, "repeat", f"two runs with the same seeds are bit-equal: {done}")
        return True

    def _elsewhere(self) -> bool:
        """Without this, two replicas in a fresh process would differ for the same reason."""
        self._tell("the same run in a fresh process")
        patience = 60 + 20 * self._budget.seconds
        found = compare_elsewhere(self._environment, self._plan, self._trace, patience)
        if found.comparison is None:
            text = "the same run in a fresh process did not come to its end"
            self._report.add(Level.ERROR, "process", text, found.last_words)
            return False
        if found.comparison.difference is not None:
            text = f"a run in a fresh process differs: {found.comparison.difference}"
            self._report.add(Level.ERROR, "process", text)
        else:
            self._report.add(Level.OK, "process", "a run in a fresh process is bit-equal")
        self._after_end(found.after_end)
        return found.comparison.difference is None

    def _after_end(self, told: str | None) -> None:
        if told in _AFTER_END:
            level, text = _AFTER_END[told]
            self._report.add(level, "after_end", text)

    def _interleaved(self) -> None:
        self._tell("two replicas in one process")
        patience = 60 + 40 * self._budget.seconds
        found = compare_interleaved(self._environment, self._plan, self._trace, patience)
        if found.comparison is None:
            text = "two replicas in one process, stepped in turn, did not come to their end"
            self._report.add(Level.ERROR, "interleaved", text, found.last_words)
        elif found.comparison.difference is not None:
            text = (
                "two replicas in one process, stepped in turn, differ from each of them alone: "
                f"{found.comparison.difference}. They share state that is kept outside them"
            )
            self._report.add(Level.ERROR, "interleaved", text)
        else:
            text = "two replicas in one process are bit-equal to each of them alone"
            self._report.add(Level.OK, "interleaved", text)

    def _isolated(self) -> None:
        """Where runs differ, repeat the examination with isolated generators, and say the result.

        A second examination costs as much as the first: it is made only where it may help.
        """
        broken = {f.check for f in self._report.findings if f.level is Level.ERROR}
        if not broken & set(_REPEATED) or not _can_be_isolated(self._environment):
            return
        query = "&" if "?" in self._environment else "?"
        environment = f"{self._environment}{query}{_ISOLATED}"
        again = _Examination(
            environment, self._seed, self._budget, Report(environment, self._seed), self._tell
        )
        self._report.add(Level.NOTE, "isolate", again.remedy())

    def remedy(self) -> str:
        """Return whether every repetition succeeds, in a sentence that names this environment."""
        try:
            self._plan = self._probe()
            self._survey()
            self._repeated()
        except Broken as broken:
            self._report.add(Level.ERROR, "repeat", broken.text)
        errors = [f for f in self._report.findings if f.level is Level.ERROR]
        failed = next((f for f in errors if f.check in _REPEATED), None)
        if failed is None:
            return (
                f"?{_ISOLATED} mends it: with global random generators of each replica's own "
                f"({self._environment}) all of these runs are bit-equal"
            )
        return (
            f"?{_ISOLATED} does not mend it, so the state is not (only) that of the global random "
            "generators of Python, NumPy and torch. It may be an attribute of a class or module, "
            "a static variable of native code, or a generator that no seed reaches. Where each "
            "replica alone is sound, a process for each also helps: --executors as many as --envs"
        )

    def _history(self) -> bool:
        """Without this, a restored world could not be told from one with another past."""
        self._tell("a later episode in a fresh world")
        if not self._report.facts["traits"]["reseeds"]:
            text = "it takes one seed when it is built: an episode depends on those before it"
            self._report.add(Level.WARNING, "history", text)
            return False
        later = self._trace.later_episode()
        assert later is not None, "episodes are cut at half of a run, so there are two"
        plan = dataclasses.replace(self._plan, first_episode=later, episodes=1)
        found = self._compared(plan)
        if found.difference is None:
            text = f"episode {later} is bit-equal in a world that played none before"
            self._report.add(Level.OK, "history", text)
            return True
        text = f"an episode depends on those before it: in a fresh world {found.difference}"
        self._report.add(Level.ERROR, "history", text)
        return False

    def _other_seed(self) -> None:
        self._tell("another seed")
        plan = dataclasses.replace(self._plan, world_seed=self._seed ^ 1)
        subject = build(self._environment, plan.world_seed)
        try:
            found = compare(self._trace, play(subject, plan))
        finally:
            subject.close()
        if found.difference is None:
            text = f"another seed changes nothing in {plural(found.steps, 'step')}: is it ignored?"
            self._report.add(Level.WARNING, "seed", text)
            return
        where = found.difference
        text = f"another seed differs: {where.field} in {where.position}"
        self._report.add(Level.OK, "seed", text)

    def _profile(self) -> None:
        self._tell("time and memory")
        subject = self._build()
        try:
            profile = measure(subject, self._plan, self._budget.seconds / _RUNS)
        finally:
            subject.close()
        patience = 30 + 10 * self._budget.seconds
        memory = memory_of_replica(self._environment, self._seed, patience)
        self._report.profile = profile_facts(profile, memory)
        self._report.suggestion = dataclasses.asdict(suggest(profile, resources(memory)))
        share = profile.reset_share
        if share is not None and share > SLOW_RESET:
            text = (
                f"resets take {share:.0%} of the time: {profile.reset_times.mean * 1e3:.3g} ms "
                f"each, steps {profile.step_times.mean * 1e3:.3g} ms in episodes of "
                f"{profile.episode_length:.0f}"
            )
            self._report.add(Level.WARNING, "slow_reset", text)
