"""The commands, a module for each.

A command imports this package before anything else, so that Ctrl-C ends it with exit code 130 and
without a traceback from here on. Until a command calls `hts.signals.listen`, it has begun nothing
that would have to be closed, and ends at once: a KeyboardInterrupt inside an import is lost, or
becomes another error. `tools/` start commands with SIGINT blocked, which covers Python's own start.
"""

import os
import signal
import sys
from types import FrameType

IS_COMMAND = sys.argv[0] == "-m" or os.path.basename(sys.argv[0]).startswith("hts-")
"""Whether this process is a command; `-m` stands there while `python -m` looks for its module."""


def _end_at_once(_: int, __: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end_at_once)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
