"""Source trees that a run can import the packages from, without being installed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {"hts": "hts", "hts_envs": "envs", "hts_configs": "configs"}


@dataclass(frozen=True)
class Tree:
    """A version of the code: `path` goes into PYTHONPATH, `commit` is None for uncommitted code."""

    name: str
    path: Path
    commit: str | None
    before: str = "HEAD"  # the revision to compare with by default


def working_tree(root: Path, folder: Path) -> Tree:
    """Return the checkout as it is now, uncommitted changes included."""
    linked(root, folder)
    tracked = [*PACKAGES.values(), "setup.py"]
    changed = _git(root, "status", "--porcelain", "--", *tracked)
    if changed:
        return Tree("the working tree", folder, None)
    head = _commit(root, "HEAD")
    return Tree(head[:10], folder, head, before="HEAD~1")


def exported(root: Path, revision: str, folder: Path) -> Tree:
    """Return a copy of a revision; raise ValueError where there is none of that name."""
    commit = _commit(root, revision)
    source = folder / "source"
    source.mkdir(parents=True)
    packed = _output(root, "archive", commit, "--", *PACKAGES.values())
    subprocess.run(["tar", "-x", "-C", source], input=packed, check=True)
    linked(source, folder)
    return Tree(commit[:10], folder, commit)


def linked(source: Path, folder: Path) -> Path:
    """Return a folder from which the packages can be imported by their installed names."""
    folder.mkdir(parents=True, exist_ok=True)
    for package, place in PACKAGES.items():
        (folder / package).symlink_to(source / place)
    return folder


def _commit(root: Path, revision: str) -> str:
    try:
        return _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    except subprocess.CalledProcessError:
        raise ValueError(f"--base {revision}: git knows no such revision") from None


def _git(root: Path, *words: str) -> str:
    return _output(root, *words).decode().strip()


def _output(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True).stdout
