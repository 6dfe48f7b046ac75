"""A simulator that dials in, in a process of its own: the reference one, with a flaw if asked for.

python -m tests.fakes.dialled ADDRESS [JSON of How]
"""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from hts.remote.client import Connection, Offer, Seat, serve
from hts_envs.contract import Array
from hts_envs.reference import ReferenceWorld


@dataclasses.dataclass(frozen=True)
class How:
    """What it offers, and what happens to it."""

    seats: int = 1
    rows: int | None = None
    agents: int = 1
    replayable: bool = True
    hidden: bool = False  # what it shows follows from all that this process has ever done
    takes: float = 0.0  # seconds of each step
    stays_at: tuple[str, int] | None = None  # in this "step" or "begin" of its life, for ever
    raises_from: int | None = None  # from this step of its life on
    keys: str | None = None


class Life:
    """What one process does over all its seats."""

    def __init__(self, how: How) -> None:
        self.how = how
        self.counts = {"step": 0, "begin": 0}

    def counts_one(self, what: str) -> int:
        """Once more; it may be the last time."""
        self.counts[what] += 1
        if self.how.stays_at == (what, self.counts[what]):
            print(what, flush=True)
            signal.pause()
        if what == "step":
            time.sleep(self.how.takes)
            if self.how.raises_from is not None and self.counts[what] >= self.how.raises_from:
                print("raises", flush=True)
                raise RuntimeError("the engine is on fire")
        return self.counts[what]


class Simulator:
    """One seat's worlds: one, or as many as it has rows."""

    def __init__(self, life: Life, seat: Seat) -> None:
        self._life = life
        self._seat = seat
        self._worlds = [ReferenceWorld(life.how.agents) for _ in seat.replicas]

    def reset(self, *_: Any) -> Any:
        self._life.counts_one("begin")
        rows = zip(self._seat.rows, self._seat.seeds, strict=True)
        return _stacked([self._worlds[row].reset(int(seed)) for row, seed in rows])

    def step(self, action: Any) -> tuple[Any, ...]:
        count = self._life.counts_one("step")
        actions = np.reshape(action, (len(self._worlds), -1))
        steps = [world.step(each) for world, each in zip(self._worlds, actions, strict=True)]
        seen = _stacked([step.observation for step in steps])
        if self._life.how.hidden:
            seen["values"] += count
        ends = [[step.terminated for step in steps], [step.truncated for step in steps]]
        return seen, np.stack([step.reward for step in steps]), *ends


def _stacked(seen: list[Any]) -> dict[str, Array]:
    return {name: np.stack([each[name] for each in seen]) for name in seen[0]}


def main() -> None:
    """Dial in, and go on until the run is over."""
    address, given = sys.argv[1], json.loads(sys.argv[2])
    if given.get("stays_at"):
        given["stays_at"] = tuple(given["stays_at"])
    how = How(**given)
    life = Life(how)
    spaces = ReferenceWorld(how.agents).spaces
    offer = Offer(spaces, seats=how.seats, rows=how.rows, replayable=how.replayable)
    keys = None if how.keys is None else Path(how.keys)
    with Connection(address, offer, keys=keys) as connection:
        serve(connection, lambda seat: Simulator(life, seat))


if __name__ == "__main__":
    main()
