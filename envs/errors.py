"""What can go wrong with a world, as one tree.

    WorldError
    ├── BadName          no such family or environment: the user mistyped
    ├── BadOption        an option that is unknown, of the wrong type or out of range
    ├── MissingPackages  the family exists, but its packages are not installed here
    └── BrokenSimulator  a simulator raised, or broke the contract of `hts_envs.contract`

The first three are the user's to mend and say how; a command line turns them into exit code 2.
"""

from __future__ import annotations

import os
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parent.parent
_FOR_TESTS = ("envpool",)  # what the set-up brings only where tests are run


class WorldError(Exception):
    """Any failure of a world; its text is one sentence for the person who typed the name."""


class BadName(WorldError):
    """No environment has this name."""


class BadOption(WorldError):
    """An option behind the `?` of an environment's name is wrong."""


class MissingPackages(WorldError):
    """The family needs packages that are not installed on this machine."""


def install_command(extra: str, checkout: Path = _CHECKOUT) -> str:
    """What installs an extra: the set-up of the checkout that this is, or else pip."""
    setup = checkout / "tools" / "setup.sh"
    if not setup.is_file():
        return f"pip install 'hts[{extra}]'"
    return os.path.relpath(setup) + (" dev" if extra in _FOR_TESTS else "")


class BrokenSimulator(WorldError):
    """A simulator raised, or returned something that its declared spaces do not allow."""
