"""What can go wrong in the product, as one tree. (Failures of worlds: `hts_envs.errors`.)

HtsError
├── RoleFailed       a role raised: its name and its traceback
│   └── RoleDied     its process ended without a word
├── WorldFailed      a world raised in an executor: which replica's
├── SimulatorFailed  a simulator raised or ended its process before a run began
├── SettingsChanged  something changed a global setting that reaches arithmetic
├── RatioNotOne      an update's data was not made with the version that it is learnt from
├── Damaged          a file that cannot be believed: which part of it (`hts.report.sealed`)
└── WrongUsage       what the user typed cannot be done: told in one sentence, exit code 2
    └── BadConfig    every problem of a configuration at once, each with its origin
"""

from __future__ import annotations

from collections.abc import Sequence


class HtsError(Exception):
    """Any failure that the product itself expects and explains."""


class RoleFailed(HtsError):
    """A role failed in its own process; the text holds its name and its traceback or end.

    `replica` is the one whose world raised, where that is what happened; `rebuilding` is the step
    of the rebuild, if it raised in one. `short` is one line.
    """

    def __init__(
        self,
        role: str,
        what: str,
        replica: int | None = None,
        rebuilding: str | None = None,
        *,
        short: str = "",
    ) -> None:
        super().__init__(f"{role} failed: {what.rstrip()}")
        self.role = role
        self.what = what
        self.replica = replica
        self.rebuilding = rebuilding
        self.short = short or f"{role} failed: {what.rstrip().splitlines()[-1]}"


class RoleDied(RoleFailed):
    """A role's process ended without a word: killed by a signal, or by its own simulator."""


class WorldFailed(HtsError):
    """The world of this replica raised (its first one, where a batched world did): the cause.

    `rebuilding` is the step at which it raised while it was rebuilt: one that it had passed before.
    """

    def __init__(self, replica: int, rebuilding: str | None = None) -> None:
        super().__init__(f"the world of replica {replica} raised")
        self.replica = replica
        self.rebuilding = rebuilding


class SimulatorFailed(HtsError):
    """A simulator raised or ended its process outside a run.

    The text is one sentence; `traceback` is the simulator's own, where it has one.
    """

    def __init__(self, sentence: str, traceback: str = "") -> None:
        super().__init__(sentence)
        self.traceback = traceback


class SettingsChanged(HtsError):
    """Global settings were changed while networks computed: what they computed meanwhile cannot be
    repeated."""

    def __init__(self, changes: Sequence[str]) -> None:
        super().__init__(
            f"{', '.join(changes)}: a thread in this process has changed that while networks may "
            "have computed, so the results would not repeat. With --actors 1 no simulator shares "
            "a process with the networks; a simulator in a thread of its own (stepping=threads) "
            "can be stepped in turn with the others (--set stepping=turns)"
        )


class RatioNotOne(HtsError):
    """The first minibatch of an update does not repeat the log-probabilities of its rollout."""

    def __init__(self, update: int, error: float, limit: float) -> None:
        super().__init__(
            f"update {update}: the ratios of its first minibatch differ from 1 by up to "
            f"{error:.3g}, where {limit:g} is allowed: the learner does not reproduce the "
            "probabilities that the actors stored. The rollout was made with other parameters than "
            "those that the update starts from, or its rows are misaligned, or rows have other "
            "bits in the learner's batches than in the actors' (more --set shards make them "
            "smaller)"
        )


class WrongUsage(HtsError):
    """The user can mend this by typing something else."""


class BadConfig(WrongUsage):
    """A configuration that cannot be run; `problems` holds one sentence for each violation."""

    def __init__(self, problems: Sequence[str]) -> None:
        assert problems, "a bad configuration has at least one problem"
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))
