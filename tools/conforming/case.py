"""Cases by name: what each of them holds a client to, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .side import Trial

Check = Callable[[Trial], None]


@dataclass(frozen=True)
class Case:
    """One thing that a client has to do; `check` raises Wrong where it does not."""

    name: str
    promise: str
    check: Check


CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Check], Check]:
    """The function is a case; its docstring is what the client is held to."""

    def enter(check: Check) -> Check:
        promise = " ".join((check.__doc__ or "").split()).rstrip(".")
        CASES[name] = Case(name, promise, check)
        return check

    return enter
