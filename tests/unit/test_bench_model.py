"""The model of the machine, against known figures and against its rules written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from hts.bench.model import Dataflow, Flow, GammaTimes, MeasuredTimes, cpu_limit, simulate

EXPONENTIAL = GammaTimes(0.005)


def flow(alpha: int, schedule: str, replicas: int = 16, **changes: float) -> Flow:
    machine = Dataflow(replicas=replicas, alpha=alpha, schedule=schedule, **changes)  # type: ignore[arg-type]
    return simulate(EXPONENTIAL, machine)


@pytest.mark.parametrize(
    ("alpha", "with_swap", "without"), [(4, 2.06, 1.34), (16, 1.49, 1.10), (64, 1.23, 1.03)]
)
def test_the_model_says_what_waiting_costs(alpha: int, with_swap: float, without: float) -> None:
    """16 replicas with exponential steps lose what the design says, to 1.5 % (chance, rounding)."""
    assert flow(alpha, "hts_barrier").factor == pytest.approx(with_swap, rel=0.015)
    assert flow(alpha, "hts").factor == pytest.approx(without, rel=0.015)


@pytest.mark.parametrize(("alpha", "expected"), [(4, 2380), (16, 2900), (64, 3100)])
def test_the_model_says_how_fast_the_sleeper_is(alpha: int, expected: float) -> None:
    """16 replicas that sleep 5 ms make so many of 3,200 steps per second, to 1.5 %."""
    assert flow(alpha, "hts").steps_per_second == pytest.approx(expected, rel=0.015)


def gamma_quantile(p: float, shape: float, rate: float) -> float:
    """The inverse of the gamma distribution's function, by bisection."""
    low, high = 0.0, 100.0 * (shape + 10.0) / rate
    for _ in range(200):
        middle = (low + high) / 2
        at = torch.tensor([shape, rate * middle], dtype=torch.float64)
        low, high = (middle, high) if torch.special.gammainc(*at) < p else (low, middle)
    return low


def claim_1(replicas: int, alpha: int, rate: float) -> float:
    """Seconds of 100 rollouts as claim 1 of the HTS-RL paper has them, acting for nothing."""
    last = gamma_quantile(1 - 1 / replicas, alpha, rate)
    return 100 * (np.euler_gamma / rate * (1 + (alpha - 1) / (rate * last)) + last)


@pytest.mark.parametrize(
    ("replicas", "alpha", "rate", "formula", "simulated"),
    [
        (16, 4, 2.0, 411.3, 412.6),
        (16, 1, 2.0, 167.5, 169.3),
        (16, 16, 2.0, 1174.9, 1192.3),
        (16, 64, 2.0, 3887.5, 3945.1),
        (16, 4, 0.5, 1645.3, 1652.4),
        (64, 4, 2.0, 509.5, 509.5),
    ],
)
def test_the_barrier_takes_what_claim_1_says(
    replicas: int, alpha: int, rate: float, formula: float, simulated: float
) -> None:
    """The swap is the paper's: its formula holds to 2 %, a large simulation of it to 1 %."""
    assert claim_1(replicas, alpha, rate) == pytest.approx(formula, abs=0.06)
    machine = Dataflow(replicas=replicas, alpha=alpha, schedule="hts_barrier")
    found = simulate(GammaTimes(1 / rate), machine)
    seconds = 100 * replicas * alpha / found.steps_per_second
    assert seconds == pytest.approx(formula, rel=0.02)
    assert seconds == pytest.approx(simulated, rel=0.01)


def slowly(parts: np.ndarray, schedule: str, learning: float) -> list[float]:
    """When each rollout's version is published, by asking who waits for what, recursively."""

    def published(v: int) -> float:
        lag = 1 if schedule == "sync" else 2
        if v < lag:
            return 0.0
        return max(complete(v - lag), published(v - 1)) + learning

    def complete(v: int) -> float:
        return max(ready(v, r) for r in range(parts.shape[1]))

    def ready(v: int, r: int) -> float:
        if v < 0:
            return 0.0
        before = complete(v - 1) if schedule == "hts_barrier" and v else ready(v - 1, r)
        return max(before, published(v)) + float(parts[v, r])

    lag = 1 if schedule == "sync" else 2
    return [published(v + lag) for v in range(len(parts))]


@pytest.mark.parametrize("schedule", ["hts", "hts_barrier", "sync"])
@pytest.mark.parametrize("learning", [0.0, 0.4, 3.0])
def test_the_model_is_the_dataflow(schedule: str, learning: float) -> None:
    """Each schedule publishes when the rules of who waits for whom, written out, say so."""
    from hts.bench.model import _PUBLISHED

    parts = np.random.default_rng(5).exponential(1.0, (6, 3))
    found = _PUBLISHED[schedule](parts, learning)
    assert found.tolist() == pytest.approx(slowly(parts, schedule, learning), rel=1e-12)


def test_learning_is_hidden_until_it_is_the_longest() -> None:
    """An update shorter than a rollout costs nothing under hts; a longer one is the pace itself."""
    steady = GammaTimes(0.01, 1e6)
    for schedule, learning, seconds in (
        ("hts", 0.05, 0.1),
        ("hts", 0.25, 0.25),
        ("hts_barrier", 0.05, 0.1),
        ("sync", 0.05, 0.15),
    ):
        machine = Dataflow(replicas=4, alpha=10, schedule=schedule, learning=learning)  # type: ignore[arg-type]
        assert 40 / simulate(steady, machine).steps_per_second == pytest.approx(seconds, rel=0.01)


def test_an_answer_on_its_way_lengthens_every_step() -> None:
    """Ten steps of 10 ms with a round trip of 2.5 ms take 125 ms."""
    machine = Dataflow(replicas=1, alpha=10, latency=0.0025)
    assert 10 / simulate(GammaTimes(0.01, 1e6), machine).steps_per_second == pytest.approx(
        0.125, rel=0.01
    )


def test_measured_steps_stand_for_their_distribution() -> None:
    """Steps drawn from 20,000 exponential ones lose as much as exponential steps."""
    quantiles = (np.arange(20_000) + 0.5) / 20_000
    measured = MeasuredTimes(-0.005 * np.log1p(-quantiles))
    machine = Dataflow(replicas=16, alpha=4)
    assert measured.mean == pytest.approx(0.005, rel=0.001)
    found, expected = simulate(measured, machine), simulate(EXPONENTIAL, machine)
    assert found.factor == pytest.approx(expected.factor, rel=0.015)


def test_more_waiting_never_helps() -> None:
    """Longer updates, slower answers, shorter rollouts and the swap each cost throughput."""
    rates = [flow(16, "hts", learning=learning).steps_per_second for learning in (0.0, 0.05, 0.2)]
    rates += [flow(16, "sync", learning=0.2).steps_per_second]
    assert all(a > b for a, b in itertools.pairwise(rates))
    assert flow(16, "hts").factor < flow(8, "hts").factor < flow(8, "hts_barrier").factor


def test_the_cpu_limit_is_arithmetic() -> None:
    """1.7 ms of engine, 0.22 of inference and 1.1 of learning on two cores: 662 a second."""
    assert math.floor(cpu_limit(2, 1.7e-3 + 0.22e-3 + 1.1e-3)) == 662
