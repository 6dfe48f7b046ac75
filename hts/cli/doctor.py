"""`hts-doctor`: is this machine ready? What is missing, and the command that mends it."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from hts.cli import shell
from hts.memory.room import available
from hts_envs.errors import install_command
from hts_envs.registry import FAMILIES, family, missing

Verdict = Literal["ok", "warning", "blocker"]

MEMORY_NEEDED = 2 * 2**30
FILES_NEEDED = 1024
DISK_NEEDED = 2 * 2**30

_SIGNS = {"ok": "+", "warning": "!", "blocker": "x"}
_COLOURS = {"ok": "\033[32m", "warning": "\033[33m", "blocker": "\033[31m"}
_PLAIN = "\033[0m"


@dataclass(frozen=True)
class Line:
    """One thing looked at: what was found, how bad it is, and the command that mends it."""

    subject: str
    found: str
    verdict: Verdict = "ok"
    mend: str = ""


def python() -> Iterator[Line]:
    version = platform.python_version()
    yield Line("python", f"{version} at {sys.executable}")


def torch() -> Iterator[Line]:
    """torch and what it can compute on; also what its thread count would be."""
    try:
        import torch as found
    except (ImportError, OSError) as error:
        yield Line("torch", f"cannot be imported: {error}", "blocker", "pip install torch==2.13.0")
        return
    capability = found.backends.cpu.get_cpu_capability()
    yield Line("torch", f"{found.__version__}, CPU kernels for {capability}")
    if not found.cuda.is_available():
        yield Line("device", "cpu (no GPU that torch can use)")
        return
    for index in range(found.cuda.device_count()):
        gpu = found.cuda.get_device_properties(index)
        yield Line("device", f"cuda:{index} {gpu.name}, {_size(gpu.total_memory)}")


def cores() -> Iterator[Line]:
    usable, all_cores = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    found = f"{usable} usable of {all_cores}"
    quota = _cpu_quota()
    if quota is not None and quota < usable:
        yield Line("cores", f"{found}, but this container is limited to {quota:.1f}", "warning")
    elif usable == 1:
        yield Line("cores", f"{found}: executors and learner take turns", "warning")
    else:
        yield Line("cores", found)


def memory() -> Iterator[Line]:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    room = available()
    found = f"{_size(total)}; {_size(room.size)} are free {room.limit}"
    if room.size >= MEMORY_NEEDED:
        yield Line("memory", found)
    else:
        mend = "close other programs, or train with fewer --envs"
        yield Line("memory", found, "warning", mend)


def shared_memory() -> Iterator[Line]:
    """Storages live in memory that has no name."""
    try:
        os.close(os.memfd_create("hts"))
    except OSError as error:
        mend = "ulimit -n 4096; and outside of sandboxes that forbid memfd_create"
        yield Line("shared memory", f"cannot be had: {error.strerror}", "blocker", mend)
    else:
        yield Line("shared memory", "is taken from memory; the size of /dev/shm does not matter")


def limits() -> Iterator[Line]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft >= FILES_NEEDED or soft == resource.RLIM_INFINITY
    yield Line(
        "open files",
        f"at most {soft:,} (can be raised to {hard:,})",
        "ok" if enough else "warning",
        "" if enough else f"ulimit -n {min(hard, 4096) if hard > 0 else 4096}",
    )


def disk(where: Path = Path()) -> Iterator[Line]:
    free = shutil.disk_usage(where).free
    writable = os.access(where, os.W_OK)
    found = f"{_size(free)} free in {where.resolve()}"
    if not writable:
        yield Line("disk", f"{where.resolve()} is not writable", "warning", "cd elsewhere")
    elif free < DISK_NEEDED:
        yield Line("disk", found, "warning", "train with --run-dir on another disk")
    else:
        yield Line("disk", found)


def families() -> Iterator[Line]:
    """Which worlds can be built here."""
    for name in FAMILIES:
        found = family(name)
        absent = missing(found)
        if absent:
            mend = install_command(found.extra)
            yield Line(f"{name}:", f"needs {', '.join(absent)}", "warning", mend)
        else:
            yield Line(f"{name}:", f"{found.summary}{_versions(found.packages)}")


LOOKED_AT: tuple[Callable[[], Iterator[Line]], ...] = (
    python,
    torch,
    cores,
    memory,
    shared_memory,
    limits,
    disk,
    families,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    parser = shell.Parser(
        prog="hts-doctor",
        description="Is this machine ready to train? Exit code 1 when something prevents it.",
    )
    parser.parse_args(argv)
    return shell.run("hts-doctor", _doctor)


def _doctor() -> int:
    lines = [line for look in LOOKED_AT for line in look()]
    print(screen(lines, colour=sys.stdout.isatty()))
    return shell.FAILED if any(line.verdict == "blocker" for line in lines) else shell.DONE


def screen(lines: Sequence[Line], *, colour: bool) -> str:
    """What was found, a line each, the mending command below its problem; then the verdict."""
    width = max(len(line.subject) for line in lines)
    shown = []
    for line in lines:
        sign = _SIGNS[line.verdict]
        sign = f"{_COLOURS[line.verdict]}{sign}{_PLAIN}" if colour else sign
        shown.append(f"{sign} {line.subject:<{width}}  {line.found}")
        if line.mend:
            shown.append(f"  {'':<{width}}  mend: {line.mend}")
    blockers = [line.subject for line in lines if line.verdict == "blocker"]
    warnings = sum(line.verdict == "warning" for line in lines)
    if blockers:
        verdict = f"Not ready: {', '.join(blockers)}."
    elif warnings:
        verdict = f"Ready, with {warnings} {'warning' if warnings == 1 else 'warnings'}."
    else:
        verdict = "Ready."
    return "\n".join([*shown, "", verdict])


def _versions(packages: Sequence[str]) -> str:
    found = []
    for package in packages:
        try:
            found.append(f"{package} {metadata.version(package.replace('_', '-'))}")
        except metadata.PackageNotFoundError:
            continue  # a module that has another distribution's name
    return f" ({', '.join(found)})" if found else ""


def _size(count: int) -> str:
    gib = count / 2**30
    return f"{gib:.1f} GiB" if gib >= 1 else f"{count / 2**20:.0f} MiB"


def _cpu_quota() -> float | None:
    """Cores that the control group grants, where it grants fewer than there are."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


if __name__ == "__main__":
    sys.exit(main())
