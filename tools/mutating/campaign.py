"""All mutants of some modules, tried in a copy of the tree."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .modules import Table, tests_of
from .operators import Mutant, mutants
from .suite import CannotRun, Suite

PACKAGES = {"hts_envs": "envs", "hts_configs": "configs"}
"""Packages whose folder has another name."""

UNCOPIED = shutil.ignore_patterns(".git", ".venv", ".cache", "__pycache__", "runs", "*.egg-info")

MODULES_OF_A_SAMPLE = 2


@dataclass(frozen=True)
class Choice:
    """Which mutants are tried, and with what patience."""

    sample: int | None = None
    seed: str = "0"
    seconds: float = 30.0
    test_seconds: float = 3.0

    def of(self, modules: Sequence[str], root: Path) -> dict[str, list[Mutant]]:
        """Return the mutants of each module, or a sample of few modules: each costs seconds."""
        draw = random.Random(self.seed)
        if self.sample is not None:
            modules = draw.sample(modules, min(len(modules), MODULES_OF_A_SAMPLE))
        texts = [(module, (root / module).read_text()) for module in modules]
        every = [(module, mutant) for module, text in texts for mutant in mutants(text)]
        if self.sample is not None:
            every = draw.sample(every, min(len(every), self.sample))
        return {module: [each for name, each in every if name == module] for module in modules}


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    module: str
    mutant: Mutant
    survived: bool
    tests: int


@contextmanager
def tree(root: Path) -> Iterator[Path]:
    """Copy the project, and import everything from the copy, here and in children."""
    with TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder, "tree")
        shutil.copytree(root, copy, ignore=UNCOPIED, symlinks=True)
        for package, name in PACKAGES.items():
            if (copy / name).is_dir():
                (copy / package).symlink_to(name)
        os.environ["PYTHONPATH"] = str(copy)
        sys.path.insert(0, str(copy))
        before = os.getcwd()
        os.chdir(copy)
        try:
            yield copy
        finally:
            os.chdir(before)
            sys.path.remove(str(copy))


def warm() -> None:
    """Import what tests import and no mutant changes, for all children to come."""
    from hts.determinism import numerics

    numerics.prepare()
    import gymnasium  # noqa: F401
    import torch

    with suppress(AssertionError):  # the first failure imports 60 MB, which takes half a second
        torch.testing.assert_close(torch.zeros(1), torch.ones(1))


def calm() -> None:
    """Have Hypothesis draw the same examples for every mutant, and leave a failure as it is."""
    from hypothesis import Phase, settings

    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(
        "mutants", derandomize=True, database=None, deadline=None, phases=phases
    )
    settings.load_profile("mutants")


def results(
    copy: Path, chosen: dict[str, list[Mutant]], choice: Choice, table: Table
) -> Iterator[Result | CannotRun]:
    """Try mutants, module by module; pass over a module whose tests cannot be run."""
    for module, some in chosen.items():
        if not some:
            continue
        try:
            suite = Suite(copy, module, tests_of(module, copy, table))
        except CannotRun as error:
            yield error
            continue
        try:
            for mutant in some:
                tests = suite.tests(mutant, choice.test_seconds)
                survived = not tests or suite.survives(mutant, tests, choice.seconds)
                yield Result(module, mutant, survived, len(tests))
        finally:
            suite.close()
