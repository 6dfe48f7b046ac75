"""Where simulators dial in, and on what terms. Nothing here needs a socket."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from hts.errors import WrongUsage

_ADDRESS = re.compile(r"tcp://(\[[^\]]+\]|[^:\[\]/]+):(\d+|\*)")


@dataclass(frozen=True)
class Port:
    """An address, and the folder of keys without which nobody is heard there."""

    address: str
    keys: Path | None = None

    @staticmethod
    def checked(address: str, keys: str | None) -> Port:
        """Refuse what nobody can listen at, and what others could reach without keys."""
        where = f"machine.listen: {address}"
        if not address.startswith("ipc://"):
            found = _ADDRESS.fullmatch(address)
            if found is None:
                raise WrongUsage(
                    f"{where}: must be tcp://HOST:PORT or ipc://PATH, such as tcp://127.0.0.1:5555"
                )
            if keys is None and not _is_loopback(found[1]):
                raise WrongUsage(
                    f"{where}: others can reach this address, so it needs keys: make them with "
                    "hts-keys and name their folder (--set keys=DIR), or listen at 127.0.0.1"
                )
        return Port(address, None if keys is None else Path(keys))


@dataclass(frozen=True)
class Remote:
    """What an executor has to know whose simulators dial in."""

    port: Port
    run: str  # by this name they find back to this run
    patience: float  # seconds before it is said who has to move; 0: never
    step_limit: float  # seconds that a step may take before its seat is free; 0: any


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
