"""The same run in a fresh process, and what else is better asked in a process of its own.

This module is both sides. The parent starts `python -m hts.soundness.elsewhere JOB DIRECTORY PID`,
with another hash seed than its own, and reads what the child wrote into the directory: one JSON
object a line, so that what a child found out before it died is not lost. Jobs:

    compare     repeat the run of `plan`, compare with the digests; then step on after an end
    interleave  make another run alone, then both at once, step by step: is each as it was alone?
    memory      build one world, then one more, and see by how much the process grows
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hts.runtime.nursery import die_with
from hts.scratch import scratch
from hts.soundness.compare import Comparison, Difference, compare, compare_in_turns
from hts.soundness.findings import Broken
from hts.soundness.subject import Subject, build
from hts.soundness.trace import Plan, Position, Trace, play, step
from hts_envs.contract import Array

_ASKED, _TOLD = "asked.json", "told.jsonl"
_FIRST, _OTHER = "first.npy", "other.npy"  # the two values of a difference, where known
_WARM_STEPS = 30


@dataclass(frozen=True)
class Elsewhere:
    """What the child found; None where it died before it came to it."""

    comparison: Comparison | None
    after_end: str | None
    last_words: tuple[str, ...] = ()


def compare_elsewhere(environment: str, plan: Plan, trace: Trace, patience: float) -> Elsewhere:
    """Repeat a run in a fresh process."""
    return _compared("compare", environment, plan, trace, patience)


def compare_interleaved(environment: str, plan: Plan, trace: Trace, patience: float) -> Elsewhere:
    """Repeat a run in a fresh process while a second replica is stepped in turn with it.

    Each replica is compared with itself alone. The position of a difference names the replica.
    """
    return _compared("interleave", environment, plan, trace, patience)


def _compared(job: str, environment: str, plan: Plan, trace: Trace, patience: float) -> Elsewhere:
    digests = [[*position, fields] for position, fields in trace.digests.items()]
    asked = {"environment": environment, "plan": dataclasses.asdict(plan), "digests": digests}
    with scratch() as folder:
        told, words = _run_child(job, folder, asked, patience)
        if "compared" not in told:
            broken = told.get("broken")
            said = [broken["text"], *broken["detail"]] if broken else words
            return Elsewhere(None, None, tuple(said))
        compared = told["compared"]
        difference = None
        if compared["field"] is not None:
            position = Position(*compared["position"])
            first = trace.values.get(position, {}).get(compared["field"])
            first = _load(folder / _FIRST) if first is None else first
            difference = Difference(position, compared["field"], first, _load(folder / _OTHER))
        return Elsewhere(Comparison(difference, compared["steps"]), told.get("after_end"))


def _load(path: Path) -> Array | None:
    return np.load(path, allow_pickle=False) if path.exists() else None


def memory_of_replica(environment: str, seed: int, patience: float) -> float | None:
    """Bytes by which a process grows with one more replica; None where that is not known."""
    with scratch() as folder:
        asked = {"environment": environment, "seed": seed}
        told, _ = _run_child("memory", folder, asked, patience)
    grown = told.get("grown")
    return None if grown is None else float(grown)


def _run_child(
    job: str, folder: Path, asked: dict[str, Any], patience: float
) -> tuple[dict[str, Any], list[str]]:
    (folder / _ASKED).write_text(json.dumps(asked))
    module, parent = "hts.soundness.elsewhere", str(os.getpid())
    command = [sys.executable, "-m", module, job, str(folder), parent]
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    environ = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": _other_hash_seed()}
    words = folder / "words.txt"
    with words.open("wb") as out, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            timeout=patience, check=False,
        )  # fmt: skip
    told: dict[str, Any] = {}
    if (folder / _TOLD).exists():
        for line in (folder / _TOLD).read_text().splitlines():
            told |= json.loads(line)
    return told, words.read_text(errors="replace").strip().splitlines()[-4:]


def _other_hash_seed() -> str:
    """A fixed hash seed that is not ours, so that nothing about the check is left to chance."""
    return "27182" if os.environ.get("PYTHONHASHSEED") != "27182" else "31415"


def main(argv: Sequence[str]) -> int:
    """The child's side."""
    job, folder = argv[0], Path(argv[1])
    asked = json.loads((folder / _ASKED).read_text())
    with (folder / _TOLD).open("w") as told:

        def tell(**facts: Any) -> None:
            told.write(json.dumps(facts) + "\n")
            told.flush()

        try:
            _JOBS[job](folder, asked, tell)
        except Broken as broken:
            tell(broken={"text": broken.text, "detail": broken.detail})
        except Exception:
            traceback.print_exc()
            return 1
    return 0


def _compare(folder: Path, asked: dict[str, Any], tell: Any) -> None:
    plan, trace = _asked_run(asked)
    subject = build(asked["environment"], plan.world_seed)
    _tell_compared(folder, compare(trace, play(subject, plan)), tell)
    subject.close()
    tell(after_end=_after_the_end(build(asked["environment"], plan.world_seed), plan))


def _interleave(folder: Path, asked: dict[str, Any], tell: Any) -> None:
    """The second replica is alone in a process that has built no other; then both are built."""
    environment = asked["environment"]
    plan, trace = _asked_run(asked)
    other = dataclasses.replace(plan, seed=plan.seed ^ 1, world_seed=plan.world_seed ^ 1)
    alone = Trace()
    subject = build(environment, other.world_seed, replica=1)
    for event in play(subject, other):
        alone.record(event)
    subject.close()
    first, second = build(environment, plan.world_seed), build(environment, other.world_seed, 1)
    ours, theirs = compare_in_turns([(trace, play(first, plan)), (alone, play(second, other))])
    if ours.difference is None and theirs.difference is not None:
        position = theirs.difference.position
        position = position._replace(replica=position.replica + first.replicas)
        theirs = Comparison(dataclasses.replace(theirs.difference, position=position), ours.steps)
        _tell_compared(folder, theirs, tell)
    else:
        _tell_compared(folder, ours, tell)
    first.close()
    second.close()


def _asked_run(asked: dict[str, Any]) -> tuple[Plan, Trace]:
    digests = {Position(r, e, s): fields for r, e, s, fields in asked["digests"]}
    return Plan(**asked["plan"]), Trace(digests)


def _tell_compared(folder: Path, found: Comparison, tell: Any) -> None:
    difference = found.difference
    if difference is not None:
        for name, value in ((_FIRST, difference.first), (_OTHER, difference.second)):
            if value is not None:
                np.save(folder / name, value, allow_pickle=False)
    tell(
        compared={
            "steps": found.steps,
            "field": difference.field if difference else None,
            "position": difference.position if difference else None,
        }
    )


def _after_the_end(subject: Subject, plan: Plan) -> str:
    """Step on after an end, without a reset, until the next: what does the world do?

    "refuses" where it raises, "stays" where it says again that it has ended, "restarts" where
    its next end counts from the one before, "goes on" otherwise; "unknown" where nothing ends.
    """
    first = next((event for event in play(subject, plan) if any(event.ended())), None)
    if first is None:
        return "unknown"
    row = first.ended().index(True)
    length = first.positions[row].step
    episodes = np.array([position.episode for position in first.positions])
    steps = np.array([position.step for position in first.positions])
    for further in range(plan.ticks):
        try:
            event = step(subject, plan, episodes, steps + further)
        except Broken:
            return "refuses"
        if not event.ended()[row]:
            continue
        if further == 0:
            return "stays"
        told = (event.moment.facts or {}).get("length")
        restarted = told is not None and float(told[row]) < length + further + 1
        return "restarts" if restarted else "goes on"
    return "goes on"


def _memory(_: Path, asked: dict[str, Any], tell: Any) -> None:
    """The first world pays for the libraries; the second is what one more costs."""
    plan = Plan(asked["seed"], asked["seed"], _WARM_STEPS, _WARM_STEPS, 2)
    alive: list[Subject] = []
    sizes: list[int] = []
    for _world in range(2):
        subject = build(asked["environment"], plan.world_seed)
        alive.append(subject)
        started = time.monotonic()
        for _event in play(subject, plan):
            if time.monotonic() - started > 2.0:
                break
        gc.collect()
        size = _own_bytes()
        if size is None:
            return
        sizes.append(size)
    tell(grown=max(0, sizes[1] - sizes[0]) / alive[0].replicas)


def _own_bytes() -> int | None:
    """What this process holds in memory; None where the system does not say.

    Pages of files are left out: libraries are shared, and the kernel takes theirs back as it likes.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        return sum(int(sizes[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))
    except (OSError, ValueError, KeyError):
        return None


_JOBS = {"compare": _compare, "interleave": _interleave, "memory": _memory}


if __name__ == "__main__":
    die_with(int(sys.argv[3]))
    sys.exit(main(sys.argv[1:3]))
