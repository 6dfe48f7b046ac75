"""Global settings that reach arithmetic: found, restored and named."""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from hts.bench.costs import Budget, measure
from hts.determinism import settings
from hts.errors import SettingsChanged
from hts.runtime.assemble import plan
from hts_envs import parse
from tests.fakes.runs import experiment, serial

ROUNDINGS = (0x400, 0x800, 0xC00)  # FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO of <fenv.h> on x86


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Whatever a test has changed."""
    yield
    settings.restore()


def no_oneDNN() -> None:  # noqa: N802 - its name
    torch.backends.mkldnn.enabled = False


def lower_one_library() -> None:
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"


def default_device() -> None:
    torch.set_default_device("meta")


def tf32() -> None:
    torch.backends.cudnn.allow_tf32 = True


CHANGES: dict[str, Callable[[], object]] = {
    "torch's number of threads to 3": lambda: torch.set_num_threads(3),
    "torch's deterministic debug mode to 0": lambda: torch.use_deterministic_algorithms(False),
    "torch's default dtype to float64": lambda: torch.set_default_dtype(torch.float64),
    "torch's number of function modes (a default device is one) to 1": default_device,
    "torch's recording of gradients to off": lambda: torch.set_grad_enabled(False),
    "torch's autocast to on": lambda: torch.set_autocast_enabled("cpu", True),
    "torch's use of oneDNN to off": no_oneDNN,
    "torch's float32 matmul precision to medium": lambda: torch.set_float32_matmul_precision(
        "medium"
    ),
    "oneDNN's float32 precision of matmul to bf16": lower_one_library,
    "the processor's floating-point mode to flushing denormals to zero": lambda: (
        torch.set_flush_denormal(True)
    ),
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_change_is_found_restored_and_named(words: str) -> None:
    """Each setting by itself: one change, one sentence, and nothing is left of it."""
    assert settings.are_kept()
    CHANGES[words]()
    assert not settings.are_kept()
    assert [change.in_words for change in settings.restore()] == [words]
    assert settings.are_kept()
    assert settings.restore() == []


def test_a_flag_of_gpus_is_restored_where_there_is_none() -> None:
    """No answer depends on it here, so it costs no step anything, but it is set like the others."""
    tf32()
    assert [change.in_words for change in settings.restore()] == ["cuDNN's use of TF32 to on"]
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other modes have other numbers")
def test_the_rounding_of_a_native_simulator_is_found() -> None:
    """By arithmetic, in every rounding mode, and restored without torch."""
    libc = ctypes.CDLL(None)
    for mode in ROUNDINGS:
        assert libc.fesetround(mode) == 0
        assert not settings.are_kept()
        (change,) = settings.restore()
        assert change.in_words.startswith("the processor's floating-point mode to rounding ")
        assert libc.fegetround() == 0


def test_flushing_reaches_numbers_until_it_is_restored() -> None:
    """What is restored is what NumPy computes with."""
    torch.set_flush_denormal(True)
    small = np.full(8, np.float32(1.2e-38))
    assert not (small * np.float32(0.1)).any()
    settings.restore()
    assert (small * np.float32(0.1)).all()


def test_what_no_simulator_has_changed_stops_a_run() -> None:
    """Between two calls of simulators only a thread changes settings: the next rollout is not
    begun, and the next update not made."""
    run = serial(experiment())
    try:
        updates = iter(run)
        next(updates)
        thread = threading.Thread(target=torch.set_float32_matmul_precision, args=("medium",))
        thread.start()
        thread.join()
        with pytest.raises(SettingsChanged, match="float32 matmul precision to medium"):
            next(updates)
    finally:
        run.close()
    assert settings.are_kept()


def test_what_a_measured_world_changes_does_not_reach_the_network() -> None:
    """hts-bench takes steps in the process that measures the network next."""
    spec = parse("python:tests.fakes.careless:make")
    found = plan(experiment(spec.canonical()), spec, "cpu")
    measure(found, spec, Budget(steps=0.02, inference=0.02, learning=0.02))
    assert settings.are_kept()
    torch.set_float32_matmul_precision("medium")
    with pytest.raises(SettingsChanged):
        found.strategy()


def test_what_a_world_changes_while_it_is_built_is_restored_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything is computed, and with the environment's name."""
    run = serial(experiment("python:tests.fakes.greedy:make", replicas=2))
    try:
        next(iter(run))
    finally:
        run.close()
    assert settings.are_kept()
    assert (
        "one of replicas 0 to 1 (python:tests.fakes.greedy:make) changed torch's number of threads "
        "to 3 in its construction; it is restored to 1"
    ) in capsys.readouterr().err
