"""The command of a client, and the process that it becomes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from hts.errors import WrongUsage

from .said import Wrong

_PLACE = re.compile(r"\{([a-z-]+)\}")
_TAIL = 12
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
SECONDS_TO_END = 5.0
"""A client that has nothing to do any more ends within them."""


@dataclass(frozen=True)
class Wishes:
    """What a client is to offer."""

    seats: int = 1
    rows: int = 1
    agents: int = 1
    replayable: bool = True
    keys: Path | None = None


class Command:
    """What was typed. Without places of its own, the usual arguments stand behind it."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._places = {place for word in words for place in _PLACE.findall(word)}
        unknown = self._places - {*_values("", Wishes()), "keys", "not-replayable"}
        if unknown or (self._places and "address" not in self._places):
            told = f"there is no {{{min(unknown)}}}" if unknown else "there is no {address} in it"
            raise WrongUsage(f"the client's command: {told}")

    def typed(self, address: str, wishes: Wishes) -> list[str]:
        """Its words, for these wishes."""
        values = _values(address, wishes)
        if not self._places:
            usual = [address]
            for name in ("seats", "rows", "agents"):
                usual += [f"--{name}", values[name]]
            usual += [] if wishes.replayable else ["--not-replayable"]
            usual += [] if wishes.keys is None else ["--keys", str(wishes.keys)]
            return [*self._words, *usual]
        values |= {} if wishes.replayable else {"not-replayable": "--not-replayable"}
        values |= {} if wishes.keys is None else {"keys": str(wishes.keys)}
        usual_values = _values(address, Wishes())
        for name, value in values.items():
            if name not in self._places and usual_values.get(name) != value:
                raise Wrong(f"this needs {{{name}}} somewhere in the client's command")
        return [
            _PLACE.sub(lambda place: values[place[1]], word)
            for word in self._words
            if set(_PLACE.findall(word)) <= set(values)
        ]


def _values(address: str, wishes: Wishes) -> dict[str, str]:
    return {
        "address": address,
        "seats": str(wishes.seats),
        "rows": str(wishes.rows),
        "agents": str(wishes.agents),
    }


def ends_with_us() -> None:
    """No client outlives whoever tries it, however that ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A client that runs; whatever it has started is ended with it."""

    def __init__(self, typed: Sequence[str]) -> None:
        with contextlib.ExitStack() as files:
            self._out, self._errors = (
                files.enter_context(tempfile.TemporaryFile()) for _ in ("stdout", "stderr")
            )
            try:
                self._process = subprocess.Popen(
                    typed,
                    stdin=subprocess.DEVNULL,
                    stdout=self._out,
                    stderr=self._errors,
                    start_new_session=True,
                    preexec_fn=ends_with_us,
                )
            except OSError as error:
                raise WrongUsage(f"{typed[0]}: cannot be started: {error.strerror}") from None
            self._files = files.pop_all()

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def ended(self, seconds: float) -> int | None:
        """The same, after waiting for so long at the most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def kill(self) -> None:
        """SIGKILL, to all of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def errors(self) -> str:
        """What it has written to stderr."""
        return _text(self._errors)

    @property
    def tail(self) -> str:
        """The last lines that it has written."""
        lines = [*_text(self._out).splitlines(), *self.errors.splitlines()]
        return "\n".join(lines[-_TAIL:])

    def close(self) -> None:
        self.kill()
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if isinstance(error, Wrong) and self.tail:
            error.add_note(f"the client has written:\n{self.tail}")
        self.close()

    def ends(self, code: int, why: str, *, seconds: float = SECONDS_TO_END) -> None:
        """Wrong where it does not end by itself, with this exit code."""
        found = self.ended(seconds)
        came = f"it runs, {seconds:g} s later" if found is None else f"exit code {found}"
        if found != code:
            raise Wrong(f"{why}: the client ends", expected=f"exit code {code}", came=came)


def _text(file: IO[bytes]) -> str:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")
