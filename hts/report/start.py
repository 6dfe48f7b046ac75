"""The weights that a run starts from: found in another run, and kept in the directory of its own.

They are the parameters of one version of the other run, and the statistics that it normalised
observations with. Everything else (optimiser, critics, replay, schedules) begins anew. The
experiment names them by a hash of their content, never by where they were found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from hts.config import Experiment, Given
from hts.errors import WrongUsage
from hts.report import policies
from hts.report.recorded import read
from hts.report.sealed import Damaged, Sealed, seal, unseal
from hts_envs.contract import Array

FILE = "start.safetensors"
KIND = "start"
_NAME = "experiment.start_from"
_FROM_ARRAYS = ("normalised fields", "parameters")
"""Names that the arrays alone show, for manifests of older versions, which have no outline."""


@dataclass(frozen=True, eq=False)
class Start:
    """One version of another run, without its number."""

    arrays: Mapping[str, Array]
    outline: Mapping[str, str]  # of the network that it was made for
    origin: str  # where it was found, for people

    @property
    def content(self) -> str:
        """The hash of every array, with its name, type and shape."""
        content = blake3()
        for name, array in sorted(self.arrays.items()):
            content.update(f"{name} {array.dtype}{array.shape} ".encode() + array.tobytes())
        return content.hexdigest(length=16)

    @property
    def given(self) -> Given:
        """Return the value that a configuration holds for it."""
        return Given(_NAME, self.content, self.origin)

    def save(self, run: Path) -> None:
        """Write a copy into the directory of a run, whole or not at all."""
        facts = {"outline": dict(self.outline), "origin": self.origin}
        seal(run / FILE, KIND, Sealed(facts, self.arrays))

    def check(self, outline: Mapping[str, str], env: str) -> None:
        """Refuse to start a network with another outline."""
        here = {name: outline[name] for name in (outline if self.outline else _FROM_ARRAYS)}
        there = {**self.outline, **self._from_arrays()}
        for name in [*here, *there]:
            if here.get(name) != there.get(name):
                raise WrongUsage(
                    f"{self.origin}: {name}: {there.get(name, 'nothing')} in that run, and "
                    f"{here.get(name, 'nothing')} in this experiment ({env}); the network, what "
                    "it sees and what it does must be the same"
                )

    def _from_arrays(self) -> dict[str, str]:
        counts = sorted(name for name in self.arrays if name.endswith(".count"))
        fields = ", ".join(name.removesuffix(".count") for name in counts)
        values = (fields or "none", str(len(self.arrays["parameters"])))
        return dict(zip(_FROM_ARRAYS, values, strict=True))


def find_start(reference: str) -> Start:
    """Return the weights that RUN[:UPDATE] names: of the newest version of that run, or of the one
    after so many updates; after 0, those that the run itself started from."""
    origin, (path, update) = f"--start-from {reference}", _split(reference)
    run = read(path)
    if update == 0 and (path / FILE).exists():
        return dataclasses.replace(_read(path), origin=origin)
    files = policies.available(path)
    if not files or (update is not None and update not in files):
        listed = ", ".join(map(str, files)) or "none at all"
        which = "no policy" if update is None else f"no policy after update {update}"
        raise WrongUsage(f"{origin}: {which} is kept there; available: {listed}")
    try:
        policy = policies.read(files[max(files) if update is None else update], run.identities)
    except Damaged as damage:
        raise WrongUsage(f"{origin}: {damage}") from None
    return Start(policy.arrays, run.outline, origin)


def load_start(run: Path, experiment: Experiment) -> Start | None:
    """Return the copy of the weights that a run started from; None where the seed drew them."""
    if experiment.start_from is None:
        return None
    start = _read(run)
    if start.content != experiment.start_from:
        raise WrongUsage(f"{run / FILE}: these are not the weights that this run started from")
    return start


def require_start(experiment: Experiment, start: Start | None) -> None:
    """Refuse an experiment that starts from weights, of which only the hash is given."""
    if experiment.start_from is not None and start is None:
        raise WrongUsage(
            f"{_NAME}: only the hash of the weights is known; name a run that has them with "
            "--start-from RUN[:UPDATE]"
        )


def _split(reference: str) -> tuple[Path, int | None]:
    """Return the directory, and the update where one is named."""
    path, colon, update = reference.rpartition(":")
    if colon and update.isdecimal() and not Path(reference).is_dir():
        return Path(path), int(update)
    return Path(reference), None


def _read(run: Path) -> Start:
    try:
        content = unseal(run / FILE, KIND)
    except Damaged as damage:
        raise WrongUsage(str(damage)) from None
    return Start(content.arrays, content.facts["outline"], str(run / FILE))
