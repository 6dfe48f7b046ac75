"""Time limits of tests: guards against hangs, not measurements."""

HANG = 300.0
"""Seconds after which a command is taken for hung, on a machine that is busy with other things."""
