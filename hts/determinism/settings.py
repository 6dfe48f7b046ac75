"""Global settings that reach arithmetic: torch's, and how the processor rounds.

A simulator in the same process may change them for itself (`torch.set_float32_matmul_precision`, a
native library that flushes denormals), and would change what networks compute, but only in layouts
where it shares a process with them. So each setting has one value in every process of a run; what
a simulator's call has changed is restored when the call returns, and reported.

`are_kept` is cheap enough for every step of a block (`settings` in `hts-bench --parts`).
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hts.errors import SettingsChanged

_SMALLEST = 5e-324  # the smallest denormal number
_THREE, _QUARTER, _HUGE = 3 * _SMALLEST, 0.25, 1e300
_ROUNDED = _SMALLEST * _HUGE
_ROUNDING = "the processor's floating-point mode"
_USUAL = "rounding to nearest, with denormals"
# FE_DOWNWARD, FE_UPWARD and FE_TOWARDZERO of <fenv.h> on x86.
_MODES = {0x400: "rounding down", 0x800: "rounding up", 0xC00: "rounding towards zero"}
_DEFAULT_ENVIRONMENT = ctypes.c_void_p(-1)  # FE_DFL_ENV of the C library
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Setting:
    """One setting: the value that it has in every process, and how it is read and written."""

    name: str
    value: object
    read: Callable[[], object]
    write: Callable[[Any], object]
    per_thread: bool = False


@dataclass(frozen=True)
class Change:
    """A setting that had another value, and was restored."""

    setting: str
    found: str
    restored: str
    per_thread: bool

    @property
    def in_words(self) -> str:
        """Which setting was changed to what."""
        return f"{self.setting} to {self.found}"

    def by(self, who: str, when: str) -> str:
        """Return the sentence that names who changed it, and when."""
        return f"{who} changed {self.in_words} {when}; it is restored to {self.restored}"


def are_kept() -> bool:
    """Return whether every setting has its value, in this thread."""
    # Two roundings in the range of denormals: 0.75 to 1 and 0.25 to 0 only in the usual mode. Made
    # large before they are compared, for a comparison may flush denormals as well.
    if (_THREE * _QUARTER - _SMALLEST * _QUARTER) * _HUGE != _ROUNDED:
        return False
    if "torch" not in sys.modules:
        return True
    reads, values = _watched()
    return [read() for read in reads] == values


def restore() -> list[Change]:
    """Give every setting its value; return what had another one."""
    changes = _restore_rounding()
    if "torch" in sys.modules:
        # One at a time: writing one may bring others back that depend on it.
        changes += [change for setting in _of_torch() if (change := _restore(setting)) is not None]
    return changes


def check() -> None:
    """Raise SettingsChanged where a setting has another value.

    For places in front of which no simulator was called: what changed it cannot be known, nor what
    was computed meanwhile.
    """
    if are_kept():
        return
    raise SettingsChanged([change.in_words for change in restore()])


def _restore(setting: Setting) -> Change | None:
    found = setting.read()
    if found == setting.value:
        return None
    setting.write(setting.value)
    assert setting.read() == setting.value, f"{setting.name} can be set"
    return Change(setting.name, _text(found), _text(setting.value), setting.per_thread)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value).removeprefix("torch.")


def _restore_rounding() -> list[Change]:
    """Restore the floating-point mode of this thread, which has no getter in Python."""
    if (_THREE * _QUARTER - _SMALLEST * _QUARTER) * _HUGE == _ROUNDED:
        return []
    mode = _LIBC.fegetround()  # 0 is to nearest, everywhere
    found = _MODES.get(mode, "another rounding") if mode else "flushing denormals to zero"
    _LIBC.fesetenv(_DEFAULT_ENVIRONMENT)
    return [Change(_ROUNDING, found, _USUAL, per_thread=True)]


@functools.cache
def _watched() -> tuple[list[Callable[[], object]], list[object]]:
    """Return the readers of the settings that this build of torch computes with, and the values."""
    import torch

    has_cuda = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]
    watched = _of_torch() if has_cuda else _of_processor()
    return [setting.read for setting in watched], [setting.value for setting in watched]


def _of_torch() -> tuple[Setting, ...]:
    return (*_of_processor(), *_of_cuda())


@functools.cache
def _of_processor() -> tuple[Setting, ...]:
    """Return torch's settings of any device and of the processor.

    Readers are torch's own C functions where it has them: the Python ones in front of some of these
    take ten times as long.
    """
    import torch

    c = torch._C
    return (
        Setting("torch's number of threads", 1, torch.get_num_threads, torch.set_num_threads),
        # 2 is "error". `use_deterministic_algorithms` does the same after importing 70 MB that
        # nothing here needs.
        Setting(
            "torch's deterministic debug mode",
            2,
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
        ),
        Setting(
            "torch's filling of uninitialised memory",
            False,
            c._get_deterministic_fill_uninitialized_memory,
            c._set_deterministic_fill_uninitialized_memory,
        ),
        Setting(
            "torch's default dtype", torch.float32, torch.get_default_dtype, torch.set_default_dtype
        ),
        Setting(
            "torch's number of function modes (a default device is one)",
            0,
            c._len_torch_function_stack,
            _remove_modes,
            per_thread=True,
        ),
        Setting(
            "torch's recording of gradients",
            True,
            torch.is_grad_enabled,
            torch.set_grad_enabled,
            per_thread=True,
        ),
        Setting("torch's autocast", False, c._is_any_autocast_enabled, _no_autocast, True),
        Setting("torch's use of oneDNN", True, c._get_mkldnn_enabled, c._set_mkldnn_enabled),
        Setting(
            "oneDNN's deterministic mode",
            False,
            c._get_mkldnn_deterministic,
            c._set_mkldnn_deterministic,
        ),
        # In front of the precisions of libraries, which it writes as well.
        Setting(
            "torch's float32 matmul precision",
            "highest",
            _matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        *(_precision("oneDNN", "mkldnn", each) for each in ("matmul", "conv", "rnn")),
    )


@functools.cache
def _of_cuda() -> tuple[Setting, ...]:
    """Return what GPUs compute with; a build of torch without them has these settings, too."""
    import torch

    c = torch._C
    return (
        Setting("cuDNN's use of TF32", False, _cudnn_uses_tf32, _use_tf32_in_cudnn),
        Setting("cuDNN's benchmark mode", False, c._get_cudnn_benchmark, c._set_cudnn_benchmark),
        _precision("CUDA", "cuda", "matmul"),
    )


def _precision(library: str, backend: str, operation: str) -> Setting:
    """Return the precision with which a library computes an operation on float32."""
    import torch

    return Setting(
        f"{library}'s float32 precision of {operation}",
        "ieee",
        partial(torch._C._get_fp32_precision_getter, backend, operation),
        partial(torch._C._set_fp32_precision_setter, backend, operation),
    )


def _matmul_precision() -> str:
    """Return torch's precision; it refuses to where a library's was set to another one since, which
    is found by itself."""
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "highest"


def _cudnn_uses_tf32() -> bool:
    import torch

    precision = torch._C._get_fp32_precision_getter
    return any(precision("cuda", operation) != "ieee" for operation in ("conv", "rnn"))


def _use_tf32_in_cudnn(value: bool) -> None:
    """Set both of torch's switches: reading one of them raises where the other one differs."""
    import torch

    torch._C._set_cudnn_allow_tf32(value)
    for operation in ("conv", "rnn"):
        torch._C._set_fp32_precision_setter("cuda", operation, "tf32" if value else "ieee")


def _no_autocast(_: bool) -> None:
    import torch

    for device in ("cpu", "cuda"):
        torch.set_autocast_enabled(device, False)


def _remove_modes(_: int) -> None:
    import torch

    torch.set_default_device(None)
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
