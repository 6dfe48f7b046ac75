"""The cases in their order: each one tried, and told in a line."""

from __future__ import annotations

import argparse
import signal
import sys
import textwrap
import time
from collections.abc import Sequence

from hts.errors import WrongUsage

from . import handshake, runs, trouble, turns, weather
from .case import CASES, Case
from .command import Command
from .said import Wrong
from .side import Trial

PASSED, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
_PARTS = [part.__name__ for part in (handshake, turns, trouble, weather, runs)]


def ordered() -> dict[str, Case]:
    """The cases, from what comes first in a client's life to whole runs."""
    return dict(sorted(CASES.items(), key=lambda each: _PARTS.index(each[1].check.__module__)))


def main(about: str, typed: Sequence[str]) -> int:
    """The command `tools/conformance`."""
    given = _parser(about).parse_args(typed)
    if not given.list and not given.command:
        _parser(about).error("name the client's command, or --list")
    if given.list:
        for each in ordered().values():
            print(f"{each.name:20} {each.promise}")
        return PASSED
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nobody is left behind
    try:
        chosen, trial = _chosen(given.only, given.leave), Trial(Command(given.command))
        failed = [each.name for each in chosen if not _passes(each, trial)]
    except WrongUsage as error:
        print(f"conformance: {error}", file=sys.stderr)
        return WRONG_USAGE
    names = f" ({', '.join(failed)})" if failed else ""
    _say(
        f"cases: {len(chosen)} of {len(CASES)}, passed: {len(chosen) - len(failed)}, "
        f"failed: {len(failed)}{names}"
    )
    return FAILED if failed else PASSED


def _parser(about: str) -> argparse.ArgumentParser:
    summary, _, rest = about.partition("\n\n")
    made = argparse.ArgumentParser(
        prog="tools/conformance",
        usage="tools/conformance [--list] [--only NAME] [--except NAME] COMMAND...",
        description=f"{summary}\n\n{rest}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--list", action="store_true", help="what cases there are, and end")
    made.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="this case; may be repeated"
    )
    made.add_argument(
        "--except",
        metavar="NAME",
        dest="leave",
        action="append",
        default=[],
        help="all but this case; may be repeated",
    )
    made.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the client")
    return made


def _chosen(only: Sequence[str], leave: Sequence[str]) -> list[Case]:
    for name in (*only, *leave):
        if name not in CASES:
            raise WrongUsage(f"there is no case {name!r}: they are {', '.join(ordered())}")
    return [
        each for name, each in ordered().items() if (not only or name in only) and name not in leave
    ]


def _passes(this: Case, trial: Trial) -> bool:
    """One line for it; more where it fails."""
    since = time.monotonic()
    try:
        this.check(trial)
    except Wrong as wrong:
        _say(f"FAILED  {this.name:20} {time.monotonic() - since:4.1f} s  {wrong}")
        _detail("the client", this.promise)
        _detail("expected", wrong.expected)
        _detail("came", wrong.came)
        for note in getattr(wrong, "__notes__", ()):
            _say(textwrap.indent(note, " " * 8))
        return False
    _say(f"ok      {this.name:20} {time.monotonic() - since:4.1f} s  {this.promise}")
    return True


def _detail(name: str, value: object) -> None:
    if value is not None:
        _say(textwrap.indent(f"{name + ':':12}{value}", " " * 8))


def _say(line: str) -> None:
    print(line, flush=True)
