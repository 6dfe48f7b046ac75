"""Does the failure of a case come again? Two replays say so, and whether they are equal."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hts.report.run_directory import versions
from hts.soundness.case import Case, Failure, Kind
from hts.soundness.findings import plural
from hts.soundness.render import WIDTH, row
from hts.soundness.replay import CONSTRUCTION, Replayed, Tell, replay
from hts_envs.errors import BrokenSimulator
from hts_envs.registry import parse, require

_VERBS = {
    Kind.RAISES: "it raises",
    Kind.HANGS: "it hangs",
    Kind.DIES: "its process dies",
    Kind.STRAYS: "it shows something else when it is taken again",
}


@dataclass(frozen=True)
class Reproduced:
    """A case, its replays, and what follows from them."""

    case: Case
    limit: float
    replays: tuple[Replayed, ...]
    versions: Mapping[str, str]

    @property
    def failed(self) -> tuple[Replayed, ...]:
        """Those that did not come to their end."""
        return tuple(each for each in self.replays if each.failure is not None)

    @property
    def differs(self) -> str | None:
        """The first call in which two replays are not equal."""
        return first_difference(*self.replays) if len(self.replays) == 2 else None

    @property
    def strayed(self) -> str | None:
        """The first sign that it does something else than in the run."""
        return next((each.strayed for each in self.replays if each.strayed), None)

    @property
    def comes_again(self) -> bool:
        if self.case.failure.kind is Kind.STRAYS and (self.differs or self.strayed):
            return True
        return bool(self.failed)


def reproduce(case: Case, limit: float, tell: Tell = lambda _: None) -> Reproduced:
    """Take a case twice, each time in a fresh process; once where it hangs."""
    _require(case.env)
    first = replay(case, limit, lambda where: tell(f"first replay: {where}"))
    replays = [first]
    if first.failure is None or first.failure.kind is not Kind.HANGS:
        replays.append(replay(case, limit, lambda where: tell(f"second replay: {where}")))
    return Reproduced(case, limit, tuple(replays), versions())


def _require(env: str) -> None:
    """What the user can mend is said before a process is started for it."""
    try:
        require(parse(env).family)
    except BrokenSimulator:
        return  # its own import raises: that is the replay's to tell


def first_difference(first: Replayed, second: Replayed) -> str | None:
    """Where two replays part: in what a call showed, or in how it ended."""
    for ours, theirs in zip(first.calls, second.calls, strict=False):
        if (ours.name, ours.mark) != (theirs.name, theirs.mark):
            return ours.name
    ends = [(len(each.calls), each.failure and each.failure.kind) for each in (first, second)]
    if ends[0] == ends[1]:
        return None
    return min((first, second), key=lambda each: len(each.calls)).where


def as_json(found: Reproduced) -> dict[str, Any]:
    """What `--json` prints; the keys are those that the help lists."""
    case = found.case
    return {
        "format": 1,
        "environment": case.env,
        "seed": case.seed,
        "replicas": list(case.replicas),
        "failed": case.failed,
        "failure": dataclasses.asdict(case.failure),
        "comes_again": found.comes_again,
        "differs": found.differs,
        "strayed": found.strayed,
        "replays": [
            {
                "calls": len(each.calls),
                "seconds": sum(call.seconds for call in each.calls),
                "where": each.where,
                "failure": dataclasses.asdict(each.failure) if each.failure else None,
            }
            for each in found.replays
        ],
    }


def render(found: Reproduced) -> str:
    """For people: what happened in the run, what happens here, and whether that is the same."""
    case = found.case
    lines = [case.env, ""]
    lines += row("seed", f"{case.seed}, {_whose(case)}")
    lines += row("in the run", _in_short(case.failure))
    for number, each in enumerate(found.replays, 1):
        lines += row(f"replay {number}", _story(each))
    if len(found.replays) == 2:
        lines += row("compared", _compared(found))
    if found.strayed:
        lines += row("strays", found.strayed)
    changed = list(_changed(case.versions, found.versions))
    if changed:
        lines += row("versions", "; ".join(changed))
    for each in found.failed[:1]:
        assert each.failure is not None, "it failed"
        lines += ["", *(f"  | {line}" for line in each.failure.words.rstrip().splitlines())]
    verdict = textwrap.wrap(_verdict(found), WIDTH - 2)
    return "\n".join([*lines, "", *(f"  {line}" for line in verdict)])


def _whose(case: Case) -> str:
    if case.failed is not None and len(case.replicas) == 1:
        return f"replica {case.failed}"
    together = f"replicas {case.replicas[0]} to {case.replicas[-1]}"
    return together if case.failed is None else f"{together}, of which {case.failed} failed"


def _in_short(failure: Failure) -> str:
    last = next(reversed(failure.words.strip().splitlines()), "")
    return f"{_VERBS[failure.kind]}: {last}" if last else _VERBS[failure.kind]


def _story(each: Replayed) -> str:
    """How far it came, and how long that took."""
    parts = []
    steps = [call for call in each.calls if call.step]
    for call in each.calls[:2]:
        if not call.step:
            name = "built" if call.name == CONSTRUCTION else "reset"
            parts.append(f"{name} in {call.seconds:.3g} s")
    if steps:
        slowest = max(steps, key=lambda call: call.seconds)
        parts.append(
            f"{plural(len(steps), 'step')} in {sum(call.seconds for call in steps):.3g} s, the "
            f"slowest (step {slowest.step}) in {slowest.seconds:.3g} s, the last (step "
            f"{steps[-1].step}) in {steps[-1].seconds:.3g} s"
        )
    if each.failure is not None:
        parts.append(f"{_VERBS[each.failure.kind]} in {each.where}")
    return "; ".join(parts)


def _compared(found: Reproduced) -> str:
    if found.differs:
        return f"two fresh processes differ first in {found.differs}: it is not deterministic"
    return f"two fresh processes are bit-equal in {plural(len(found.replays[0].calls), 'call')}"


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            yield f"{name} was {before.get(name, 'absent')}, is {now.get(name, 'absent')}"


def _verdict(found: Reproduced) -> str:
    if not found.comes_again:
        return f"it does not come again: {_why_not(found)}"
    if not found.failed:
        return f"IT COMES AGAIN: {found.strayed or _compared(found)}"
    each, before = found.failed[0], found.case.failure
    assert each.failure is not None, "it failed"
    if each.failure.kind is Kind.HANGS:
        text = f"IT COMES AGAIN: it has been in {each.where} for {found.limit:g} s"
    else:
        text = f"IT COMES AGAIN: {_VERBS[each.failure.kind]} in {each.where}"
    if len(found.failed) < len(found.replays):
        text += ", in one of two replays"
    if each.failure.kind is not before.kind:
        text += f"; in the run {_VERBS[before.kind]}"
    elif each.failure.kind is Kind.RAISES and _in_short(each.failure) != _in_short(before):
        text += "; in the run it says something else"
    return text


def _why_not(found: Reproduced) -> str:
    """What is known instead."""
    if found.strayed:
        return f"{found.strayed}, so it depends on more than its seed and its actions"
    if found.differs:
        return _compared(found)
    seen = ", and see what the run saw" if found.case.seen else ""
    return f"{_compared(found)}{seen}; what came before this episode is not in the file"
