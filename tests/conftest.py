"""Tests compute as every process of a run does: one thread, deterministic kernels."""

from __future__ import annotations

from hts.determinism import numerics

numerics.prepare()
