"""Sentences for people, never more of them than people can read."""

from __future__ import annotations

import time
from collections.abc import Callable

_AT_ONCE = 20.0
_EACH_SECOND = 0.5


class Notes:
    """Passes sentences on, while there are not too many."""

    def __init__(self, note: Callable[[str], None]) -> None:
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

    def last(self, sentence: str) -> None:
        """Say this, however much was said before."""
        more = (
            f" ({self._left_out:,} lines before this one were left out)" if self._left_out else ""
        )
        self._left_out = 0
        self._note(f"{sentence}{more}")
