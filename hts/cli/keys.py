"""`hts-keys`: who may dial in to a run that others can reach."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hts.cli import shell
from hts.errors import WrongUsage
from hts.remote.keys import Keys

DESCRIPTION = """\
Make the keys without which nobody can dial in to a run that listens at an
address which others can reach: a pair for the run, where DIR has none yet,
and a pair for each simulator that is named. What is there is never replaced.
"""

EPILOG = """\
examples:
  hts-keys keys lab-1 lab-2           the run's pair, and two simulators'
  hts-train ... --listen tcp://10.0.0.5:5555 --set keys=keys
  rm keys/clients/lab-1.key           it cannot dial in again

exit code: 0 made, 1 they could not be written, 2 wrong usage, or something is
           there already
"""


def parser() -> argparse.ArgumentParser:
    """A folder, and whose keys are to be made."""
    made = shell.Parser(
        prog="hts-keys",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("folder", metavar="DIR", type=Path, help="where a run finds its keys")
    made.add_argument("names", metavar="NAME", nargs="+", help="a simulator that may dial in")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run("hts-keys", lambda: _make(Keys(typed.folder), typed.names))


def _make(keys: Keys, names: Sequence[str]) -> int:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WrongUsage(f"{twice[0]} is named twice; name each simulator once")
    for name in names:
        keys.check_new(name)
    try:
        if not keys.has_run:
            keys.make_run()
            print(f"The run's keys are in {keys.folder}, which stays where the run is:")
            print(f"    hts-train ... --listen tcp://HOST:PORT --set keys={keys.folder}")
        for name in names:
            folder = keys.make_client(name)
            print(f"Carry {folder} to the simulator's machine, and let nobody else see it:")
            print(f'    it dials in with keys="{folder.name}"')
            print(f"    {folder} is not needed here any more; {keys.clients / name}.key is")
    except OSError as error:
        shell.tell("hts-keys", f"{error.filename} cannot be written: {error.strerror}")
        return shell.FAILED
    return shell.DONE


if __name__ == "__main__":
    sys.exit(main())
