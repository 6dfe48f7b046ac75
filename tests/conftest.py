"""Tests compute as every process of a run does: one thread, deterministic kernels."""

from __future__ import annotations

from hts.determinism import numerics

numerics.set_environment()

import torch  # noqa: E402, F401 - after what it reads when it is imported

numerics.settle()
