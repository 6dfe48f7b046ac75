"""What a run leaves behind: one directory, written as the run goes.

manifest.json    what was run: configuration, origins, identity, versions, numerics
metrics.jsonl    a line for each update
digests.jsonl    a line for each update: update, rollout, parameters, chain, replicas
start.safetensors  the weights that it started from, where another run made them
checkpoints/     what the run can go on from: the newest few
policies/        versions to be evaluated: the newest few, and those that wait for that
eval.jsonl       a line for each policy that was evaluated
result.json      how it ended: status, steps, updates, digest, steps/s, seconds, return
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from hts.config import Config, Experiment, Machine, Resolved, flatten
from hts.config.lineage import identities
from hts.determinism import numerics
from hts.determinism.digest import Link, marks
from hts.errors import WrongUsage
from hts.report.extension import Extension
from hts.report.lines import Lines, cut

METRICS, DIGESTS = "metrics.jsonl", "digests.jsonl"
PACKAGES = ("hts", "torch", "numpy", "gymnasium", "gfootball", "ale-py", "mujoco", "envpool")


def default_path(config: Config) -> Path:
    """runs/<algorithm>-<environment>-s<seed>-<when>: new for every run."""
    experiment = config.experiment
    world = "".join(c if c.isalnum() else "-" for c in experiment.env).strip("-")
    when = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{experiment.algo.name}-{world}-s{experiment.seed}-{when}"


class RunDirectory:
    """The directory of one run, held by the process that writes it."""

    def __init__(self, path: Path, made: Sequence[Path] = ()) -> None:
        self.path = path
        self._made = made
        self._later: Mapping[int, str] = {}
        self._held = _hold(path)
        try:
            self._metrics, self._digests = Lines(path / METRICS), Lines(path / DIGESTS)
        except OSError:
            os.close(self._held)
            raise

    @staticmethod
    def new(path: Path) -> RunDirectory:
        """One that does not exist yet."""
        made = [folder for folder in (path, *path.parents) if not os.path.exists(folder)]
        try:
            path.mkdir(parents=True)
            return RunDirectory(path, made)
        except FileExistsError:
            raise WrongUsage(f"--run-dir {path} already exists; choose another") from None
        except OSError as error:
            _take_back(made)
            raise WrongUsage(f"--run-dir {path}: cannot be made: {error.strerror}") from None

    @staticmethod
    def again(path: Path) -> RunDirectory:
        """That of a run which goes on."""
        try:
            return RunDirectory(path)
        except OSError as error:
            raise WrongUsage(f"{path}: it cannot be written: {error.strerror}") from None

    @contextmanager
    def begun(self) -> Iterator[None]:
        """The first things that are written: where they cannot be, the run is not begun, and
        nothing is left that was made for it."""
        try:
            yield
        except BaseException as error:
            self.close()
            _take_back(self._made)
            if isinstance(error, OSError):
                sentence = f"{self.path}: it cannot be written: {error.strerror}"
                raise WrongUsage(sentence) from None
            raise

    def manifest(
        self,
        resolved: Resolved,
        chosen: Machine,
        device: str,
        network: Mapping[str, str] | None = None,
    ) -> None:
        """Write what is run, with which network, and under which numerics."""
        experiment = resolved.config.experiment
        record = {
            "experiment": experiment.identity(),
            "config": flatten(Config(experiment=experiment, machine=chosen)),
            "origins": dict(resolved.origins),
            "asked": _asked(resolved),
            "network": network or {},
            **_stages(experiment),
            **_conditions(device),
            "legs": [_leg(0)],
        }
        self._write("manifest.json", record)

    def goes_on(
        self,
        resolved: Resolved,
        chosen: Machine,
        device: str,
        updates: int,
        extension: Extension | None = None,
    ) -> list[str]:
        """Go on after so many updates; return what is not as it was in the leg before.

        What was written about later updates is taken back; it has to come out the same again. A
        run that is extended becomes the extended one with the manifest, which is replaced in one
        step before anything else is touched.
        """
        before = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        if extension is not None and before.get("experiment") != extension.experiment:
            raise WrongUsage(f"{self.path}: another process has extended this run meanwhile")
        now = _conditions(device)
        changed = [
            f"{name} was {was} and is {is_now} now"
            for part in ("versions", "numerics")
            for name, was, is_now in numerics.differences(before[part], now[part])
        ]
        config = flatten(Config(experiment=resolved.config.experiment, machine=chosen))
        legs = [*before.get("legs", []), _leg(updates, extension)]
        record = {**before, **now, "config": config, "asked": _asked(resolved), "legs": legs}
        if extension is not None:
            experiment = resolved.config.experiment
            origins = {path: resolved.origins[path] for path in extension.config}
            record |= {
                "experiment": experiment.identity(),
                **_stages(experiment),
                "origins": {**before.get("origins", {}), **origins},
            }
        self._write("manifest.json", record)
        cut(self.path / METRICS, updates)
        later = [json.loads(line) for line in cut(self.path / DIGESTS, updates)]
        self._later = {line["update"]: line["chain"] for line in later}
        for name in ("result.json", "failure.txt"):  # how it ended before, and half of that
            for left in (name, f".{name}"):
                (self.path / left).unlink(missing_ok=True)
        return changed

    def update(
        self, link: Link, metrics: Mapping[str, float], replicas: Sequence[bytes]
    ) -> str | None:
        """One line in each record; says when this update came out otherwise before."""
        digests = {**dataclasses.asdict(link), "replicas": marks(replicas)}
        for file, record in ((self._digests, digests), (self._metrics, metrics)):
            file.add(json.dumps(record) + "\n")
        if self._later.get(link.update, link.chain) == link.chain:
            return None
        self._later = {}
        return f"update {link.update} came out otherwise before the run was interrupted"

    @property
    def trouble(self) -> str | None:
        """Why lines wait in memory, where they do."""
        return self._digests.trouble or self._metrics.trouble

    def sync(self) -> None:
        """Bring every line to the disk; OSError where it does not take them."""
        for file in (self._digests, self._metrics):
            file.sync()

    def failure(self, text: str) -> None:
        """What went wrong, with its traceback."""
        self._replace("failure.txt", text.rstrip())

    def result(self, record: Mapping[str, Any]) -> None:
        """How the run ended."""
        self._write("result.json", record)

    def close(self) -> None:
        """Let go of it, and whoever wants may go on with it."""
        self._metrics.close()
        self._digests.close()
        os.close(self._held)

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        self._replace(name, json.dumps(record, indent=2))

    def _replace(self, name: str, text: str) -> None:
        """Whole or not at all: written beside its place, then moved there."""
        beside = self.path / f".{name}"
        try:
            beside.write_text(text + "\n", encoding="utf-8")
            os.replace(beside, self.path / name)
        except OSError:
            beside.unlink(missing_ok=True)
            raise


def _take_back(made: Sequence[Path]) -> None:
    """Remove a run's directory and the folders that were made for it, if nothing else is there."""
    if made:
        shutil.rmtree(made[0], ignore_errors=True)
    for folder in made[1:]:
        with suppress(OSError):
            folder.rmdir()


def _hold(path: Path) -> int:
    """Hold the directory as long as this process lives; WrongUsage when somebody else does."""
    held = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise WrongUsage(f"{path}: this run is going on, in another process") from None
    return held


def _asked(resolved: Resolved) -> dict[str, Any]:
    """The machine as it was asked for, before anything was chosen for it."""
    values = flatten(resolved.config)
    return {name: value for name, value in values.items() if name.startswith("machine.")}


def _conditions(device: str) -> dict[str, Any]:
    """What the bits of a run may depend on, besides its experiment."""
    return {
        "numerics": numerics.describe(device),
        "versions": versions(),
        "commit": _commit(),
    }


def _leg(updates: int, extension: Extension | None = None) -> dict[str, Any]:
    """One of the pieces in which a run was run, with the finished run where it is extended."""
    leg = {"behind": updates, "began": datetime.now().isoformat(timespec="seconds")}
    return leg if extension is None else {**leg, "extends": extension.record()}


def _stages(experiment: Experiment) -> dict[str, Any]:
    """The identity of each stage of an extended experiment, by the updates made before it."""
    stages = identities(experiment)
    return {"stages": stages} if len(stages) > 1 else {}


def versions() -> dict[str, str]:
    """Of every package that may change a result."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str | None:
    """The commit of the checkout that runs, where it is one."""
    here = Path(__file__).resolve().parent
    asked = ["git", "-C", str(here), "describe", "--always", "--dirty"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() or None
