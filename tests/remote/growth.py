"""Whether memory grows with the messages that come: a hundred bytes of each would be found.

Small objects of Python are counted exactly, and so a single one for every few messages shows. What
is taken elsewhere shows in the memory of the process, which moves a little by itself.
"""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass
from pathlib import Path

EACH = 50
"""Bytes of a message that may stay."""
AT_ONCE = 8 << 20
"""Bytes that a process takes now and then, and keeps for the next time."""
_OBJECTS = 0.02  # of each message
_ONCE = 200  # objects
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


@dataclass(frozen=True)
class Growth:
    """What has come since it was warm, and what of it has stayed."""

    messages: int
    size: int
    objects: int
    at_once: int = AT_ONCE

    @property
    def leaks(self) -> bool:
        return (
            self.size > self.at_once + EACH * self.messages
            or self.objects > _ONCE + _OBJECTS * self.messages
        )

    def __str__(self) -> str:
        return (
            f"{self.size / 2**20:.1f} MiB and {self.objects:,} objects in {self.messages:,} "
            f"messages; a leak: {self.leaks}"
        )


class Held:
    """What this process holds now."""

    def __init__(self) -> None:
        gc.collect()
        self._size, self._objects = resident(), sys.getallocatedblocks()

    def since(self, before: Held, messages: int, at_once: int = AT_ONCE) -> Growth:
        """How it has grown."""
        size, objects = self._size - before._size, self._objects - before._objects
        return Growth(messages, size, objects, at_once)
