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
_APART = ("envpool",)  # packages of their own name that the set-up brings with the tests only


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
    tools = checkout / "tools"
    if not (tools / "setup.sh").is_file():
        return f"pip install 'hts[{extra}]'"
    if extra not in _APART:
        return os.path.relpath(tools / "setup.sh")
    python, pinned = os.path.relpath(tools / "python"), os.path.relpath(tools / "constraints.txt")
    return f"{python} -m pip install -c {pinned} {extra}"


class BrokenSimulator(WorldError):
    """A simulator raised, or returned something that its declared spaces do not allow."""
