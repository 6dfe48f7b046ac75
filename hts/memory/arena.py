"""Shared memory: one anonymous file, mapped by every process of a run.

The file has no name, so there is nothing that a killed run could leave behind: the kernel frees
the memory when the last process that maps it is gone. A child is given the descriptor itself.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from collections.abc import Sequence
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

from hts.errors import HtsError
from hts.machine import SharedArray
from hts.memory.room import available
from hts_envs.contract import Array

_ALIGNMENT = 64


class Arena:
    """The memory, cut into arrays in the order in which they are asked for."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._let_go = weakref.finalize(self, os.close, descriptor)
        self._map = mmap.mmap(descriptor, size)
        self._size = size
        self._used = 0

    @staticmethod
    def create(tables: Sequence[Sequence[SharedArray]]) -> Arena:
        """Memory for these tables, zeroed; that of sparse arrays is not taken yet."""
        declared = [array for table in tables for array in table]
        size = sum(bytes_of(array) for array in declared if not array.sparse)
        room = available()
        if size > room.size:  # before the kernel ends other processes to make room
            raise _too_much(size, str(room))
        descriptor, begin = os.memfd_create("hts"), 0
        try:
            for array in declared:
                if not array.sparse:
                    os.posix_fallocate(descriptor, begin, bytes_of(array))
                begin += bytes_of(array)
            os.ftruncate(descriptor, begin)
        except OSError as error:
            os.close(descriptor)
            raise _too_much(size, str(error.strerror)) from None
        return Arena(descriptor, begin)

    def __reduce__(self) -> tuple[Any, ...]:
        """How it reaches a child that is being born: the descriptor travels, the map is new."""
        return _attach, (DupFd(self._descriptor), self._size)

    def arrays(self, table: Sequence[SharedArray]) -> dict[str, Array]:
        """The next table's arrays; every process asks in the same order."""
        made = {}
        for declared in table:
            begin, self._used = self._used, self._used + bytes_of(declared)
            assert self._used <= self._size, f"{declared.name} was not declared"
            flat = np.frombuffer(self._map, np.uint8, bytes_of(declared), begin)
            made[declared.name] = _rows(declared, flat)
        return made

    def close(self) -> None:
        """Let go of it; the memory is freed with the last view of it, here and in children."""
        self._let_go()


def _attach(descriptor: Any, size: int) -> Arena:
    """The same memory in a child; nothing of it has been handed out there yet."""
    return Arena(descriptor.detach(), size)


def _too_much(size: int, why: str) -> HtsError:
    return HtsError(
        f"{size / 2**20:,.0f} MiB of shared memory cannot be had ({why}); "
        "train with fewer replicas, a shorter rollout or a smaller replay"
    )


def _rows(array: SharedArray, flat: Array) -> Array:
    """The array in its bytes: those behind each row, if rows lie apart, or behind all of it belong
    to nobody."""
    rows, width = _parts(array)
    used = flat.reshape(rows, -1)[:, :width]
    return used.view(array.dtype).reshape(array.shape)


def bytes_of(array: SharedArray) -> int:
    """Return the bytes that an array takes, padding included."""
    rows, width = _parts(array)
    return rows * (-(-width // _ALIGNMENT) * _ALIGNMENT)


def _parts(array: SharedArray) -> tuple[int, int]:
    """How many parts of it begin where memory is aligned, and the bytes of each."""
    size = math.prod(array.shape) * np.dtype(array.dtype).itemsize
    return (array.shape[0], size // array.shape[0]) if array.apart else (1, size)
