"""Simulators that offer `reset` and `step`: one for each seat, stepped when it is the seat's turn.

A simulator that raises is told to the run and dropped; whoever is given its seat next, here or
elsewhere, begins with a new one.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from hts.remote.line import LOG
from hts.remote.talk import Seat
from hts_envs.contract import Array, BatchedWorld, Observation, Spaces, World


class Simulator(Protocol):
    """One replica: observation; and observation, reward, terminated, truncated, perhaps facts."""

    def reset(self, seed: int) -> Any: ...

    def step(self, action: Any) -> tuple[Any, ...]: ...


class Batch(Protocol):
    """The replicas of a seat together: `reset` begins an episode in these rows, and shows them."""

    def reset(self, rows: Array, seeds: Array) -> Any: ...

    def step(self, action: Any) -> tuple[Any, ...]: ...


Make: TypeAlias = Callable[[Seat], Any]
"""Builds the simulator of a seat: a Simulator, or a Batch where the seats have rows."""


class Served:
    """The simulators of one connection's seats."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._simulators: dict[Seat, Any] = {}

    def move(self, seat: Seat) -> None:
        """Take the seat's turn, whatever becomes of its simulator."""
        try:
            self._take_turn(seat)
        except Exception as error:
            LOG.exception("%s: the simulator raised %s", seat, said(error))
            seat.fail(traceback.format_exc())
        self.sweep()

    def _take_turn(self, seat: Seat) -> None:
        if seat not in self._simulators:
            self._simulators[seat] = self._make(seat)
        simulator = self._simulators[seat]
        if seat.action is not None:
            seat.tell(*results(simulator.step(seat.action)))
        elif seat.single:
            seat.begin(simulator.reset(seat.seed))
        else:
            seat.begin(simulator.reset(seat.rows, seat.seeds))

    def sweep(self) -> None:
        """Give back the simulators whose seats are gone."""
        for seat in [seat for seat in self._simulators if seat.gone]:
            self._close(seat)

    def close(self) -> None:
        """Give back all of them."""
        for seat in list(self._simulators):
            self._close(seat)

    def _close(self, seat: Seat) -> None:
        simulator = self._simulators.pop(seat)
        try:
            getattr(simulator, "close", lambda: None)()
        except Exception as error:
            LOG.exception("%s: closing the simulator raised %s", seat, said(error))


def results(step: Any) -> tuple[Any, ...]:
    """What a step returned, if that is what it has to be."""
    if isinstance(step, tuple) and len(step) in (4, 5):
        return step
    found = f"{len(step)} values" if isinstance(step, tuple) else f"a {type(step).__name__}"
    raise TypeError(
        "step returns observation, reward, terminated, truncated and, if anything more is known, "
        f"facts: a tuple of four or five, not {found}"
    )


def said(error: BaseException) -> str:
    """An error in a line."""
    return traceback.format_exception_only(error)[-1].strip()


class OfWorld:
    """A world of this package as a simulator."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._actions = _Actions(world.spaces, ())

    def reset(self, seed: int) -> Any:
        return self._world.reset(seed)

    def step(self, action: Any) -> tuple[Any, ...]:
        return self._world.step(self._actions.whole(action))

    def close(self) -> None:
        self._world.close()


class OfWorlds:
    """Several of them, stepped one after the other, as one batch."""

    def __init__(self, worlds: Sequence[World]) -> None:
        self._simulators = [OfWorld(world) for world in worlds]

    def reset(self, rows: Array, seeds: Array) -> Any:
        pairs = zip(rows, seeds, strict=True)
        return _stacked([self._simulators[row].reset(int(seed)) for row, seed in pairs])

    def step(self, action: Any) -> tuple[Any, ...]:
        found = [one.step(each) for one, each in zip(self._simulators, action, strict=True)]
        seen, rewards, terminated, truncated, facts = zip(*found, strict=True)
        ends = np.array(terminated), np.array(truncated)
        told = {row: each for row, each in enumerate(facts) if ends[0][row] or ends[1][row]}
        return _stacked(seen), np.stack(rewards), *ends, told

    def close(self) -> None:
        for simulator in self._simulators:
            simulator.close()


class OfBatchedWorld:
    """A batched one."""

    def __init__(self, world: BatchedWorld) -> None:
        self._world = world
        self._actions = _Actions(world.spaces, (world.replicas,))

    def reset(self, rows: Array, seeds: Array) -> Any:
        return self._world.reset(rows, seeds)

    def step(self, action: Any) -> tuple[Any, ...]:
        result = self._world.step(self._actions.whole(action))
        ended = np.flatnonzero(result.terminated | result.truncated)
        facts = {int(row): _row(result.facts, int(row)) for row in ended}
        return result.observation, result.reward, result.terminated, result.truncated, facts

    def close(self) -> None:
        self._world.close()


def _stacked(seen: Sequence[Observation]) -> Observation:
    return {name: np.stack([each[name] for each in seen]) for name in seen[0]}


class _Actions:
    """A seat's actions with all the axes that a world wants."""

    def __init__(self, spaces: Spaces, rows: tuple[int, ...]) -> None:
        self._dtype = np.dtype(spaces.action.dtype)
        self._shape = (*rows, spaces.agents, *spaces.action.shape)

    def whole(self, action: Any) -> Array:
        return np.asarray(action, self._dtype).reshape(self._shape)


def _row(facts: Mapping[str, Array], row: int) -> dict[str, float]:
    return {name: float(array[row]) for name, array in facts.items()}
