"""The bottleneck of a run in one line, and the one change that would help.

Who works nearly all the time is what the others wait for. Whether more of them would help is a
question of cores: where all are busy, nothing is gained by sharing them among more processes.
"""

from __future__ import annotations

from hts.report.vitals import ACTORS, EXECUTORS, LEARNER, SIMULATORS, WORKED, Kind, Vitals

_HIGH = 0.85  # of the time: somebody works as good as always
_SOME = 0.15  # a wait that is worth a word
_FREE = 0.6  # of a core: what one more process needs to be of use
_OTHERS = 0.35  # of a core: other programs that are felt


def advise(seen: Vitals) -> str:
    """One line; empty while nobody has told anything yet."""
    if not seen.kinds:
        return "one process does everything in turn: leave out serial=true for speed"
    if not any(kind.shares for kind in seen.kinds):
        return ""
    rules = (_in_turn, _idle_steps, _for_simulators, _for_actors, _for_learner, _for_executors)
    said = next(filter(None, (rule(seen) for rule in rules)), "everybody has something to do")
    return f"{said}{_others(seen)}"


def _room(seen: Vitals) -> bool:
    """One more process would find a core."""
    return seen.cores - seen.busy >= _FREE


def _full(seen: Vitals) -> str:
    return f"{round(seen.busy)} of {seen.cores} cores are busy"


def _others(seen: Vitals) -> str:
    if seen.others < _OTHERS:
        return ""
    return f" (other programs take {seen.others:.1f} cores)"


def _in_turn(seen: Vitals) -> str | None:
    """Under schedule sync somebody always waits."""
    executors, learner = seen.kind("executor"), seen.kind("learner")
    if seen.setting.schedule != "sync" or executors.share(LEARNER) < _SOME:
        return None
    return (
        f"schedule sync: {_who(executors)} for the learner "
        f"{executors.share(LEARNER):.0%}, it waits {learner.share(EXECUTORS):.0%}; "
        "--schedule hts does both at once (another result)"
    )


def _idle_steps(seen: Vitals) -> str | None:
    """Steps that are waited for one after the other look like work from inside."""
    executors = seen.kind("executor")
    can = not (seen.setting.threads or seen.setting.batched or seen.setting.remote)
    idle = seen.busy < seen.cores * 0.5 and seen.busy < executors.count * 0.6
    if not can or not idle or executors.share(WORKED) < 1 - _SOME:
        return None
    return (
        f"steps wait without computing ({seen.busy:.1f} of {seen.cores} cores busy): "
        "--set stepping=threads takes them at once"
    )


def _for_simulators(seen: Vitals) -> str | None:
    executors = seen.kind("executor")
    share = executors.share(SIMULATORS)
    if share < _SOME or share < executors.share(LEARNER):
        return None
    said = f"{_who(executors)} for simulators {share:.0%}"
    if not _room(seen):
        return f"{said}: more executors will not help, {_full(seen)}"
    return f"{said}: more executors will not help, more replicas would (another result)"


def _for_actors(seen: Vitals) -> str | None:
    executors, actors = seen.kind("executor"), seen.kind("actor")
    share = executors.share(ACTORS)
    if not actors.count or share < _SOME or share < executors.share(LEARNER):
        return None
    said = f"{_who(executors)} for {_them(actors)} {share:.0%}"
    if seen.setting.device != "cpu":
        return f"{said}: more blocks (--set blocks=N) keep them stepping meanwhile"
    if actors.share(WORKED) >= _HIGH and _room(seen):
        return f"{said}: --actors {actors.count + 1} would help, a core is free"
    return f"{said}: --actors 0 lets executors answer themselves"


def _for_learner(seen: Vitals) -> str | None:
    executors, learner, setting = seen.kind("executor"), seen.kind("learner"), seen.setting
    share = executors.share(LEARNER)
    if share < _SOME:
        return None
    said = f"{_who(executors)} for the learner {share:.0%}"
    if learner.share(WORKED) < _HIGH and setting.barrier:
        return f"{said}: --schedule hts does without the swap, with the same result"
    threads = min(setting.shards, seen.cores)
    if _room(seen) and setting.learners < threads:
        more = min(2 * setting.learners, 4, threads)
        if more > setting.learners:
            return f"{said}: --learners {more} would help, a core is free"
    if learner.share(WORKED) < _HIGH:
        return f"{said}, and it for them {learner.share(EXECUTORS):.0%}: {_full(seen)}"
    less = "a smaller batch or beta_av" if setting.replayed else "fewer epochs"
    return (
        f"{said}: more executors will not help, an update is the limit; {less} or a smaller "
        "network would (another result)"
    )


def _for_executors(seen: Vitals) -> str | None:
    executors, learner, setting = seen.kind("executor"), seen.kind("learner"), seen.setting
    share = learner.share(EXECUTORS)
    if executors.share(WORKED) < _HIGH:
        return None
    said = f"the learner waits for {_them(executors)} {share:.0%}"
    if share < _SOME:
        said = "everybody works nearly all the time"
    if setting.batched:
        return f"{said}: the world steps all replicas in one call, which is the limit"
    if not _room(seen):
        return f"{said}: more executors will not help, {_full(seen)}"
    if executors.count < setting.replicas and share >= _SOME:
        return f"{said}: --executors {executors.count + 1} would help, a core is free"
    return f"{said}: steps are the limit"


def _who(kind: Kind) -> str:
    """They wait, or the only one does."""
    return f"the {kind.role} waits" if kind.count == 1 else f"{kind.name} wait"


def _them(kind: Kind) -> str:
    return f"the {kind.role}" if kind.count == 1 else kind.name
