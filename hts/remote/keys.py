"""Keys for connections that leave this machine: who may dial in, and whom they dial in to.

A folder holds the key of whoever uses it, and those of the others:

    run.key_secret, run.key        the run's own pair; simulators need the public half
    clients/NAME.key               the simulators that may dial in, one public key each
    NAME.key_secret                a simulator's own pair

The files are those of `zmq.auth`. A secret key never leaves the machine that it was made on, unless
its owner carries it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zmq
import zmq.auth

from hts.errors import WrongUsage

RUN = "run"


class Keys:
    """A folder of keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def clients(self) -> Path:
        """The public keys of everybody who may dial in."""
        return self.folder / "clients"

    def make_run(self) -> None:
        """A pair for a run."""
        self.clients.mkdir(parents=True, exist_ok=True)
        self._create(self.folder, RUN)

    def make_client(self, name: str) -> None:
        """A pair for a simulator, whose public half may dial in from now on."""
        self._create(self.folder, name)
        (self.folder / f"{name}.key").rename(self.clients / f"{name}.key")

    def _create(self, folder: Path, name: str) -> None:
        if (folder / f"{name}.key_secret").exists():
            raise WrongUsage(f"{folder / name}.key_secret: is there already; it is not replaced")
        _, secret = zmq.auth.create_certificates(folder, name)
        Path(secret).chmod(0o600)

    def check_run(self) -> None:
        """Refuse a folder that a run cannot listen with."""
        self._pair(RUN)
        if not self.clients.is_dir():
            raise WrongUsage(f"{self.clients}: is no folder of the keys that may dial in")

    def listen(self, socket: zmq.Socket[Any]) -> None:
        """Have this socket speak to nobody without a key that is known."""
        socket.curve_publickey, socket.curve_secretkey = self._pair(RUN)
        socket.curve_server = True
        socket.zap_domain = b"hts"

    def dial(self, socket: zmq.Socket[Any]) -> None:
        """Have this socket speak to the run that this folder knows, and to nobody else."""
        names = sorted(path.stem for path in self.folder.glob("*.key_secret"))
        own = [name for name in names if name != RUN]
        if len(own) != 1:
            raise WrongUsage(f"{self.folder}: a simulator's folder holds one NAME.key_secret")
        socket.curve_publickey, socket.curve_secretkey = self._pair(own[0])
        socket.curve_serverkey, _ = _load(self.folder / f"{RUN}.key")

    def _pair(self, name: str) -> tuple[bytes, bytes]:
        public, secret = _load(self.folder / f"{name}.key_secret")
        if secret is None:
            raise WrongUsage(f"{self.folder / name}.key_secret: holds no secret key")
        return public, secret


def _load(path: Path) -> tuple[bytes, bytes | None]:
    try:
        return zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise WrongUsage(f"{path}: is no key that can be read ({error})") from None
