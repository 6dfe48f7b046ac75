"""A client of the protocol: the reference simulator over the Python client, as an example.

python -m tests.remote.reference_client ADDRESS [--seats N] [--rows N] [--agents N]
    [--not-replayable] [--keys FOLDER]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hts.remote.client import Connection, Offer, Refused, Seat, serve
from hts_envs.contract import Array, Observation
from hts_envs.reference import ReferenceWorld

REFUSED = 3


class One:
    """A seat's only replica."""

    def __init__(self, agents: int) -> None:
        self._world = ReferenceWorld(agents)

    def reset(self, seed: int) -> Observation:
        return self._world.reset(seed)

    def step(self, action: Any) -> tuple[Any, ...]:
        return self._world.step(np.atleast_1d(action))[:4]  # what an episode adds up to, it counts


class Several:
    """A seat's replicas, which begin episodes each at its time."""

    def __init__(self, seat: Seat, agents: int) -> None:
        self._worlds = [ReferenceWorld(agents) for _ in seat.replicas]

    def reset(self, rows: Array, seeds: Array) -> Observation:
        begun = zip(rows, seeds, strict=True)
        return _stacked([self._worlds[row].reset(int(seed)) for row, seed in begun])

    def step(self, actions: Array) -> tuple[Any, ...]:
        taken = actions.reshape(len(self._worlds), -1)
        steps = [world.step(each) for world, each in zip(self._worlds, taken, strict=True)]
        seen = _stacked([step.observation for step in steps])
        ends = ([step.terminated for step in steps], [step.truncated for step in steps])
        return seen, np.stack([step.reward for step in steps]), *ends


def _stacked(seen: list[Observation]) -> Observation:
    return {name: np.stack([each[name] for each in seen]) for name in seen[0]}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    made.add_argument("address")
    for name in ("--seats", "--rows", "--agents"):
        made.add_argument(name, type=int, default=1)
    made.add_argument("--not-replayable", action="store_true")
    made.add_argument("--keys", type=Path)
    return made


def main() -> int:
    given = parser().parse_args()
    spaces = ReferenceWorld(given.agents).spaces
    rows = given.rows if given.rows > 1 else None
    offer = Offer(spaces, given.seats, rows, not given.not_replayable)
    try:
        with Connection(given.address, offer, keys=given.keys) as connection:
            if rows is None:
                serve(connection, lambda _: One(given.agents))
            else:
                serve(connection, lambda seat: Several(seat, given.agents))
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
