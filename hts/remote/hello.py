"""What a simulator says first: who it is, what it offers, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hts.remote import wire
from hts.remote.wire import Malformed
from hts_envs.contract import Discrete, Spaces

_SEATS = 1 << 16
_FIELDS = {"protocol", "name", "session", "run", "seats", "rows", "replayable", "spaces", "held"}


@dataclass(frozen=True)
class Hello:
    """A handshake, checked."""

    protocol: int
    name: str
    session: bytes  # the same as long as the simulator lives, over all its connections
    run: str  # the run that it was last given seats of
    seats: int
    rows: int
    replayable: bool
    spaces: Spaces
    held: Mapping[int, int]  # by seat: the turn that it said last

    @staticmethod
    def read(facts: Mapping[Any, Any]) -> Hello:
        """Malformed where it is none."""
        protocol = facts.get("protocol")
        if type(protocol) is not int:
            raise Malformed("its hello says a protocol, a whole number")
        if protocol != wire.PROTOCOL:
            return Hello(protocol, "a simulator", b"", "", 0, 0, False, _NONE, {})
        if set(facts) != _FIELDS:
            raise Malformed("its hello has other fields")
        name, session, run = facts["name"], facts["session"], facts["run"]
        if not wire.is_name(name) or not isinstance(session, bytes) or len(session) != 16:
            raise Malformed("its hello says a name and a session")
        if not (run == "" or wire.is_name(run)) or type(facts["replayable"]) is not bool:
            raise Malformed("its hello says a run, and whether it is replayable")
        for what in ("seats", "rows"):
            if type(facts[what]) is not int or not 1 <= facts[what] <= _SEATS:
                raise Malformed(f"its hello says {what}, one at the least")
        spaces = wire.spaces_from_plain(facts["spaces"])
        held = _held(facts["held"])
        return Hello(**{**facts, "spaces": spaces, "held": held})

    def other_protocol(self) -> str | None:
        """Return why it cannot be understood, or None if it speaks the protocol of this run."""
        if self.protocol == wire.PROTOCOL:
            return None
        return f"it speaks protocol {self.protocol}, this run speaks {wire.PROTOCOL}"

    def misfit(self, spaces: Spaces, rows: int) -> str | None:
        """Why it cannot take part in a run of these spaces, in a sentence; None where it can."""
        other = self.other_protocol()
        if other is not None:
            return other
        if self.rows != rows:
            return (
                f"it steps {self.rows} replicas together in each seat, and this run's seats hold "
                f"{rows}: have it offer {rows}, or train with --set seat={self.rows}"
            )
        return _difference(self.spaces, spaces)


def _held(given: Any) -> dict[int, int]:
    if not isinstance(given, list) or len(given) > _SEATS:
        raise Malformed("what it holds is a list")
    for each in given:
        if not (isinstance(each, list) and [type(one) for one in each] == [int, int]):
            raise Malformed("it holds seats, each at its turn")
        if each[0] < 0:
            raise Malformed("seats are counted from 0")
    return dict(given)


def _difference(theirs: Spaces, ours: Spaces) -> str | None:
    """The first thing in which the spaces differ."""
    if list(theirs.observation) != list(ours.observation):
        shown, fields = (wire.shown(", ".join(each.observation)) for each in (theirs, ours))
        return f"its observation has the fields {shown}; this run's has {fields}"
    for name, space in ours.observation.items():
        if theirs.observation[name] != space:
            shown = wire.shown(theirs.observation[name])
            return f"its observation {name!r} is {shown}; this run's is {wire.shown(space)}"
    if theirs.action != ours.action:
        return f"its action is {wire.shown(theirs.action)}; this run's is {wire.shown(ours.action)}"
    if theirs.agents != ours.agents:
        return f"it has {theirs.agents} agents; this run has {ours.agents}"
    return None


_NONE = Spaces({}, Discrete(1))
