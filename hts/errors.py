"""What can go wrong in the product, as one tree. (Failures of worlds: `hts_envs.errors`.)

HtsError
├── RoleFailed       a role raised: its name and its trace
│   └── RoleDied     its process ended without a word
├── NotReproduced    a simulator that was rebuilt shows something else
├── NotRebuilt       a simulator that cannot be rebuilt
└── WrongUsage       what the user typed cannot be done: told in one sentence, exit code 2
    └── BadConfig    every problem of a configuration at once, each with its origin
"""

from __future__ import annotations

from collections.abc import Sequence


class HtsError(Exception):
    """Any failure that the product itself expects and explains."""


class RoleFailed(HtsError):
    """A role failed in its own process; the text holds its name and its traceback or end."""

    def __init__(self, role: str, what: str) -> None:
        super().__init__(f"{role} failed: {what.rstrip()}")
        self.role = role
        self.short = f"{role} failed: {what.rstrip().splitlines()[-1]}"


class RoleDied(RoleFailed):
    """A role's process ended without a word: killed by a signal, or by its own simulator."""


class NotReproduced(HtsError):
    """A simulator that was rebuilt from its seed and its actions shows something else."""

    def __init__(self, replica: int, step: int) -> None:
        super().__init__(
            f"replica {replica} was rebuilt from its episode's seed and its recorded actions, and "
            f"after step {step} it shows something else than before: the simulator is not "
            "deterministic (hts-check says more)"
        )


class NotRebuilt(HtsError):
    """A lost simulator that cannot be brought back: it has no seed for each episode."""

    def __init__(self) -> None:
        super().__init__(
            "the simulators of a lost executor cannot be rebuilt: they take a seed only when they "
            "are built, or go on in the same game after an episode"
        )


class WrongUsage(HtsError):
    """The user can mend this by typing something else."""


class BadConfig(WrongUsage):
    """A configuration that cannot be run; `problems` holds one sentence for each violation."""

    def __init__(self, problems: Sequence[str]) -> None:
        assert problems, "a bad configuration has at least one problem"
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))
