"""A run of a world that can be repeated exactly, and what is remembered of it.

A plan says everything: which seeds the episodes get, which keys the actions come from, when an
episode that does not end is abandoned. Two runs of one plan may therefore differ only by what the
world itself does differently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hts.determinism.keys import Purpose, episode_seeds, keys
from hts.soundness.findings import Broken, last_lines
from hts.soundness.subject import Moment, Subject
from hts_envs.contract import Array
from hts_envs.errors import WorldError

KEPT_BYTES = 128 * 2**20
"""Values are kept up to this size, to be named when they differ; digests are kept of all."""


class Position(NamedTuple):
    """Step 0 is what the reset returned, step k what the k-th step returned."""

    replica: int
    episode: int
    step: int

    def __str__(self) -> str:
        replica = f"replica {self.replica}, " if self.replica else ""
        return f"{replica}episode {self.episode}, step {self.step}"


@dataclass(frozen=True)
class Plan:
    """`seed` names the actions, `world_seed` the episodes."""

    seed: int
    world_seed: int
    ticks: int
    episode_limit: int
    episodes: int
    first_episode: int = 0


@dataclass(frozen=True)
class Event:
    """One call, where each of its rows stands, and what it returned."""

    call: str
    positions: tuple[Position, ...]
    moment: Moment
    action_intact: bool = True

    def ended(self) -> list[bool]:
        """Which rows ended their episode with this call."""
        if self.moment.terminated is None or self.moment.truncated is None:
            return [False] * len(self.positions)
        return [bool(over) for over in self.moment.terminated | self.moment.truncated]

    def rows(self) -> Iterator[tuple[Position, dict[str, Array]]]:
        """Each row apart; facts belong to it where its episode ended."""
        fields = self.moment.fields()
        facts = self.moment.facts or {}
        for row, (position, over) in enumerate(zip(self.positions, self.ended(), strict=True)):
            named = {name: self._row(array, row) for name, array in fields.items()}
            if over:
                named |= {f"facts.{name}": self._row(array, row) for name, array in facts.items()}
            yield position, named

    def _row(self, array: Array, row: int) -> Array:
        whole = array.ndim == 0 or array.shape[0] != len(self.positions)
        return np.asarray(array if whole else array[row])


def play(subject: Subject, plan: Plan) -> Iterator[Event]:
    """Carry a plan out, call by call."""
    rows = np.arange(subject.replicas)
    episodes = np.full(subject.replicas, plan.first_episode)
    steps = np.zeros(subject.replicas, np.int64)
    yield reset(subject, plan, rows, episodes)
    for _ in range(plan.ticks):
        event = step(subject, plan, episodes, steps)
        steps += 1
        yield event
        over = np.array(event.ended()) | (steps >= plan.episode_limit)
        if not over.any():
            continue
        episodes[over] += 1
        steps[over] = 0
        if np.all(episodes >= plan.first_episode + plan.episodes):
            return
        yield reset(subject, plan, rows[over], episodes[over])


def reset(subject: Subject, plan: Plan, rows: Array, episodes: Array) -> Event:
    """Begin these episodes; whatever the simulator raises says where it happened."""
    positions = _positions(rows, episodes, np.zeros(len(rows), np.int64))
    try:
        moment = subject.reset(rows, episode_seeds(plan.world_seed, rows, episodes))
    except Broken:
        raise
    except Exception as error:
        raise _raised("reset", positions, error) from error
    return Event("reset", positions, moment)


def step(subject: Subject, plan: Plan, episodes: Array, steps: Array) -> Event:
    """Step all rows from `steps` to the next."""
    rows = np.arange(subject.replicas)
    action = subject.choose(keys(plan.seed, Purpose.CHECK, rows, episodes, steps))
    given = action.copy()
    positions = _positions(rows, episodes, steps + 1)
    try:
        moment = subject.step(given)
    except Broken:
        raise
    except Exception as error:
        raise _raised("step", positions, error) from error
    return Event("step", positions, moment, bool(np.array_equal(action, given)))


def _positions(rows: Array, episodes: Array, steps: Array) -> tuple[Position, ...]:
    named = zip(rows, episodes, steps, strict=True)
    return tuple(Position(int(r), int(e), int(s)) for r, e, s in named)


def _raised(call: str, positions: tuple[Position, ...], error: Exception) -> Broken:
    if isinstance(error, WorldError):
        text = f"{call} failed in {positions[0]}: {error}"
    else:
        text = f"{call} raised {type(error).__name__} in {positions[0]}: {error}"
    return Broken("raises", text, last_lines(error))


def digest(array: Array) -> str:
    """Equal for equal types, shapes and bits."""
    header = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.blake2b(array.tobytes(), digest_size=8, key=header[:64]).hexdigest()


@dataclass
class Trace:
    """What a run returned: a digest of everything, and the values themselves while they fit."""

    digests: dict[Position, dict[str, str]] = field(default_factory=dict)
    values: dict[Position, dict[str, Array]] = field(default_factory=dict)
    kept: int = 0

    def record(self, event: Event) -> None:
        for position, fields in event.rows():
            self.digests[position] = {name: digest(array) for name, array in fields.items()}
            size = sum(array.nbytes for array in fields.values())
            if self.kept + size <= KEPT_BYTES:
                self.kept += size
                self.values[position] = {name: np.array(a) for name, a in fields.items()}

    @property
    def steps(self) -> int:
        return sum(position.step > 0 for position in self.digests)

    @property
    def episodes(self) -> int:
        return sum(position.step == 0 for position in self.digests)

    def later_episode(self) -> int | None:
        """The episode of most history in every replica, or None while all are in their first."""
        last: dict[int, int] = {}
        for position in self.digests:
            last[position.replica] = max(last.get(position.replica, 0), position.episode)
        return min(last.values()) or None if last else None
