"""Where simulators dial in, and on what terms. Nothing here needs a socket."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from hts.errors import WrongUsage

_TCP = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|[^:;\[\]/\s]+):([0-9]+|\*)")
_PORTS = 1 << 16


@dataclass(frozen=True)
class Port:
    """An address, and the folder of keys without which nobody is heard there."""

    address: str
    keys: Path | None = None

    @staticmethod
    def checked(address: str, keys: str | None) -> Port:
        """Refuse what nobody can listen at, and what others could reach without keys.

        What others cannot reach is said in numbers: nobody is asked what a name stands for.
        """
        where = f"machine.listen: {address}"
        address = address.replace("tcp://localhost:", "tcp://127.0.0.1:")
        if address.startswith("ipc://"):
            _check_path(address.removeprefix("ipc://"), where)
        else:
            found = _TCP.fullmatch(address)
            if found is None or (found[2] != "*" and int(found[2]) >= _PORTS):
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
        return False


def _check_path(path: str, where: str) -> None:
    """Whatever is at the path of a socket gives way to it: so that may be a socket only."""
    if path in ("", "*"):
        raise WrongUsage(f"{where}: ipc:// needs a path, such as ipc:///tmp/run.socket")
    if not path.startswith("@") and Path(path).exists() and not Path(path).is_socket():
        raise WrongUsage(f"{where}: there is something at this path already")
