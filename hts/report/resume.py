"""A past run, as what it takes to go on with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hts.config import Given, Resolved, flatten
from hts.config.lineage import identities, identity_at
from hts.config.resolve import resolve
from hts.errors import BadConfig, WrongUsage
from hts.report.checkpoints import read as read_checkpoint
from hts.report.checkpoints import updates_of, written
from hts.report.extension import Extension, extension
from hts.report.recorded import Recorded, read
from hts.report.sealed import Damaged, Sealed


@dataclass(frozen=True)
class Resumed:
    """The run, its configuration with the machine of the next leg, and where it goes on."""

    run: Recorded
    resolved: Resolved
    held: Sealed | None  # None: from its begin
    extension: Extension | None = None  # where a finished run goes on with more steps

    @property
    def behind(self) -> int:
        """Updates that are not run again."""
        return 0 if self.held is None else int(self.held.facts["updates"])


def resume(
    path: Path, given: Sequence[Given], update: int | None = None, horizon: str | None = None
) -> Resumed:
    """The run in this directory, to go on from its newest checkpoint, or the one that is named; a
    finished run, with the schedule that `horizon` names, where another number of steps is given."""
    run = read(path)
    longer = extension(run, given, horizon)
    resolved = _configuration(run, given, longer)
    if longer is not None and update is not None:
        raise WrongUsage("--checkpoint: a run is extended from its end; leave it out")
    held = _checkpoint(run, update)
    if longer is not None and (
        held is None
        or (held.facts["updates"], held.facts["chain"]) != (longer.updates, longer.digest)
    ):
        raise WrongUsage(
            f"{path}: the checkpoint after its last update, {longer.updates:,}, is not there any "
            "more, and a run can only be extended from there"
        )
    return Resumed(run, resolved, held, longer)


def _configuration(run: Recorded, given: Sequence[Given], longer: Extension | None) -> Resolved:
    """Its experiment as it was, or as it is extended; its machine as it was asked for, but for
    what is given now."""
    origin = str(run.path / "manifest.json")
    config = {**run.config, **({} if longer is None else longer.config)}
    values = {**config, **run.asked}
    there = "machine.listen"  # simulators that stay find it where it was, whoever chose the port
    values |= {there: run.config[there]} if run.config.get(there) else {}
    resolved = resolve([[Given(path, value, origin) for path, value in values.items()], given])
    now = flatten(resolved.config)
    problems = [
        f"{resolved.origins[path]}: {_fixed(path.removeprefix('experiment.'), was)}"
        for path, was in config.items()
        if path.startswith("experiment.") and now.get(path) != _as_now(was)
    ]
    if problems:
        raise BadConfig(problems)
    stages = identities(resolved.config.experiment)
    if any(stages.get(before) != each for before, each in run.identities.items()):
        raise WrongUsage(
            f"{run.path}: experiment {run.identity} is another one in this version of HTS "
            f"({resolved.config.experiment.identity()}); resume it with the version that began it"
        )
    return resolved


def _fixed(name: str, was: Any) -> str:
    return (
        f"this run has {name} {was}, which cannot change on resume; "
        f"start a new run for another {name}"
    )


def _as_now(value: Any) -> Any:
    """A value as JSON brings it back."""
    return tuple(value) if isinstance(value, list) else value


def _checkpoint(run: Recorded, update: int | None) -> Sealed | None:
    there = {updates_of(path): path for path in written(run.path / "checkpoints")}
    if update is not None and update not in there:
        raise WrongUsage(
            f"--checkpoint: there is no checkpoint for update {update}; available: {_listed(there)}"
        )
    if not there:
        return None
    chosen = max(there) if update is None else update
    try:
        held = read_checkpoint(there[chosen])
        identity = identity_at(run.identities, chosen)
        if held.facts["experiment"] != identity:
            raise Damaged(
                there[chosen],
                f"it is of experiment {held.facts['experiment']}, this run of {identity}",
            )
    except Damaged as error:
        raise WrongUsage(f"{error}; {_others(run.path, there, chosen)}") from None
    return held


def _others(path: Path, there: Mapping[int, Path], chosen: int) -> str:
    older = [updates for updates in there if updates < chosen]
    if not older:
        return f"there is no older one; remove it, and --resume {path} starts from the beginning"
    return f"to use the one before it: --resume {path} --checkpoint {max(older)}"


def _listed(there: Mapping[int, Path]) -> str:
    return ", ".join(map(str, sorted(there))) or "none"
