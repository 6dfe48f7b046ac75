"""The bottleneck of a run in one sentence, with the one change that would help.

A role that works nearly all the time is what the others wait for. Whether more of it would help is
a question of cores: where all of them are busy, sharing them among more processes gains nothing.
"""

from __future__ import annotations

from hts.report.drawing import percent
from hts.report.vitals import ACTORS, EXECUTORS, LEARNER, SIMULATORS, WORKED, Kind, Vitals

_HIGH = 0.85  # share of the time from which a role counts as always working
_SOME = 0.15  # share of the time from which a wait is worth a sentence
_FREE = 0.6  # of a core: what one more process needs to be of use
_OTHERS = 0.35  # of a core: other programs that can be felt
_MORE_CORES = "a machine with more cores would help"


def advise(seen: Vitals) -> str:
    """Return one sentence; an empty one before any time was recorded."""
    if not seen.kinds:
        return "Leave out serial=true to train in several processes, which is faster."
    if not any(kind.shares for kind in seen.kinds):
        return ""
    rules = (
        *(_for_simulators, _other_programs, _in_turn, _idle_steps),
        *(_for_actors, _for_learner, _for_executors),
    )
    sentence = next(
        filter(None, (rule(seen) for rule in rules)), "no process waits long for another one"
    )
    return f"{sentence[0].upper()}{sentence[1:]}."


def _has_room(seen: Vitals) -> bool:
    """Return whether one more process would find a core."""
    return seen.cores - seen.busy >= _FREE


def _other_programs(seen: Vitals) -> str | None:
    """Simulators that connect from outside are other programs, too."""
    if seen.setting.remote or _has_room(seen) or seen.others < _OTHERS:
        return None
    return f"other programs use {seen.others:.1f} of {seen.cores} cores: stopping them would help"


def _in_turn(seen: Vitals) -> str | None:
    """Under schedule sync one of the two always waits."""
    if seen.setting.schedule != "sync" or seen.kind("executor").share(LEARNER) < _SOME:
        return None
    return (
        "executors and the learner take turns: --schedule hts would run both at once, with "
        "another result"
    )


def _idle_steps(seen: Vitals) -> str | None:
    """Steps that are waited for one after the other look like work from inside."""
    executors = seen.kind("executor")
    can = not (seen.setting.threads or seen.setting.batched or seen.setting.remote)
    idle = seen.busy < seen.cores * 0.5 and seen.busy < executors.count * 0.6
    if not can or not idle or executors.share(WORKED) < 1 - _SOME:
        return None
    return "steps wait without computing: --set stepping=threads would overlap them"


def _for_simulators(seen: Vitals) -> str | None:
    """Waiting takes no core: more replicas wait at the same time, whatever other programs do."""
    executors, setting = seen.kind("executor"), seen.setting
    share = executors.share(SIMULATORS)
    if share < _SOME or share < executors.share(LEARNER):
        return None
    own = seen.busy - (0.0 if setting.remote else seen.others)
    remedy = f"--envs {2 * setting.replicas} would help, with another result"
    if seen.cores - own < _FREE:
        remedy = _MORE_CORES
    return _waiting(executors, "simulators", share, remedy)


def _for_actors(seen: Vitals) -> str | None:
    executors, actors = seen.kind("executor"), seen.kind("actor")
    share = executors.share(ACTORS)
    if not actors.count or share < _SOME or share < executors.share(LEARNER):
        return None
    remedy = "--actors 0 would help"
    if seen.setting.device != "cpu":
        remedy = "more blocks would help (--set blocks=N)"
    elif actors.share(WORKED) >= _HIGH and _has_room(seen):
        remedy = f"--actors {actors.count + 1} would help"
    return _waiting(executors, _named(actors), share, remedy)


def _for_learner(seen: Vitals) -> str | None:
    executors, learner, setting = seen.kind("executor"), seen.kind("learner"), seen.setting
    share = executors.share(LEARNER)
    if share < _SOME:
        return None
    threads = min(2 * setting.learners, 4, setting.shards, seen.cores)
    less = "a smaller batch" if setting.replayed else "fewer epochs"
    remedy = f"{less} would help, with another result"
    if learner.share(WORKED) < _HIGH and setting.barrier:
        remedy = "--schedule hts would help, with the same result"
    elif _has_room(seen) and threads > setting.learners:
        remedy = f"--learners {threads} would help"
    elif learner.share(WORKED) < _HIGH:
        remedy = _MORE_CORES
    return _waiting(executors, "the learner", share, remedy)


def _for_executors(seen: Vitals) -> str | None:
    executors, learner, setting = seen.kind("executor"), seen.kind("learner"), seen.setting
    share = learner.share(EXECUTORS)
    if executors.share(WORKED) < _HIGH:
        return None
    remedy = "faster steps of the environment would help"
    if not setting.batched and not _has_room(seen):
        remedy = _MORE_CORES
    elif not setting.batched and executors.count < setting.replicas and share >= _SOME:
        remedy = f"--executors {executors.count + 1} would help"
    if share < _SOME:
        return f"executors and the learner both work nearly all the time: {remedy}"
    return _waiting(learner, _named(executors), share, remedy)


def _waiting(kind: Kind, of: str, share: float, remedy: str) -> str:
    verb = "waits" if kind.count == 1 else "wait"
    return f"{_named(kind)} {verb} for {of} {percent(share)} of the time: {remedy}"


def _named(kind: Kind) -> str:
    return f"the {kind.role}" if kind.count == 1 else kind.name
