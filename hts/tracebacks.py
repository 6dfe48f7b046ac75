"""Tracebacks for the author of a simulator: they begin where the simulator's own code begins."""

from __future__ import annotations

import traceback
from pathlib import Path

import hts
import hts_envs
from hts.errors import WorldFailed
from hts_envs.errors import WorldError

_OURS = tuple(f"{Path(path)}/" for package in (hts, hts_envs) for path in package.__path__)


def simulator_failure(error: BaseException) -> str:
    """Return the traceback of a simulator's error, and in its last line what happened where."""
    words = [simulator_traceback(error).rstrip(), simulator_sentence(error)]
    if words[0].endswith(words[1]):
        return words[0]
    return "\n\n".join(filter(None, words))


def simulator_traceback(error: BaseException) -> str:
    """Return the traceback of the simulator's own error, without the calls that lead to it.

    Empty where the error is ours about the simulator: then no line of its code is to blame. An
    error without any frame of a simulator that is not about one is a fault of ours, and is whole.
    """
    origin = _innermost(error)
    told = traceback.TracebackException.from_exception(origin)
    theirs = [number for number, frame in enumerate(told.stack) if not _is_ours(frame.filename)]
    if theirs:
        told.stack = traceback.StackSummary.from_list(told.stack[theirs[0] :])
    elif isinstance(origin, WorldError):
        return ""
    return "".join(told.format())


def simulator_sentence(error: BaseException) -> str:
    """Return what went wrong in one line: ours where we have one, else the simulator's own."""
    while isinstance(error, WorldFailed) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, WorldError):
        return " ".join(str(error).split())
    return traceback.format_exception_only(error)[-1].strip()


def crash_stack(text: str) -> str:
    """Return what faulthandler wrote of a crash (latest call first), down to the first of ours."""
    lines = text.rstrip().splitlines()
    ours = [number for number, line in enumerate(lines) if any(path in line for path in _OURS)]
    return "\n".join(lines[: ours[0]] if ours else lines)


def _innermost(error: BaseException) -> BaseException:
    """The first error that is not a wrapper of ours around another one."""
    while isinstance(error, (WorldFailed, WorldError)) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OURS)
