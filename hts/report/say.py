"""What is said to the person at the terminal while a run goes on, or to the program that reads it.

`say` is for what has to be heard: a problem, and how it ended. `mention` is for the rest, which
`--quiet` leaves out. `explain` is for details, which only `--verbose` shows.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO

_FULL = (errno.ENOSPC, errno.EDQUOT)


class _Voice:
    """How this process speaks."""

    is_quiet = False
    is_json = False
    is_verbose = False


def speak(*, quiet: bool = False, as_json: bool = False) -> None:
    """From here on only what has to be heard, or everything as JSON on standard output."""
    _Voice.is_quiet, _Voice.is_json = quiet, as_json


def be_verbose() -> None:
    """From here on details too."""
    _Voice.is_verbose = True


def say(line: str, **facts: int) -> None:
    """Print one line; a program that reads JSON gets `facts` beside it.

    Where the terminal is a file on a full disk, the run goes on without it.
    """
    if _Voice.is_json:
        tell_program("message", {"text": line, **facts})
    else:
        _print(line, sys.stderr)


def mention(line: str) -> None:
    """One line that can be done without."""
    if not _Voice.is_quiet:
        say(line)


def explain(line: str) -> None:
    """Print one line of detail."""
    if _Voice.is_verbose:
        mention(line)


def tell_program(kind: str, said: Mapping[str, Any]) -> None:
    """One JSON object in a line of standard output."""
    _print(json.dumps({"kind": kind, **said}), sys.stdout)


def _print(line: str, file: TextIO) -> None:
    try:
        print(line, file=file, flush=True)
    except OSError as error:
        if error.errno not in _FULL:
            raise
