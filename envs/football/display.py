"""Rendering without a display: through EGL, on a graphics card or by Mesa in software.

The engine ends the process where it finds no way to draw, so the way is looked for beforehand.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

from hts_envs.errors import MissingPackages


def require_egl() -> None:
    """Refuse, with the command that mends it, where EGL has nothing to draw with."""
    if _devices() == 0:
        raise MissingPackages(
            "gfootball: representation=pixels finds no EGL device to draw with. Mesa draws in "
            "software: sudo apt-get install -y libegl1 libegl-mesa0 libgl1-mesa-dri"
        )


def _devices() -> int:
    """How many devices EGL knows of; software renderers count."""
    try:
        library = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return 0
    library.eglGetProcAddress.restype = ctypes.c_void_p
    address = library.eglGetProcAddress(b"eglQueryDevicesEXT")
    if not address:
        return 0
    kind = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    count = ctypes.c_int(0)
    kind(address)(0, None, ctypes.addressof(count))
    return count.value


@contextlib.contextmanager
def off_screen() -> Iterator[None]:
    """Render through EGL even where there is a display, and without telling everybody."""
    display = os.environ.pop("DISPLAY", None)
    sys.stdout.flush()
    kept = os.dup(1)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(silence)
        if display is not None:
            os.environ["DISPLAY"] = display
