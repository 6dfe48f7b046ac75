"""What is said to the person at the terminal while a run goes on."""

from __future__ import annotations

import errno
import sys

_FULL = (errno.ENOSPC, errno.EDQUOT)


def say(line: str) -> None:
    """One line. Where the terminal is a file on a full disk, the run goes on without it."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError as error:
        if error.errno not in _FULL:
            raise
