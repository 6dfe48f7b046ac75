"""The same experiment on many machine layouts: are the digests equal, and if not, where not?"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hts.config import Machine
from hts.determinism.digest import Link
from hts.remote.listening import fixed
from hts.remote.port import Port
from hts.runtime.again import Setting, again, first_difference, played
from hts.runtime.disturb import Trouble


@dataclass(frozen=True)
class Outcome:
    """What a layout made of the experiment."""

    links: list[Link]
    seconds: float
    killed: int
    stopped: int
    marks: list[str]

    @property
    def digest(self) -> str:
        return self.links[-1].chain


def reference(settings: Sequence[Setting]) -> Setting:
    """What every layout must equal: one process, one role after the other, no delays. Where nobody
    here can build a simulator, the first layout."""
    first = settings[0]
    if first.spaces is not None:
        return dataclasses.replace(first, trouble=Trouble())
    alone = Machine(serial=True, device=first.machine.device)
    return Setting(first.experiment, alone, start=first.start)


def port(machine: Machine) -> Port | None:
    """Where simulators dial in, the same for every layout."""
    if machine.listen is None:
        return None
    return fixed(Port.checked(machine.listen, machine.keys))


def outcome(setting: Setting, count: int) -> Outcome:
    """This many updates on this layout."""
    began = time.perf_counter()
    found = played(setting, count)
    links = [updated.link for updated in found.updates]
    seconds = time.perf_counter() - began
    return Outcome(links, seconds, found.killed, found.stopped, found.marks)


def difference(ours: Setting, theirs: Setting, outcomes: tuple[Outcome, Outcome]) -> str:
    """Where two outcomes part, after running both again up to there and looking closely."""
    here, there = (outcome.links for outcome in outcomes)
    update = first_difference(here, there)
    assert update is not None, "outcomes with two digests part somewhere"
    what = "rollout" if here[update - 1].rollout != there[update - 1].rollout else "parameters"
    found = again(ours, theirs, update)
    if found.where is not None:
        pairs = (("the first run", found.ours, here), ("this one", found.theirs, there))
        other = [name for name, link, links in pairs if link != links[link.update - 1]]
        if not other:
            return found.where
        return (
            f"{found.where} (when both ran again: {' and '.join(other)} gave other digests than "
            "above, so the simulator is not deterministic, or the machine is broken)"
        )
    return (
        f"update {update}, {what}: they differed, and did not when both ran again: the simulator "
        "is not deterministic, or the machine is broken (hts-check looks at the simulator)"
    )
