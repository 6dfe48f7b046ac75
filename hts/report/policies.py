"""The policies of a run: versions that are written down while it goes on, to be evaluated.

`policies/` in the run's directory holds a file for each, named for the updates that it stands
behind: its parameters, and the statistics that observations are normalised with. Which versions
those are follows from the count of updates alone. A file is written by a thread, whole or not at
all; where the disk does not take it, the run goes on without it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hts.config import Experiment, Machine, lineage
from hts.report import checkpoints
from hts.report.say import say
from hts.report.sealed import Damaged, Sealed, seal, sweep, unseal
from hts_envs.contract import Array

if TYPE_CHECKING:  # torch, which some who only look at files do without
    from hts.memory.versions import Version

FOLDER = "policies"
KIND = "policy"
_ENDING = ".safetensors"
_MANY = 20  # policies in a run, unless somebody wants another number
_SHORT = 100  # a run of fewer updates has none, unless somebody wants them


@dataclass(frozen=True)
class Policies:
    """Which versions of a run are written down, and where."""

    folder: str
    every: int  # updates from one to the next
    most: int | None  # the newest that are kept; None: somebody else thins them

    def due(self, update: int, last: int) -> bool:
        """The version made by this update is one of them."""
        return update > 0 and (update % self.every == 0 or update == last)


def every(experiment: Experiment, machine: Machine) -> int:
    """Updates between policies; 0 where none are written."""
    if machine.evaluate_every != "auto":
        return machine.evaluate_every
    return 0 if experiment.updates < _SHORT else -(-experiment.updates // _MANY)


class Writer:
    """Writes versions down as they are made, one at a time, on the learner's side."""

    def __init__(self, policies: Policies, experiment: Experiment) -> None:
        self.latest = -1  # the update whose version is being written, or was written last
        self._policies = policies
        self._folder = Path(policies.folder)
        sweep(self._folder)
        self._experiment = experiment
        self._identities = lineage.identities(experiment)
        self._writing: threading.Thread | None = None
        self._written: deque[int] = deque()  # by the thread
        self._troubled = False

    def made(self, update: int, version: Version) -> None:
        """This version is made; a version never changes, so it is written as it is."""
        if not self._policies.due(update, self._experiment.updates):
            return
        self.wait()
        self.latest = update
        self._writing = threading.Thread(target=self._write, args=(update, version), name="policy")
        self._writing.start()

    def wait(self) -> None:
        """Until what is being written is written."""
        if self._writing is not None:
            self._writing.join()

    def written(self) -> list[int]:
        """What has been written since this was asked last."""
        return [self._written.popleft() for _ in range(len(self._written))]

    def _write(self, update: int, version: Version) -> None:
        facts = {
            "experiment": lineage.identity_at(self._identities, update),
            "update": update,
            "steps": update * self._experiment.rows,
        }
        try:
            self._folder.mkdir(exist_ok=True)
            seal(path_of(self._folder, update), KIND, Sealed(facts, version.arrays()))
            if self._policies.most is not None:
                thin(self._folder, self._policies.most)
        except OSError as error:
            if not self._troubled:
                why = error.strerror or error
                say(f"hts: {self._folder} takes no policy ({why}): the run goes on")
            self._troubled = True
        else:
            self._troubled = False
            self._written.append(update)


def path_of(folder: Path, update: int) -> Path:
    """The file of the policy behind so many updates."""
    return folder / f"{update:09}{_ENDING}"


def written(folder: Path) -> dict[int, Path]:
    """All that are there, in the order of their updates."""
    return {checkpoints.updates_of(path): path for path in sorted(folder.glob(f"[0-9]*{_ENDING}"))}


def thin(folder: Path, most: int, needed: Collection[int] = ()) -> None:
    """Keep the newest, and those that are still needed."""
    there = written(folder)
    for update in list(there)[:-most]:
        if update not in needed:
            there[update].unlink(missing_ok=True)


def available(run: Path) -> dict[int, Path]:
    """Every policy of a run that can be read now: its policies, and what its checkpoints hold."""
    kept = {checkpoints.updates_of(path): path for path in checkpoints.written(run / "checkpoints")}
    return dict(sorted({**kept, **written(run / FOLDER)}.items()))


@dataclass(frozen=True, eq=False)
class Policy:
    """What one file holds: the arrays that a version is made of."""

    update: int
    arrays: Mapping[str, Array]


def read(path: Path, identities: Mapping[int, str]) -> Policy:
    """Return the policy in this file; raise Damaged where the file is not whole, or of another
    experiment than the one whose stages these are."""
    if path.parent.name == FOLDER:
        held = unseal(path, KIND)
        update, arrays = int(held.facts["update"]), dict(held.arrays)
    else:
        held = checkpoints.read(path)
        update = int(held.facts["updates"])
        newest = {name: array[-1] for name, array in held.arrays.items() if _is_version(name)}
        arrays = {name.removeprefix("versions."): array for name, array in newest.items()}
    found, identity = held.facts["experiment"], lineage.identity_at(identities, update)
    if found != identity:
        raise Damaged(path, f"it is of experiment {found}, this run of {identity}")
    return Policy(update, arrays)


def _is_version(name: str) -> bool:
    return name.startswith("versions.")
