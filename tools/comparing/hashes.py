"""Run a variant with the code of a tree and read the hashes of its updates."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .trees import Tree
from .variants import Variant

SECONDS = 300
PLAIN = ("machine.log=none", "machine.evaluate_every=0", "machine.checkpoint_every=0")
"""Values that switch off what a comparison does not need."""


@dataclasses.dataclass(frozen=True)
class Hashes:
    """The hashes of rollout and parameters of each update, or the reason why there are none."""

    updates: tuple[tuple[str, str], ...] = ()
    failure: str = ""

    @property
    def is_unknown(self) -> bool:
        """This version has no configuration of that name."""
        return "--config" in self.failure


def hashes(tree: Tree, variant: Variant, layout: Sequence[str]) -> Hashes:
    """Train in a process of its own and return what it recorded."""
    with tempfile.TemporaryDirectory(prefix="same-digests-") as folder:
        run = Path(folder, "run")
        command = [sys.executable, "-m", "hts.cli.train", *variant.arguments, "--quiet"]
        for each in (*layout, *PLAIN):
            command += ["--set", each]
        command += ["--run-dir", str(run)]
        environment = {**os.environ, "PYTHONPATH": str(tree.path)}
        try:
            ended = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Hashes(failure=f"not done after {SECONDS} seconds")
        if ended.returncode:
            return Hashes(failure=(ended.stderr.strip() or "no message").splitlines()[-1])
        lines = (run / "digests.jsonl").read_text(encoding="utf-8").splitlines()
        links = [json.loads(line) for line in lines]
        return Hashes(tuple((link["rollout"], link["parameters"]) for link in links))


def cached(tree: Tree, variant: Variant, layout: Sequence[str], machine: str) -> Hashes:
    """Return the hashes of a commit from the cache, where this machine has computed them before."""
    if tree.commit is None:
        return hashes(tree, variant, layout)
    named = json.dumps([tree.commit, variant.arguments, layout, PLAIN, machine])
    place = _cache() / f"{hashlib.sha256(named.encode()).hexdigest()[:32]}.json"
    if place.exists():
        stored = json.loads(place.read_text(encoding="utf-8"))
        return Hashes(tuple((rollout, parameters) for rollout, parameters in stored))
    computed = hashes(tree, variant, layout)
    if not computed.failure:
        place.parent.mkdir(parents=True, exist_ok=True)
        half = place.with_suffix(f".{os.getpid()}.half")
        half.write_text(json.dumps(computed.updates), encoding="utf-8")
        half.replace(place)
    return computed


def verdict(before: Hashes, after: Hashes) -> str:
    """Describe the first difference between two runs of one configuration."""
    if before.is_unknown or after.is_unknown:
        return f"skipped: no such configuration in {'base' if before.is_unknown else 'this tree'}"
    if before.failure or after.failure:
        return f"FAILED: {before.failure or after.failure}"
    for update, (old, new) in enumerate(zip(before.updates, after.updates, strict=False), 1):
        parts = [
            part for part, a, b in zip(("rollout", "parameters"), old, new, strict=True) if a != b
        ]
        if parts:
            return f"DIFFERENT from update {update} on: {' and '.join(parts)}"
    if len(before.updates) != len(after.updates):
        return f"DIFFERENT: {len(before.updates)} updates, now {len(after.updates)}"
    return f"same, {len(after.updates)} updates"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "hts", "same-digests")


def describe_machine() -> str:
    """Describe what bits depend on besides the code: builds and the processor."""
    from hts.determinism import numerics

    numerics.prepare()
    import numpy as np

    return json.dumps([numerics.describe("cpu"), np.__version__], sort_keys=True)
