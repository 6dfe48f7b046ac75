"""Notices of third parties that say nothing to the person who runs a simulator, kept silent.

Each is named, so that whatever else these packages have to say still comes through.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any


def silence_gym() -> None:
    """The old gym package prints that it is unmaintained when a simulator imports it."""
    try:
        notices = importlib.import_module("gym_notices.notices")
    except ModuleNotFoundError:
        return
    notices.notices.clear()


@contextlib.contextmanager
def building() -> Iterator[None]:
    """ALE prints who made it, MuJoCo which words of a model file will go out of use."""
    if "ale_py" in sys.modules:
        ale = sys.modules["ale_py"]
        ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
    mujoco: Any = sys.modules.get("mujoco")
    if not hasattr(mujoco, "get_mju_user_warning"):
        yield
        return
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(_tell)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _tell(text: str) -> None:
    if "is deprecated and will be removed" not in text:
        warnings.warn(f"MuJoCo: {text}", stacklevel=2)
