"""The images of a replay, compressed one by one.

Those of a window stand back to back in a piece of memory that would hold them as they are. Only
what is written there becomes memory, so that drawings and other plain pictures take a tenth of it.
What is seen behind a step is most often what is seen in the next one, and then stands there once.
"""

from __future__ import annotations

import lz4.block
import numpy as np

from hts_envs.contract import Array

SEEN_AT, BEHIND_AT = 0, 1
"""Of a step: which image."""


class Images:
    """Those of one field: `room` is (windows, images, height, width, channels), and `at` says
    where each begins in its window's room and how many bytes it has, (steps, replicas, 2, 2)."""

    def __init__(self, room: Array, at: Array, window: int) -> None:
        self._shape = room.shape[2:]
        self._size = int(np.prod(self._shape))
        self._room = room.reshape(len(room), -1)
        self._at = at.reshape(-1, *at.shape[2:])
        self._in_window = window * at.shape[1]

    def write(self, window: int, seen: Array, behind: Array) -> None:
        """The images of the window in this place: (steps, replicas, height, width, channels)."""
        room, at = self._room[window], self._places(window).reshape(*seen.shape[:2], 2, 2)
        end = 0
        for step, replica in np.ndindex(*seen.shape[:2]):
            end = self._put(room, at[step, replica, SEEN_AT], end, seen[step, replica])
        again = np.zeros(seen.shape[:2], bool)
        again[:-1] = (behind[:-1] == seen[1:]).all(axis=(2, 3, 4))
        at[:-1, :, BEHIND_AT] = at[1:, :, SEEN_AT]
        for step, replica in np.argwhere(~again):
            end = self._put(room, at[step, replica, BEHIND_AT], end, behind[step, replica])

    def take(self, places: Array, which: int) -> Array:
        """The images of steps by their places, replicas within steps: (rows, height, ...)."""
        found = np.empty((len(places), self._size), np.uint8)
        windows = places // self._in_window
        for row, window, (begin, size) in zip(
            found, windows.tolist(), self._at[places, which].tolist(), strict=True
        ):
            packed = self._room[window, begin : begin + size]
            if size < self._size:
                raw = lz4.block.decompress(packed, uncompressed_size=self._size)
                packed = np.frombuffer(raw, np.uint8)
            row[:] = packed
        return found.reshape(-1, *self._shape)

    def used(self, window: int) -> int:
        """Bytes of the window in this place."""
        return ends(self._places(window))

    def packed(self, window: int) -> Array:
        """They, as `unpack` takes them."""
        return self._room[window, : self.used(window)]

    def unpack(self, window: int, packed: Array) -> None:
        self._room[window, : len(packed)] = packed

    def _places(self, window: int) -> Array:
        first = window * self._in_window
        return self._at[first : first + self._in_window]

    def _put(self, room: Array, at: Array, begin: int, image: Array) -> int:
        """Where the next one begins."""
        raw = np.ascontiguousarray(image).reshape(-1)
        packed = lz4.block.compress(raw, store_size=False)
        stored = raw if len(packed) >= self._size else np.frombuffer(packed, np.uint8)
        end = begin + len(stored)
        room[begin:end] = stored
        at[:] = begin, len(stored)
        return end


def ends(at: Array) -> int:
    """Behind the last byte of these images."""
    return int(at.sum(-1).max())
