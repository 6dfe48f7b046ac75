"""A training run from its configuration to its record on disk."""

from __future__ import annotations

import dataclasses
import os
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from hts.config import PQL, Config, Experiment, Machine, Resolved
from hts.config.lineage import ends, identities, identity_at
from hts.errors import RoleFailed, WorldFailed, WrongUsage
from hts.report.checkpoints import Checkpoints
from hts.report.progress import Progress
from hts.report.resume import Resumed
from hts.report.run_directory import RunDirectory, default_path
from hts.report.say import explain, mention, say
from hts.report.sealed import Sealed
from hts.report.shown import How
from hts.report.start import Start, load_start
from hts.runtime.assemble import Plan, Updated
from hts.runtime.evaluation import Evaluation, evaluation, kept, why_none
from hts.runtime.layout import Layout
from hts.runtime.moving import MovingRun
from hts.runtime.parallel import ParallelRun
from hts.runtime.preparation import prepared
from hts.runtime.serial import SerialRun
from hts.runtime.standing import Standing
from hts.runtime.telling import Telling
from hts.runtime.vitals import Crewed
from hts.signals import undisturbed
from hts_envs.registry import parse

Run: TypeAlias = SerialRun | ParallelRun | MovingRun

DONE, FAILED, INTERRUPTED = 0, 1, 130
_SECONDS_TO_SETTLE = 1.0


def train(
    resolved: Resolved, run_dir: Path | None, how: How = "live", start: Start | None = None
) -> int:
    """Run the experiment, from these weights of another run if there are any; return the exit
    code."""
    config = resolved.config
    if run_dir is not None and os.path.exists(run_dir):
        resume = f" or use --resume {run_dir}" if (run_dir / "manifest.json").exists() else ""
        raise WrongUsage(f"--run-dir {run_dir} already exists; choose another{resume}")
    resolved, found, layout = prepared(resolved, start)
    record = RunDirectory.new(run_dir or default_path(config))
    with record.begun():
        if start is not None:
            start.save(record.path)
        record.manifest(resolved, layout.machine, found.device, found.outline())
        training = _Training(found, layout, record)
    return _completed(training, how)


def go_on(resumed: Resumed, how: How = "live") -> int:
    """Go on with a run where its checkpoint stands; returns the exit code."""
    run, config, behind = resumed.run, resumed.resolved.config, resumed.behind
    longer = resumed.extension
    if longer is None and run.result.get("status") == "done":
        _say(f"{run.path}: this run is done: digest {run.result.get('digest')}")
        return _evaluate_rest(run.path, config, how)
    start = load_start(run.path, config.experiment)
    _, found, layout = prepared(resumed.resolved, start)
    held = resumed.held
    begin = None if held is None else Standing(behind, held.facts["chain"], held.arrays)
    record = RunDirectory.again(run.path)
    with record.begun():
        changed = record.goes_on(resumed.resolved, layout.machine, found.device, behind, longer)
        training = _Training(found, layout, record, begin)
    for change in changed:
        _say(f"{change}: the digest may be another one from here on")
    if longer is not None:
        _mention(
            f"extends {run.path} from {longer.steps:,} to {config.experiment.steps:,} steps: "
            f"experiment {longer.experiment}, digest {longer.digest}"
        )
    if held is None:
        _say("there is no checkpoint yet: the run begins again")
    else:
        rows = config.experiment.rows
        _mention(f"goes on behind update {behind:,} ({behind * rows:,} steps) of {run.path}")
        training.take(held.facts)
        training.mark(f"behind update {behind:,}, {change}" for change in changed)
    return _completed(training, how)


def _completed(training: _Training, how: How) -> int:
    """Run it, and leave no process behind."""
    try:
        return training.run(how)
    finally:
        training.close()


class _Training:
    """A run, and its record as it goes."""

    def __init__(
        self, found: Plan, layout: Layout, record: RunDirectory, begin: Standing | None = None
    ) -> None:
        self.progress = Progress(found.experiment)
        config = Config(experiment=found.experiment, machine=layout.machine)
        self._found = dataclasses.replace(
            found, cases=record.path / "failures", policies=kept(record.path, config)
        )
        self._evaluation = evaluation(record.path, config)
        self._why_none = why_none(config)
        self._layout = layout
        self._begin = begin
        self._record = record
        machine = layout.machine
        self._checkpoints = Checkpoints(
            record.path / "checkpoints", every=machine.checkpoint_every, most=machine.checkpoints
        )
        self._metrics: dict[str, float] = {}
        # Why no undisturbed run has this digest.
        self._marks = [_FREE] if found.experiment.is_paced_by_clock else []
        self._ends = ends(found.experiment)
        self._troubles: set[str] = set()
        self._telling: Telling

    def take(self, facts: Mapping[str, Any]) -> None:
        """Go on with what the run had counted, and been marked with."""
        self.progress.take(facts["progress"])
        self._marks = list(facts["interrupted"])

    def mark(self, reasons: Iterable[str]) -> None:
        """Record why the digest may not be that of an undisturbed run."""
        self._marks += reasons

    def close(self) -> None:
        """End the evaluation, however far it has come."""
        if self._evaluation is not None:
            self._evaluation.close()

    def run(self, how: How) -> int:
        """From where it begins to where it ends, shown in this way; returns the exit code."""
        path, machine = self._record.path, self._layout.machine
        self._telling = Telling(self.progress, machine, path, how)
        if self._evaluation is not None:
            self._evaluation.tell = self._telling.evaluated
        try:
            return self._run()
        finally:
            self._telling.close()

    def _run(self) -> int:
        experiment, path = self._found.experiment, self._record.path
        _mention(f"experiment {experiment.identity()} in {path}")
        if self._found.world:
            _mention(f"world: {self._found.world}")
        _mention(f"schedule: {_schedule(experiment)}")
        _mention(f"machine: {self._layout.why}")
        if self._why_none is not None:
            _mention(self._why_none)
        code, status, run, failure = DONE, "done", None, None
        digest = self._found.digest().chain if self._begin is None else self._begin.chain
        how: dict[str, Any] = {}
        try:
            try:
                run = self._start()
                explain(f"hts-train: inference: {run.strategy.why}")
                self.progress.start()
                self._telling.begin(self._crewed(run))
                self._follow(run)
            except KeyboardInterrupt:
                code, status = INTERRUPTED, "interrupted"
            except Exception as error:
                code, status = FAILED, f"failed: {_in_short(error)}"
                failure = str(error) if isinstance(error, RoleFailed) else traceback.format_exc()
            if run is not None:
                self._end(run)
        finally:
            if run is not None:
                digest, how = run.chain, _how(run)
                self._marks += run.marks
            self._telling.ending(status, self._metrics, digest)
            if run is not None:
                run.close()
        lost = self._lost()
        if lost is not None and code != FAILED:
            code, status = FAILED, f"failed: {lost}"
        try:
            if failure is not None:
                self._record.failure(failure)
            result = {**self.progress.result(status, digest), **how, "interrupted": self._marks}
            self._record.result(result)
            self._telling.result(result)
        except OSError as error:
            code = FAILED
            _say(f"how it ended is not in its record: {error.strerror}")
        if code == DONE:
            code = _evaluated(self._evaluation)
        elif self._evaluation is not None:
            self._evaluation.look([])  # what it has said already still reaches the curves
        self._telling.close()
        self._record.close()
        if how:
            _mention(f"time: {how['time']}")
        for mark in self._marks:
            _say(f"this is not the digest of an undisturbed run: {mark}")
        _say(f"{status}: digest {digest}, record in {path}")
        if code == INTERRUPTED or (code == FAILED and run is not None):
            # A run that failed while it started would fail again.
            _say(f"go on with: hts-train --resume {path}")
        return code

    def _start(self) -> Run:
        """On its layout, or, where that was chosen by `auto`, on the one that it is changed to."""
        layout = self._layout
        if layout.asked is None or not (layout.machine.revise and self._found.comes_back):
            return make_run(self._found, layout.machine, self._begin)
        cores = len(os.sched_getaffinity(0))
        return MovingRun(self._found, layout, cores, self._begin)

    def _follow(self, run: Run) -> None:
        """Update after update, until the last one."""
        for updated in run:
            with undisturbed():
                self._take(run, updated)

    def _take(self, run: Run, updated: Updated) -> None:
        seen = {**updated.told, **self._telling.machine()}
        self._metrics = self.progress.update(seen, updated.episodes)
        mark = self._record.update(updated.link, self._metrics, updated.replicas)
        if mark is not None:
            self._marks.append(mark)
        link = updated.link
        if self._ends.get(link.update, link.chain) != link.chain:
            self._marks.append(
                f"update {link.update} ends with digest {link.chain}, and the finished run that "
                f"this experiment extends ended with {self._ends[link.update]}"
            )
        self._tell_troubles()
        if self._evaluation is not None:
            self._evaluation.look(updated.policies)
        self._telling.update(self._metrics, updated.link.chain)
        if self._checkpoints.due:
            self._checkpoint(run)

    def _tell_troubles(self) -> None:
        """Say once what cannot be written now."""
        now = {why for why in (self._record.trouble, self._checkpoints.trouble) if why}
        for why in sorted(now - self._troubles):
            _say(f"{why}: the run goes on, and tries again")
        self._troubles = now

    def _lost(self) -> str | None:
        """What the record lacks at the end, which `--resume` makes again."""
        self._checkpoints.wait()
        try:
            self._record.sync()
        except OSError as error:
            return error.strerror
        return self._checkpoints.trouble

    def _crewed(self, run: Run) -> Crewed:
        """Return what is seen of a run from outside; its evaluator is no other program."""
        crewed, evaluating = run.crewed(), self._evaluation
        if evaluating is None:
            return crewed
        return dataclasses.replace(crewed, pids=lambda: [*crewed.pids(), *evaluating.pids()])

    def _end(self, run: Run) -> None:
        """What was learnt and not told yet, and a checkpoint behind all of it."""
        for updated in run.rest():
            self._take(run, updated)
        until = time.monotonic() + _SECONDS_TO_SETTLE
        while self.progress.updates and not self._checkpoint(run) and time.monotonic() < until:
            time.sleep(0.01)  # a block that is ahead hides where the others stood

    def _checkpoint(self, run: Run) -> bool:
        """Write where the run stands, if that can be seen now."""
        standing = run.standing()
        if standing is None:
            return False
        facts = {
            "experiment": identity_at(identities(self._found.experiment), standing.updates),
            "updates": standing.updates,
            "chain": standing.chain,
            "progress": self.progress.state(),
            "interrupted": [*self._marks, *run.marks],
        }
        held = Sealed(facts, standing.arrays)
        self._checkpoints.save(standing.updates, held, self._sync)
        return True

    def _sync(self) -> None:
        """What a checkpoint stands behind is on the disk, and in the curves."""
        self._record.sync()
        self._telling.sync()


def _evaluated(evaluation: Evaluation | None) -> int:
    """Evaluate what the run has left; returns the exit code."""
    if evaluation is None:
        return DONE
    try:
        evaluation.finish()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        evaluation.close()
    return DONE


def _evaluate_rest(path: Path, config: Config, how: How) -> int:
    """Of a run that is done: whoever is told of one that goes on is told of this too."""
    rest = evaluation(path, config)
    if rest is None or not rest.waits:
        return DONE
    whole = Progress(config.experiment, updates=config.experiment.updates)
    telling = Telling(whole, config.machine, path, "plain" if how == "live" else how)
    rest.tell = telling.evaluated
    try:
        return _evaluated(rest)
    finally:
        telling.close()


def _how(run: Run) -> dict[str, Any]:
    """How it was run."""
    return {
        "inference": run.strategy.why,
        "time": run.time_budget(),
        "replaced": run.replaced,
        "moved": run.moved if isinstance(run, MovingRun) else [],
    }


_FREE = "the clock paced its updates (algo.pacing), so that the digest means nothing"


def _schedule(experiment: Experiment) -> str:
    """Which versions an update reads, in words."""
    if isinstance(experiment.algo, PQL):
        counts = f"1:{experiment.algo.beta_av} and 1:{experiment.algo.beta_pv} as counts"
        if experiment.is_paced_by_clock:
            counts = "as many updates as there is time for: the digest means nothing"
        if experiment.schedule == "sync":
            return f"sync: executors, V-learner and P-learner in turn, {counts}"
        return f"hts: executors, V-learner and P-learner at once, one window apart, {counts}"
    if experiment.schedule == "sync":
        return "sync, lag 0: collect and learn in turn"
    return f"hts, lag 1: collect and learn at once, correction {experiment.correction}"


def _in_short(error: Exception) -> str:
    """One line: what went wrong; the record of the run holds the rest."""
    if isinstance(error, RoleFailed):
        return f"{error.short} (more in failure.txt)"
    if isinstance(error, WorldFailed):
        return f"{error}: {error.__cause__} (more in failure.txt)"
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    return f"{first} (more in failure.txt)"


def make_run(
    found: Plan, machine: Machine, begin: Standing | None = None
) -> SerialRun | ParallelRun:
    """The run of this plan on this machine, from its begin or from where it stood before."""
    if machine.serial:
        return SerialRun(found, parse(found.experiment.env), begin)
    return ParallelRun(found, machine, begin)


def _say(sentence: str) -> None:
    say(f"hts-train: {sentence}")


def _mention(sentence: str) -> None:
    mention(f"hts-train: {sentence}")
