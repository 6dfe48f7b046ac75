"""What a client's seat has to say: the reference simulator in Python beside it, in the same turns.

A `Model` is a seat as the run sees it. Each of its turns is an `Order`: the message that asks for
it, and the `stand` that has to come back, byte for byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hts.remote import wire
from hts_envs.contract import Array, Observation, Spaces, Step
from hts_envs.reference import ReferenceWorld, mix

from .said import Message, Wrong, hexed, same

TERMINATED, TRUNCATED, BOTH = 1, 2, 3


@dataclass(frozen=True)
class Expected:
    """A `stand`: named frames, and the facts of the rows that ended."""

    frames: Mapping[str, Array]
    facts: Mapping[int, Mapping[str, float]]


@dataclass(frozen=True)
class Order:
    """An `act`, and what has to come of it."""

    seat: int
    turn: int
    begins: list[int]
    action: bytes
    seeds: bytes
    expected: Expected

    @property
    def frames(self) -> list[bytes]:
        head = wire.pack("act", self.seat, self.turn, self.begins)
        return [head, self.action, self.seeds]

    def check(self, said: Message) -> None:
        """Wrong where it is not what was to be said."""
        if said.kind != "stand":
            raise Wrong("the answer to an act is a stand", expected=f"stand {self}", came=said)
        same(said.values[:2], [self.seat, self.turn], "it says stand with the seat and turn asked")
        names = list(self.expected.frames)
        if len(said.frames) != len(names):
            raise Wrong(
                f"a stand at {self} has other frames (final observations: only of ends 2)",
                expected=f"{len(names)}: {', '.join(names)}",
                came=f"{len(said.frames)}, of {[len(frame) for frame in said.frames]} bytes",
            )
        for raw, (name, array) in zip(said.frames, self.expected.frames.items(), strict=True):
            _compare(raw, array, f"{name} at {self}")
        self._check_facts(said.values[2])

    def _check_facts(self, facts: Mapping[Any, Any]) -> None:
        wanted = self.expected.facts
        rows = sorted(facts, key=str)
        same(rows, sorted(wanted), f"facts at {self} are a map from the rows that ended, ints")
        for row, values in wanted.items():
            found = facts[row] if isinstance(facts[row], dict) else {}
            for name, value in values.items():
                same(found.get(name), value, f"the fact {name!r} of row {row} at {self}")

    def __str__(self) -> str:
        return f"seat {self.seat}, turn {self.turn}"


def _compare(raw: bytes, array: Array, what: str) -> None:
    wanted = array.tobytes()
    if raw == wanted:
        return
    if len(raw) != len(wanted):
        raise Wrong(
            f"{what}: a frame of another size",
            expected=f"{len(wanted)} bytes: {array.dtype.name} of shape {array.shape}",
            came=f"{len(raw)} bytes: {hexed(raw)}",
        )
    found = np.frombuffer(raw, array.dtype).reshape(array.shape)
    place = tuple(int(at[0]) for at in np.nonzero(found != array)) or (0,)
    at = f"[{', '.join(map(str, place))}]"
    raise Wrong(
        f"{what}: other numbers, first at {at}",
        expected=f"{array[place]} ({hexed(wanted)})",
        came=f"{found[place]} ({hexed(raw)})",
    )


class Model:
    """A seat, and the simulators that its replicas should be."""

    def __init__(self, number: int, rows: int = 1, agents: int = 1) -> None:
        self.number = number
        self.rows = rows
        self.turn = -1
        self._worlds = [ReferenceWorld(agents) for _ in range(rows)]
        self._agents = agents
        self._seen: list[Observation] = [{} for _ in range(rows)]
        self._age = [0] * rows
        self._seeds = (mix(number * 1_000_003 + count) >> 1 for count in itertools.count(1))

    def fresh(self) -> list[int]:
        """Seeds that were not used before, for each row."""
        return list(itertools.islice(self._seeds, self.rows))

    def begin(self, turn: int, seeds: Sequence[int] | None = None) -> Order:
        """Every row begins."""
        given = self.fresh() if seeds is None else list(seeds)
        for row in range(self.rows):
            self._reset(row, given[row])
        self.turn = turn
        none = Step({}, np.zeros(self._agents, np.float32), False, False, {})
        return self._order(list(range(self.rows)), b"", given, [none] * self.rows)

    def step(self, seeds: Sequence[int] | None = None, begins: Sequence[int] = ()) -> Order:
        """The next turn: each row takes the action of its age (0, 1, 2, 0, ...)."""
        given = self.fresh() if seeds is None else list(seeds)
        action = np.array([actions(age, self._agents) for age in self._age], np.int64)
        steps = [world.step(each) for world, each in zip(self._worlds, action, strict=True)]
        for row, step in enumerate(steps):
            self._seen[row], self._age[row] = step.observation, self._age[row] + 1
            if row in begins:
                steps[row] = Step({}, np.zeros_like(step.reward), False, False, {})
            if row in begins or step.terminated or step.truncated:
                self._reset(row, given[row])
        self.turn += 1
        return self._order(list(begins), action.tobytes(), given, steps)

    def _reset(self, row: int, seed: int) -> None:
        self._seen[row], self._age[row] = self._worlds[row].reset(seed), 0

    def _order(
        self, begins: list[int], action: bytes, seeds: list[int], steps: Sequence[Step]
    ) -> Order:
        ends = [step.terminated * TERMINATED + step.truncated * TRUNCATED for step in steps]
        frames = {
            "reward": np.stack([step.reward for step in steps]),
            "ends": np.array(ends, np.uint8),
            **_stacked(self._seen, ""),
            **_stacked([step.observation for step in steps if ends_by_clock(step)], "final "),
        }
        facts = {row: dict(step.facts) for row, step in enumerate(steps) if step.facts}
        raw = np.array(seeds, np.uint64).tobytes()
        return Order(self.number, self.turn, begins, action, raw, Expected(frames, facts))


def _stacked(seen: Sequence[Observation], prefix: str) -> dict[str, Array]:
    names = seen[0] if seen else ()
    return {f"{prefix}{name}": np.stack([each[name] for each in seen]) for name in names}


def ends_by_clock(step: Step) -> bool:
    """It is truncated, and not terminated as well."""
    return step.truncated and not step.terminated


def actions(age: int, agents: int) -> list[int]:
    return [(age + agent) % 3 for agent in range(agents)]


def seeds_that_end(ends: int) -> Iterator[int]:
    """Seeds whose episodes end in this way, with the actions of a `Model` of one agent."""
    world = ReferenceWorld(1)
    for seed in itertools.count(1):
        world.reset(seed)
        for age in itertools.count():
            step = world.step(np.array(actions(age, 1)))
            if step.terminated or step.truncated:
                break
        if step.terminated * TERMINATED + step.truncated * TRUNCATED == ends:
            yield seed


def spaces(agents: int) -> Spaces:
    return ReferenceWorld(agents).spaces
