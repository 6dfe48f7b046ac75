"""A gradient, shard after shard, on one thread or several.

Each shard's gradient is computed by itself, on one thread, and shards are added in their order:
((g0 + g1) + g2) + ... So it does not matter how many workers share them. They are worked in waves
of one shard for each worker:

    the caller's thread    g0 onto 0    + g1    g2 onto that    + g3    ...
    a second worker        g1                   g3

The caller's thread lets autograd add its shard to the sum in place; every other worker has
networks on the same parameters with a gradient of their own, which is added when its turn has come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Generic, TypeVar

from hts.models.flat import Flat

Nets = TypeVar("Nets", bound=Flat[Any])
Shard = TypeVar("Shard")
Found = TypeVar("Found")


class Sharded(Generic[Nets]):
    """The networks, and twins of them for the other threads."""

    def __init__(self, networks: Nets, workers: int) -> None:
        self._networks = networks
        self._twins = [networks.twin() for _ in range(workers - 1)]
        self._threads = ThreadPoolExecutor(workers - 1, "learner") if workers > 1 else None
        self._is_first = True

    def add(self, shards: Sequence[Shard], backward: Callable[[Nets, Shard], Found]) -> list[Found]:
        """Add what `backward` adds to a gradient for each shard; what it found, in their order."""
        workers = len(self._twins) + 1
        found: list[Found] = []
        for begin in range(0, len(shards), workers):
            found += self._wave(shards[begin : begin + workers], backward)
        return found

    def _wave(
        self, shards: Sequence[Shard], backward: Callable[[Nets, Shard], Found]
    ) -> list[Found]:
        """One shard for each worker; an error in any of them is raised when all have ended."""
        beside = list(zip(self._twins, shards[1:], strict=False))
        if self._threads is None or not beside:
            return [backward(self._networks, shards[0])]

        def alone(twin: Nets, shard: Shard) -> Found:
            twin.gradient.zero_()
            return backward(twin, shard)

        found: list[Found] = []
        if self._is_first:  # what libraries set up in first calls, no threads race for
            found.append(backward(self._networks, shards[0]))
        running = []
        try:
            for twin, shard in beside:
                running.append(self._threads.submit(alone, twin, shard))
                if self._is_first:
                    wait(running)
            if not found:
                found.append(backward(self._networks, shards[0]))
        finally:
            wait(running)
        self._is_first = False
        for (twin, _), future in zip(beside, running, strict=True):
            found.append(future.result())
            self._networks.gradient.add_(twin.gradient)
        return found

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown()
