"""Curves for TensorBoard: event files, written as the format says and read by its own tools.

A file is a sequence of records: length, checksum of the length, content, checksum of the content;
the content is an `Event` message of protocol buffers, of which we need four fields. Each leg of a
run begins a file of its own, whose second event takes back what earlier files say of later steps,
so that a run that was killed and goes on has no step twice.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

_POLYNOMIAL = 0x82F63B78  # CRC-32C, bits reversed
_MASK = 0xA282EAD8
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # how a field is written
_START = 1  # SessionLog: what has this step or a later one is not valid any more


class Events:
    """One event file of a run; what a full disk does not take waits for the next event."""

    def __init__(self, folder: Path, behind: int) -> None:
        """Of a run that begins behind so many steps."""
        self.trouble: str | None = None
        folder.mkdir(exist_ok=True)
        number = 1 + sum(1 for _ in folder.glob("events.out.tfevents.*"))
        self._path = folder / f"events.out.tfevents.{number:06}"
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self._size = 0
        self._waiting = bytearray()
        # Its birth is the only date; from there on a clock counts that nobody sets.
        self._birth = os.fstat(self._file).st_mtime - time.monotonic()
        self._add(_field(3, b"brain.Event:2"))
        self._add(_varint(2, behind + 1) + _field(7, _varint(1, _START)))

    def add(self, steps: int, values: Mapping[str, float]) -> None:
        """One point of each curve."""
        found = b"".join(
            _field(1, _field(1, name.encode()) + _key(2, _FLOAT) + _single(value))
            for name, value in values.items()
        )
        self._add(_varint(2, steps) + _field(5, found))

    def evaluated(self, steps: int, values: Mapping[str, float]) -> None:
        """The same, at any step: each curve has an order of its own."""
        self.add(steps, values)

    def close(self) -> None:
        os.close(self._file)

    def _add(self, content: bytes) -> None:
        wall = _key(1, _DOUBLE) + struct.pack("<d", self._birth + time.monotonic())
        self._waiting += record(wall + content)
        try:
            while self._waiting:
                written = os.pwrite(self._file, self._waiting, self._size)
                self._size += written
                del self._waiting[:written]
        except OSError as error:
            self.trouble = f"{self._path} takes no more curves ({error.strerror})"
        else:
            self.trouble = None


def record(content: bytes) -> bytes:
    """What stands in the file for one event."""
    length = struct.pack("<Q", len(content))
    return b"".join((length, _masked(length), content, _masked(content)))


def _masked(content: bytes) -> bytes:
    crc = crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF)


def crc32c(content: bytes) -> int:
    """Castagnoli's checksum, a byte at a time."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _table() -> Iterator[int]:
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        yield crc


_TABLE = tuple(_table())


def _number(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    assert value >= 0, "no number of ours is negative"
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _key(field: int, kind: int) -> bytes:
    return _number(field << 3 | kind)


def _varint(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _number(value)


def _field(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _number(len(content)) + content


def _single(value: float) -> bytes:
    """In single precision; what is too large for it is infinite."""
    with np.errstate(over="ignore"):
        return np.float32(value).tobytes()
