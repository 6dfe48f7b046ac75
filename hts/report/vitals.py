"""How the machine of a run is doing: who works, who waits for whom, and what is left of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WORKED, LEARNER, ACTORS, EXECUTORS, SIMULATORS = (
    "worked",
    "waited for the learner",
    "for actors",
    "for executors",
    "for simulators",
)
"""The columns of `hts.machine.TIMES`."""

_NAMES = {
    WORKED: "working",
    LEARNER: "for_learner",
    ACTORS: "for_actors",
    EXECUTORS: "for_executors",
    SIMULATORS: "for_simulators",
}


_SINGLE = {"learner": "learner", "P-learner": "p_learner"}
"""Of which a run has one."""


@dataclass(frozen=True)
class Kind:
    """All processes of one role: the shares of their time, by column; they add up to one."""

    role: str
    count: int
    shares: Mapping[str, float] = field(default_factory=dict)

    def share(self, column: str) -> float:
        """Of what they have told so far."""
        return self.shares.get(column, 0.0)

    @property
    def name(self) -> str:
        """In the plural, where there are several."""
        return self.role if self.count == 1 else f"{self.role}s"


@dataclass(frozen=True)
class Setting:
    """What of a run's configuration says which change is possible."""

    replicas: int
    shards: int  # parts of a minibatch: so many learner threads find work at the most
    learners: int = 1
    schedule: str = "hts"
    barrier: bool = False
    threads: bool = False
    batched: bool = False
    remote: bool = False
    replayed: bool = False  # learnt from a replay
    device: str = "cpu"


@dataclass(frozen=True)
class Vitals:
    """Everything that is seen from outside, over the latest seconds."""

    setting: Setting
    kinds: tuple[Kind, ...] = ()  # none where one process does everything
    cores: int = 1
    busy: float = 0.0  # cores that compute, for whomever
    others: float = 0.0  # of these, for other programs
    memory: int = 0  # bytes
    replaced: int = 0
    taken: int = 0  # environment steps, unfinished rollouts included
    filled: tuple[int, int] | None = None  # seats with a simulator that dials in, and all seats

    def kind(self, role: str) -> Kind:
        """One of them; nobody's, where there is none."""
        return next((kind for kind in self.kinds if kind.role == role), Kind(role, 0))

    def metrics(self) -> dict[str, float]:
        """The names under `machine/`."""
        found: dict[str, float] = {}
        for kind in self.kinds:
            role = _SINGLE.get(kind.role, f"{kind.role}s")
            for column, share in kind.shares.items():
                if share or column == WORKED:
                    found[f"machine/{role}_{_NAMES[column]}"] = round(share, 4)
        found["machine/cores_busy"] = round(self.busy, 3)
        found["machine/replaced"] = self.replaced
        found["machine/memory"] = round(self.memory / 1e6, 1)
        return found
