"""What every process of a run is started with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hts.determinism import environment, numerics
from tests.limits import HANG


@pytest.fixture(autouse=True)
def remembered() -> Iterator[None]:
    """What is remembered of this process's environment is what it has, after each test."""
    yield  # set up first, so that variables are put back before what follows
    numerics.set_environment()


SPEND = """
import resource
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(1 << 26)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_a_child_keeps_its_large_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB taken and left again and again come fresh from the kernel once, page by page; without
    the environment that is set, they do so every time."""
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
        monkeypatch.delenv(name)

    def faults() -> list[int]:
        command = [sys.executable, "-c", SPEND]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [int(line) for line in said.split()]

    assert min(faults()) > 10_000
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    for name in ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.setenv(name, "0")  # so that what is set below is taken back afterwards
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
    numerics.set_environment()
    first, *others = faults()
    assert first > 10_000
    assert max(others) < 100


def test_memory_is_asked_for_in_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what a user has tuned, and not where that says otherwise."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    for name in ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.setenv(name, "0")
    asked, own = "glibc.malloc.hugetlb=1", "glibc.malloc.arena_max=2"
    for before, after in (("", asked), (own, f"{own}:{asked}"), (asked[:-1] + "0",) * 2):
        monkeypatch.setenv("GLIBC_TUNABLES", before)
        numerics.set_environment()
        numerics.set_environment()
        assert os.environ["GLIBC_TUNABLES"] == after


def test_a_variable_that_reaches_arithmetic_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are set, under the heading `environment`; of the C library's, the ones that choose
    instructions. Every process of a run has the same number of threads, which needs no record."""
    for name in environment.RECORDED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    tunables = "glibc.malloc.hugetlb=1:glibc.cpu.hwcaps=-AVX512F"
    monkeypatch.setenv("GLIBC_TUNABLES", tunables)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    numerics.set_environment()
    assert numerics.describe("cpu")["environment"] == {
        "MKL_CBWR": "COMPATIBLE",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F",
    }
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


def test_what_a_simulator_sets_reaches_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is first used after a simulator was built reads what the run began with."""
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    numerics.set_environment()
    os.environ.update(MKL_CBWR="COMPATIBLE", ONEDNN_MAX_CPU_ISA="SSE41", OMP_NUM_THREADS="4")
    assert sorted(change.in_words for change in numerics.settle()) == [
        "the environment variable MKL_CBWR to COMPATIBLE",
        "the environment variable OMP_NUM_THREADS to 4",
        "the environment variable ONEDNN_MAX_CPU_ISA to SSE41",
    ]
    assert (os.environ["MKL_CBWR"], os.environ["OMP_NUM_THREADS"]) == ("AVX2", "1")
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ
    assert numerics.settle() == []


def test_numerics_are_compared_by_name() -> None:
    """Two records of today differ in a variable; of an older one, which has none, it is unknown."""
    plain = {"torch": "2", "environment": {}}
    other = {"torch": "2", "environment": {"MKL_CBWR": "AVX2"}}
    older = {"torch": "1"}
    assert numerics.differences(plain, plain) == []
    assert numerics.differences(plain, other) == [("MKL_CBWR", "unset", "AVX2")]
    assert numerics.differences(other, plain) == [("MKL_CBWR", "AVX2", "unset")]
    assert numerics.differences(older, other) == [("torch", "1", "2")]
    assert numerics.facts(older) == {"torch": "1", "environment": "not recorded"}


LOOKED = """
import contextlib, os, sys
from hts.config import configure
from hts.determinism import numerics
from hts.errors import BadConfig
with contextlib.suppress(BadConfig):  # looking for the GPU imports torch
    configure("smoke", ("device=cuda:77",))
assert "torch" in sys.modules
numerics.prepare()
import torch
print(torch.get_num_threads(), torch.get_num_interop_threads(), os.environ["OMP_NUM_THREADS"])
"""


def test_a_configuration_that_looks_at_torch_leaves_it_prepared() -> None:
    """Checking a named GPU, or bfloat16, before a run begins leaves numerics as they must be."""
    command = [sys.executable, "-c", LOOKED]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.stdout.split() == ["1", "1", "1"], said.stderr


def test_processors_of_one_instruction_set_are_told_apart() -> None:
    """Libraries choose kernels by vendor and model: a run that goes on elsewhere is told so."""
    make = numerics.describe("cpu")["cpu"].partition(", ")[2]
    assert make, "this processor has a vendor and a model, or is said to have none"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        told = file.read()
    if "vendor_id" in told:
        assert make.split()[0] in told


TORCH_FIRST = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(2)
(torch.ones(300, 300) @ torch.ones(300, 300)).sum()
from hts.cli.train import main
sys.exit(main(sys.argv[1:]))
"""


def test_torch_may_be_imported_before_a_command(tmp_path: Path) -> None:
    """By a program that calls `main` itself: threads are set all the same, and the digest is the
    one of the command."""
    small = ("--config", "smoke", "--set", "serial=true", "--steps", "256", "--evaluate", "0")
    digests = []
    for name, start in (("library", ["-c", TORCH_FIRST]), ("command", ["-m", "hts.cli.train"])):
        command = [sys.executable, *start, *small, "--run-dir", str(tmp_path / name)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
        assert said.returncode == 0, said.stderr
        digests.append(json.loads((tmp_path / name / "result.json").read_text())["digest"])
    assert digests[0] == digests[1]
