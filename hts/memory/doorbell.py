"""A doorbell: the one thing that a process waits at.

It counts (an eventfd), so that a ring before the wait is never lost: whoever changes something in
shared memory rings after it, and whoever is woken looks at everything it may be waiting for. It
has no name: the kernel forgets it with the last process that holds it. Nobody polls.
"""

from __future__ import annotations

import os
import weakref
from multiprocessing.reduction import DupFd
from typing import Any


class Doorbell:
    """Rung by many, waited for by one."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC) if descriptor is None else descriptor
        self._let_go = weakref.finalize(self, os.close, self._descriptor)

    def ring(self) -> None:
        os.eventfd_write(self._descriptor, 1)

    def wait(self) -> None:
        """Until it has been rung since the last time."""
        os.eventfd_read(self._descriptor)

    def fileno(self) -> int:
        """For whoever waits for more than this."""
        return self._descriptor

    def close(self) -> None:
        self._let_go()

    def __reduce__(self) -> tuple[Any, ...]:
        """How it reaches a child that is being born."""
        return _attach, (DupFd(self._descriptor),)


def _attach(descriptor: Any) -> Doorbell:
    return Doorbell(descriptor.detach())
