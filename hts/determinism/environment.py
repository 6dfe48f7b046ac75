"""Environment variables that reach arithmetic: set to one value, or recorded with each run.

Libraries read them when they are loaded or first used, to choose instructions, kernels, precision
and numbers of threads. Which ones there are was looked up in the libraries' manuals and, for names
that no manual has, in their binaries. A user may set those that are recorded: it is another
arithmetic, whose digests are compared with that of others only with a warning.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from hts.determinism.settings import Change

FIXED = {
    # More threads collapse beside busy neighbours, and change sums. OpenBLAS (NumPy's) would read
    # OMP_NUM_THREADS, but its own two names come first.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # deterministic products on GPUs
}
"""Values that are the same in every process of a run."""

RECORDED = (
    # MKL, in torch: code branch, instructions, algorithms of products, threads.
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_DISABLE_FAST_MM",
    "MKL_DOMAIN_NUM_THREADS",
    "MKL_DYNAMIC",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_INTERFACE_LAYER",
    "MKL_NUM_STRIPES",
    "MKL_THREADING_LAYER",
    # oneDNN, in torch, under its present and its former name: instructions and precision.
    "ONEDNN_CPU_ISA_HINTS",
    "DNNL_CPU_ISA_HINTS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    # torch: its own vectorised kernels, and which library computes what, in which precision.
    "ATEN_CPU_CAPABILITY",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_BLAS_PREFER_HIPBLASLT",
    "TORCH_CUDNN_USE_HEURISTIC_MODE_B",
    "TORCH_CUDNN_V8_API_DISABLED",
    "TORCH_LINALG_PREFER_CUSOLVER",
    "TORCH_LINALG_PREFER_HIPSOLVER",
    "TORCH_LINEAR_FLATTEN_3D",
    "TORCH_MKLDNN_MATMUL_MIN_DIM",
    "TORCH_MKLDNN_MATMUL_MIN_SIZE",
    # GPUs: precision, and memory by which algorithms are chosen.
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY",
    "NVIDIA_TF32_OVERRIDE",
    # OpenMP: how sums are shared and added.
    "KMP_DETERMINISTIC_REDUCTION",
    "KMP_FORCE_REDUCTION",
    "OMP_DYNAMIC",
    "OMP_SCHEDULE",
    "OMP_THREAD_LIMIT",
    # NumPy and its OpenBLAS: kernels and blocks.
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "OPENBLAS_BLOCK_FACTOR",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    # The C library, whose exp, log and sin have a variant for each generation of processors; and
    # what may stand in for any library.
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
)
"""Variables that a user may have set; those that are set are stored with the run."""

_UNSET = "unset"
_CPU = "glibc.cpu."  # the tunables that choose instructions; others are about memory


class _Environment:
    """The values of this process, as it began."""

    before: Mapping[str, str | None] = {}


def fix() -> None:
    """Give every fixed variable its value, and remember the others as they are."""
    os.environ.update(FIXED)
    _Environment.before = {name: os.environ.get(name) for name in (*FIXED, *RECORDED)}


def restore() -> list[Change]:
    """Give every variable the value that it had when this process began: a library that is first
    used later would read what a simulator has set. Return what had another value."""
    changes = []
    for name, value in _Environment.before.items():
        found = os.environ.get(name)
        if found == value:
            continue
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
        setting = f"the environment variable {name}"
        changes.append(Change(setting, found or _UNSET, value or _UNSET, per_thread=False))
    return changes


def recorded() -> dict[str, str]:
    """Return the variables that are set, but for those that every run has alike."""
    values = {name: os.environ.get(name, "") for name in RECORDED}
    tunables = values["GLIBC_TUNABLES"].split(":")
    values["GLIBC_TUNABLES"] = ":".join(each for each in tunables if each.startswith(_CPU))
    return {name: value for name, value in values.items() if value}
