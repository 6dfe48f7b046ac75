"""Keys for connections that leave this machine: who may dial in, and whom they dial in to.

    DIR/run.key_secret, DIR/run.key    the run's own pair
    DIR/clients/NAME.key               who may dial in: the public key of each simulator
    DIR/NAME/                          a simulator's own folder, to be carried to where it runs:
        NAME.key_secret, run.key       its pair, and the key that it knows the run by

The files are those of `zmq.auth`, and pairs that were made elsewhere do as well. Whoever holds a
secret key is who it says: files of them are made for their owner's eyes only, and never replaced.
"""

from __future__ import annotations

import os
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq
from zmq.auth import load_certificate
from zmq.utils import z85

from hts.errors import WrongUsage

RUN = "run"

_CLIENTS = "clients"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LENGTH = 40  # of a key in Z85
_NO_KEY = (ValueError, KeyError, struct.error)  # of what is read as one


class Keys:
    """A folder of keys: a run's, or a simulator's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def clients(self) -> Path:
        """The public keys of everybody who may dial in."""
        return self.folder / _CLIENTS

    @property
    def has_run(self) -> bool:
        """A run's pair is there."""
        return (self.folder / f"{RUN}.key_secret").exists()

    def make_run(self) -> None:
        """A pair for a run."""
        self.clients.mkdir(parents=True, exist_ok=True)
        public, secret = zmq.curve_keypair()
        _write(self.folder / f"{RUN}.key_secret", public, secret)
        _write(self.folder / f"{RUN}.key", public)

    def check_new(self, name: str) -> None:
        """Refuse what is no name of a simulator, or has keys already."""
        if not _NAME.fullmatch(name) or name in (RUN, _CLIENTS):
            raise WrongUsage(f"{name!r}: is no name for a simulator: use letters, digits, - and _")
        for path in (self.folder / name, self.clients / f"{name}.key"):
            if path.exists():
                raise WrongUsage(f"{path}: is there already; keys are never replaced")

    def make_client(self, name: str) -> Path:
        """A pair for a simulator, which may dial in from now on; its folder."""
        self.check_new(name)
        known, _ = self._pair(RUN)
        public, secret = zmq.curve_keypair()
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        _write(folder / f"{name}.key_secret", public, secret)
        _write(folder / f"{RUN}.key", known)
        _write(self.clients / f"{name}.key", public)  # the last: it is what lets somebody in
        return folder

    def listen(self, socket: zmq.Socket[Any]) -> None:
        """Have this socket speak to nobody without a key that is known."""
        try:
            known = self.allowed()
        except OSError as error:
            raise WrongUsage(
                f"{self.clients}: cannot be read ({error.strerror}); hts-keys makes it"
            ) from None
        if not known:
            raise WrongUsage(
                f"{self.clients}: holds no NAME.key, so that nobody could dial in: make keys with "
                "hts-keys"
            )
        socket.curve_publickey, socket.curve_secretkey = self._pair(RUN)
        socket.curve_server = True
        socket.zap_domain = b"hts"

    def allowed(self) -> dict[bytes, str]:
        """Whose keys may dial in now: the names by their keys. What is no key lets nobody in.

        OSError where the folder cannot be read.
        """
        found = {}
        for name in sorted(os.listdir(self.clients)):
            if name.endswith(".key"):
                with suppress(*_NO_KEY):
                    found[_read(self.clients / name)[0]] = name.removesuffix(".key")
        return found

    def dial(self, socket: zmq.Socket[Any]) -> None:
        """Have this socket speak to the run that this folder knows, and to nobody else."""
        names = [path.stem for path in self.folder.glob("*.key_secret") if path.stem != RUN]
        if len(names) != 1:
            raise WrongUsage(f"{self.folder}: a simulator's folder holds one NAME.key_secret")
        socket.curve_publickey, socket.curve_secretkey = self._pair(names[0])
        socket.curve_serverkey, _ = _load(self.folder / f"{RUN}.key")

    def _pair(self, name: str) -> tuple[bytes, bytes]:
        path = self.folder / f"{name}.key_secret"
        public, secret = _load(path)
        if secret is None:
            raise WrongUsage(f"{path}: holds no secret key")
        return public, secret


def _write(path: Path, public: bytes, secret: bytes | None = None) -> None:
    """A file that was not there, which nobody else can ever read."""
    lines = ["metadata", "curve", f'    public-key = "{public.decode()}"']
    if secret is not None:
        lines.append(f'    secret-key = "{secret.decode()}"')
    try:
        found = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise WrongUsage(f"{path}: is there already; keys are never replaced") from None
    with open(found, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


def _load(path: Path) -> tuple[bytes, bytes | None]:
    """The public and, where there is one, the secret key of a file."""
    try:
        return _read(path)
    except (OSError, *_NO_KEY) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise WrongUsage(f"{path}: is no key that can be read ({why})") from None


def _read(path: Path) -> tuple[bytes, bytes | None]:
    public, secret = load_certificate(path)
    for key in (public, secret or public):
        if len(key) != _LENGTH:
            raise ValueError(f"a key has {_LENGTH} characters")
        z85.decode(key)
    return public, secret
