"""Sentences for people about simulators that dial in: never too many of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from hts.remote.block import RemoteBlock

_AT_ONCE = 20.0
_EACH_SECOND = 0.5


class Notes:
    """Passes sentences on, while there are not too many."""

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note
        self._room = _AT_ONCE
        self._left_out = 0
        self._since = time.monotonic()

    def say(self, sentence: str) -> None:
        """Say this, or count that it was not said."""
        now = time.monotonic()
        self._room = min(_AT_ONCE, self._room + _EACH_SECOND * (now - self._since))
        self._since = now
        if self._room < 1:
            self._left_out += 1
            return
        self._room -= 1
        self.last(sentence)

    def last(self, sentence: str, **facts: int) -> None:
        """Say this, however much was said before; `facts` are the same for a program."""
        more = (
            f" ({self._left_out:,} lines before this one were left out)" if self._left_out else ""
        )
        self._left_out = 0
        self._note(f"{sentence}{more}", **facts)


class SeatStatus:
    """Tells how many seats are filled, whenever that has changed.

    A seat is filled while a simulator holds it. A run waits until all of its seats are.
    """

    def __init__(self, notes: Notes, blocks: Sequence[RemoteBlock], *, began: bool) -> None:
        self._notes = notes
        self._blocks = blocks
        self._told = len(blocks) if began else 0
        self._was_complete = began

    def tell(self) -> None:
        """Say one sentence if the number has changed since the last one."""
        free = [block for block in self._blocks if block.holder is None]
        count = len(self._blocks)
        filled = count - len(free)
        if filled == self._told:
            return
        self._told = filled
        sentence = f"{filled} of {count} seats filled"
        if free:
            sentence += f"; no simulator for {named(free)}{self._advice(filled)}"
        self._was_complete |= not free
        self._notes.last(sentence, seats_filled=filled, seats=count)

    def _advice(self, filled: int) -> str:
        """Return what to do where the run never had all of its simulators."""
        if self._was_complete or not filled:
            return ""
        first = self._blocks[0].replicas
        option = "--set remote=" if first.start else "--envs "
        more = len(self._blocks) - filled
        return f": start {more} more, or restart with {option}{filled * len(first)}"


def named(blocks: Iterable[RemoteBlock]) -> str:
    """Return the names of all replicas of these blocks, consecutive ones as one range."""
    runs: list[range] = []
    for replicas in sorted((block.replicas for block in blocks), key=lambda each: each.start):
        if runs and runs[-1].stop == replicas.start:
            runs[-1] = range(runs[-1].start, replicas.stop)
        else:
            runs.append(replicas)
    return ", ".join(map(numbered, runs)) or "no replicas"


def numbered(replicas: range) -> str:
    """Return the name of consecutive replicas."""
    if len(replicas) == 1:
        return f"replica {replicas.start}"
    return f"replicas {replicas.start} to {replicas.stop - 1}"
