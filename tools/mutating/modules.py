"""The critical modules, and the fast tests that should notice a mistake in each.

A name without a folder is a file of tests/unit; `::` and a test may follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

Table = dict[str, tuple[str, ...]]

TESTS: Table = {
    "hts/config/check.py": ("config", "fit"),
    "hts/determinism/digest.py": ("digest", "divergence"),
    "hts/determinism/divergence.py": ("divergence",),
    "hts/determinism/invariance.py": ("invariance", "sparse"),
    "hts/determinism/keys.py": ("keys", "randomness"),
    "hts/determinism/numerics.py": ("numerics",),
    "hts/determinism/strategy.py": ("invariance",),
    "hts/learn/critics.py": ("critics", "paper_turns"),
    "hts/learn/kept.py": (
        "gradient::test_a_learner_goes_on_from_what_was_kept",
        "gradient::test_what_is_kept_is_copied",
        "paper_turns",
    ),
    "hts/learn/losses.py": ("losses",),
    "hts/learn/normalise.py": ("normalise", "paper_turns"),
    "hts/learn/optimisers.py": ("optimisers", "paper_turns"),
    "hts/learn/returns.py": ("returns",),
    "hts/memory/arena.py": ("desk", "images"),
    "hts/memory/desk.py": ("desk",),
    "hts/memory/doorbell.py": ("doorbell", "desk"),
    "hts/memory/learnt.py": ("learnt",),
    "hts/memory/room.py": ("room", "desk"),
    "hts/memory/storage.py": ("storage", "columns"),
    "hts/memory/versions.py": ("desk",),
    "hts/models/critics.py": ("paper_turns",),
    "hts/models/exploring.py": ("exploring", "paper_turns"),
    "hts/remote/guard.py": ("tests/remote/test_keys.py",),
    "hts/remote/seating.py": ("tests/remote/test_schedules.py", "tests/remote/test_steps.py"),
    "hts/remote/wire.py": (
        "tests/remote/test_protocol_bytes.py",
        "tests/remote/test_steps.py",
        "tests/remote/test_schedules.py",
    ),
    "hts/replay/images.py": ("images", "ring"),
    "hts/replay/nstep.py": ("nstep", "paper_turns"),
    "hts/replay/ring.py": ("ring", "images", "paper_turns"),
    "hts/report/sealed.py": ("sealed", "case"),
    "hts/report/statistics.py": ("statistics",),
    "hts/roles/actor.py": ("storage", "invariance", "evaluator", "exploring", "episode_ends"),
    "hts/roles/blocks.py": ("blocks", "executor", "storage", "progress"),
    "hts/roles/evaluator.py": ("evaluator",),
    "hts/roles/executor.py": ("executor", "blocks"),
    "hts/roles/explorer.py": ("exploring",),
    "hts/roles/gradient.py": ("gradient", "learner"),
    "hts/roles/learner.py": ("learner", "gradient", "normalise"),
    "hts/roles/local.py": ("executor", "blocks", "storage", "case"),
    "hts/roles/p_learner.py": ("paper_turns",),
    "hts/roles/pace.py": ("learnt", "paper_turns"),
    "hts/roles/q_learner.py": ("q_learner", "images"),
    "hts/roles/rebuilding.py": ("executor", "blocks", "case"),
    "hts/roles/replayed.py": ("paper_turns", "columns"),
    "hts/roles/sharded.py": ("paper_turns", "gradient"),
    "hts/roles/v_learner.py": ("paper_turns",),
    "hts/runtime/supervise.py": ("supervise",),
}


def tests_of(module: str, root: Path, table: Table) -> list[str]:
    """Return the tests of a module as pytest takes them: those whose files exist."""
    names = [_spelled(each) for each in table[module]]
    return [name for name in names if (root / name.partition("::")[0]).exists()]


def _spelled(name: str) -> str:
    file, *test = name.split("::")
    path = file if "/" in file else f"tests/unit/test_{file}.py"
    return "::".join([path, *test])


def named(typed: Sequence[str]) -> list[str]:
    """Return the modules that are named: files, or all of a folder; all for no name."""
    if not typed:
        return list(TESTS)
    found = []
    for each in typed:
        path = each.strip("/")
        chosen = [module for module in TESTS if module == path or module.startswith(f"{path}/")]
        if not chosen:
            raise LookupError(f"no tests are listed for {each}: see tools/mutating/modules.py")
        found += [module for module in chosen if module not in found]
    return found
