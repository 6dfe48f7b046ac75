"""`tools/same-digests`: two versions of the code, compared update by update."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.comparing.hashes import Hashes, hashes, verdict
from tools.comparing.trees import Tree, exported, linked
from tools.comparing.variants import variants

ROOT = Path(__file__).parents[2]
SERIAL = ("machine.serial=true",)
ONE = (("r1", "p1"), ("r2", "p2"))


@pytest.fixture
def planted(tmp_path: Path) -> Tree:
    """A copy of the code in which Adam forgets squares ten times as fast."""
    for folder in ("hts", "envs", "configs"):
        shutil.copytree(ROOT / folder, tmp_path / "copy" / folder)
    module = tmp_path / "copy" / "hts" / "learn" / "optimisers.py"
    text, right = module.read_text(encoding="utf-8"), "beta2: float = 0.999"
    assert text.count(right) == 1, "the line to change is there"
    module.write_text(text.replace(right, "beta2: float = 0.99"), encoding="utf-8")
    return Tree("planted", linked(tmp_path / "copy", tmp_path / "planted"), None)


def test_a_planted_change_is_found(planted: Tree, tmp_path: Path) -> None:
    """Another decay changes the first update's parameters, and not its rollout."""
    [smoke] = [each for each in variants(["smoke"]) if not each.changes]
    now = Tree("now", linked(ROOT, tmp_path / "now"), None)
    ours, theirs = hashes(now, smoke, SERIAL), hashes(planted, smoke, SERIAL)
    assert verdict(ours, ours) == "same, 4 updates"
    assert verdict(ours, theirs) == "DIFFERENT from update 1 on: parameters"


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (Hashes(ONE), "same, 2 updates"),
        (Hashes((("r1", "p1"), ("r2", "x"))), "DIFFERENT from update 2 on: parameters"),
        (Hashes((("x", "p1"), ("r2", "p2"))), "DIFFERENT from update 1 on: rollout"),
        (Hashes(ONE[:1]), "DIFFERENT: 2 updates, now 1"),
        (Hashes(failure="it broke"), "FAILED: it broke"),
    ],
)
def test_the_first_difference_is_named(theirs: Hashes, words: str) -> None:
    """Rollouts and parameters are compared in the order in which they are computed."""
    assert verdict(Hashes(ONE), theirs) == words


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    """A misspelt configuration or revision is an error, not an empty comparison."""
    with pytest.raises(ValueError, match="smoek: no such configuration"):
        variants(["smoek"])
    with pytest.raises(ValueError, match="no-such-revision: git knows no such revision"):
        exported(ROOT, "no-such-revision", tmp_path)


def test_every_ready_configuration_is_compared() -> None:
    """Every configuration that names an environment is there, cut down to a few rows."""
    chosen = variants([])
    assert {"smoke", "a2c-atari", "ppo-gfootball-3v1", "pql-paper-ant"} <= {
        v.config for v in chosen
    }
    assert all(any(size.startswith("experiment.steps=") for size in v.sizes) for v in chosen)
