"""Arrays and facts in one file that says by itself whether it is whole.

The file is safetensors: raw arrays by name, and a JSON head. Nothing in it is ever run. Each part
has its hash in the head, so that damage is found, and named, when the file is read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from hts.errors import HtsError
from hts_envs.contract import Array

_FORMAT = 1
_HEAD = "hts"


@dataclass(frozen=True)
class Sealed:
    """What one file holds."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, Array]


class Damaged(HtsError):
    """A file that cannot be believed; says which part of it."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.what = what


def sweep(folder: Path) -> None:
    """Take away what somebody who was killed has left half-written."""
    for left in folder.glob(".*.safetensors"):
        with suppress(OSError):  # where nothing can be taken away, nothing can be written either
            left.unlink()


def seal(path: Path, kind: str, held: Sealed) -> None:
    """Write it, whole or not at all: beside its place, to the disk, then into its place."""
    # `ascontiguousarray` would make one axis of none.
    arrays = {name: np.asarray(array, order="C") for name, array in held.arrays.items()}
    head = {
        "format": _FORMAT,
        "kind": kind,
        "facts": held.facts,
        "hashes": {name: _hash(array) for name, array in arrays.items()},
    }
    content = save(arrays, {_HEAD: json.dumps(head), f"{_HEAD}.hash": _head_hash(head)})
    beside = path.with_name(f".{path.name}")
    try:
        with open(beside, "wb") as file:
            for part in _ordered(content):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def unseal(path: Path, kind: str) -> Sealed:
    """Read all of it and believe none of it: Damaged says which part is not as it was written."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise Damaged(path, "there is no such file") from None
    except (SafetensorError, OSError) as error:
        raise Damaged(path, f"it cannot be read as a whole ({error})") from None
    head = _head(path, metadata)
    if head.get("kind") != kind or head.get("format") != _FORMAT:
        found = f"{head.get('kind')} of format {head.get('format')}"
        raise Damaged(path, f"it is a {found}, not a {kind} of format {_FORMAT}")
    if set(arrays) != set(head["hashes"]):
        raise Damaged(path, "it does not hold the parts that its head names")
    for name, array in arrays.items():
        if _hash(array) != head["hashes"][name]:
            raise Damaged(path, f"{name} is not what was written")
    return Sealed(head["facts"], arrays)


def _ordered(content: bytes) -> tuple[bytes, memoryview]:
    """A file's head and arrays: safetensors writes what is in the head in any order, and equal
    content is to be equal bytes."""
    end = 8 + int.from_bytes(content[:8], "little")
    head = json.loads(content[8:end])
    head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # what follows is aligned
    return len(text).to_bytes(8, "little") + text, memoryview(content)[end:]


def _head(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    try:
        head: dict[str, Any] = json.loads(metadata[_HEAD])
    except (KeyError, ValueError):
        raise Damaged(path, "it was not written by this product") from None
    if _head_hash(head) != metadata.get(f"{_HEAD}.hash"):
        raise Damaged(path, "its head is not what was written")
    return head


def _head_hash(head: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(head).encode(), digest_size=16).hexdigest()


def _hash(array: Array) -> str:
    """Of what it is and of every byte."""
    form = f"{array.dtype}{array.shape}".encode()
    return hashlib.blake2b(array.tobytes(), digest_size=16, key=form[:64]).hexdigest()
