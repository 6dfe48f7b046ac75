"""One thread for each block: for simulators whose step waits without using the processor.

A thread whose step is over may advance the executor by itself: it asks, is answered and goes on
without another one being woken, which takes as long as a small network does. One at a time does,
and the others, whose answers would have to wait for the processor anyway, wait for their turn.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from types import TracebackType

from hts.memory.doorbell import Doorbell
from hts.roles.executor import Stepping

_PR_SET_TIMERSLACK = 29
_SLACK = 1_000  # nanoseconds that the kernel may add to a wait; its own choice is fifty times that


_Given = tuple[Callable[[], None], bool]
"""What a thread runs, and whether that is its block's step."""


class Turns:
    """Threads that advance an executor one at a time, and none of them behind one that failed."""

    def __init__(self, advance: Callable[[], None]) -> None:
        self._advance = advance
        self._turn = threading.Lock()
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None

    def take(self) -> None:
        """Wait for a turn, and advance; raises what was raised in any turn."""
        with self._turn:
            if self._error is not None:
                raise self._error.with_traceback(self._trace)
            try:
                self._advance()
            except BaseException as error:
                self._error, self._trace = error, error.__traceback__
                raise


class Threads(Stepping):
    """Runs what is started for a place in that place's thread, which rings when it is over, or
    takes a turn."""

    beside_answers = True

    def __init__(self, places: int, bell: Doorbell) -> None:
        self._bell = bell
        self._go_on: Callable[[], None] = bell.ring
        self._over = [False] * places
        self._error: BaseException | None = None
        self._given: list[SimpleQueue[_Given]] = []
        for place in range(places):
            self._given.append(SimpleQueue())
            name = f"block {place}"
            threading.Thread(target=self._run, args=(place,), name=name, daemon=True).start()

    def start(self, place: int, step: Callable[[], None]) -> None:
        """Have the place's thread run this."""
        self._over[place] = False
        self._given[place].put((step, True))

    def take_turns(self, turn: Callable[[], None]) -> None:
        """From now on, threads whose step is over do this."""
        self._go_on = turn

    def together(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Run these, one in each place's thread, and return behind the last of them."""
        errors: SimpleQueue[BaseException | None] = SimpleQueue()

        def run(job: Callable[[], None]) -> None:
            try:
                job()
            except BaseException as error:
                errors.put(error)
            else:
                errors.put(None)

        for place, job in enumerate(jobs):
            self._given[place].put((partial(run, job), False))
        for error in [errors.get() for _ in jobs]:
            if error is not None:
                raise error

    def is_over(self, place: int) -> bool:
        """It has run; raises what any of the threads raised."""
        if self._error is not None:
            raise self._error
        return self._over[place]

    def _run(self, place: int) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SLACK)
        given = self._given[place]
        while True:
            step, is_step = given.get()
            if not is_step:
                step()
                continue
            try:
                step()
            except BaseException as error:
                self._error = error
            self._over[place] = True
            try:
                self._go_on()
            except BaseException:  # whoever waits at the bell will have it raised once more
                self._bell.ring()
                return
