"""What floating-point numbers depend on besides the experiment: set once, stored with every run.

One thread for each process (more collapse beside busy neighbours, and change sums), no reduced
precision behind the user's back, deterministic kernels only. The environment variables are read
when torch is imported, so `prepare` comes before that.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import platform
from collections.abc import Mapping
from typing import Any

from hts.determinism import environment, settings
from hts.determinism.settings import Change

ENVIRONMENT = "environment"
UNSET = "unset"


def set_environment() -> None:
    """What torch reads when it is imported, here and in children, and C when a child starts."""
    # Networks ask for the same large pieces of memory over and over. Keep them: fresh ones from
    # the kernel cost up to a third of an update (hts/design/0006). This changes no number.
    os.environ["MALLOC_MMAP_MAX_"] = "0"
    os.environ["MALLOC_TRIM_THRESHOLD_"] = str(1 << 30)
    # And in huge pages, where the kernel leaves that to whoever asks.
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if "glibc.malloc.hugetlb" not in tunables:
        asked = "glibc.malloc.hugetlb=1"
        os.environ["GLIBC_TUNABLES"] = f"{tunables}:{asked}" if tunables else asked
    environment.fix()


@functools.cache  # whoever needs torch may ask; the first one prepares it
def prepare() -> None:
    """Fix threads, precision and kernels of this process, if possible before torch is imported.

    Where a program imported it first, threads are set by calls instead; torch refuses one of them
    after it has used several threads for independent operations, which nothing here does.
    """
    environment.restore()
    set_environment()
    import torch

    if torch.get_num_interop_threads() != 1:
        with contextlib.suppress(RuntimeError):
            torch.set_num_interop_threads(1)
    settle()


def settle() -> list[Change]:
    """Give every setting that reaches arithmetic its value, after simulators were built: they may
    be made of torch, and arrange it for themselves. Return what had another value."""
    return [*environment.restore(), *settings.restore()]


def describe(device: str) -> dict[str, Any]:
    """Under which digests of equal experiments are equal."""
    import torch

    found: dict[str, Any] = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}, {_processor()}",
        "device": device,
        ENVIRONMENT: environment.recorded(),
    }
    if device.startswith("cuda"):
        found["gpu"] = torch.cuda.get_device_name(torch.device(device))
    return found


def facts(described: Mapping[str, Any]) -> dict[str, str]:
    """Return what a manifest has of `describe`, each environment variable under its own name."""
    variables = described.get(ENVIRONMENT, {ENVIRONMENT: "not recorded"})  # as it once was
    alone = {name: value for name, value in described.items() if name != ENVIRONMENT}
    return {name: str(value) for name, value in {**alone, **variables}.items()}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return each fact that differs between two manifests, with both values."""
    if ENVIRONMENT not in before:  # nothing can be said
        now = {name: value for name, value in now.items() if name != ENVIRONMENT}
    ours, theirs = facts(before), facts(now)
    return [
        (name, ours.get(name, UNSET), theirs.get(name, UNSET))
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    ]


def _processor(path: str = "/proc/cpuinfo") -> str:
    """Vendor, family and model: with one instruction set, libraries choose kernels by those."""
    found = {}
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        for line in itertools.takewhile(str.strip, file):  # the first processor's
            name, _, value = line.partition(":")
            found[name.strip()] = value.strip()
    parts = [found[name] for name in ("vendor_id", "cpu family", "model") if name in found]
    return " ".join(parts) or "of an unknown make"
