"""What stands in every process of a run: the same numerics, the same parameters, no more."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from hts.config import Experiment, Machine
from hts.errors import RoleFailed
from hts.runtime.assemble import plan
from hts.runtime.parallel import ParallelRun
from hts.runtime.shared import Roles
from hts_envs import parse
from tests.fakes import births
from tests.fakes.runs import experiment, outcome
from tests.fakes.telling_roles import VARIABLES, hashed

TELLING = Roles("tests.fakes.telling_roles:answering", "tests.fakes.telling_roles:Learner")

GREEDY = "python:tests.fakes.greedy:make"
CARELESS = "python:tests.fakes.careless:make"
PRECISION = (
    f"hts: replica 0 ({CARELESS}) changed torch's float32 matmul precision to medium in reset; "
    "it is restored to highest"
)
ROUNDING = (
    f"hts: replica 0 ({CARELESS}) changed the processor's floating-point mode to flushing "
    "denormals to zero in step; it is restored to rounding to nearest, with denormals"
)
INLINE = {"executor 0", "executor 1", "learner"}
LAYOUTS = {
    "inline": ("gym:CartPole-v1", Machine(executors=2), INLINE),
    "inline, beside a simulator made of torch": (GREEDY, Machine(executors=2), INLINE),
    "actors": (GREEDY, Machine(executors=1, actors=2), {"actor 0", "actor 1", "learner"}),
}


@contextmanager
def running(asked: Experiment, machine: Machine, roles: Roles) -> Iterator[ParallelRun]:
    """A run that is ended whatever happens."""
    found = plan(asked, parse(asked.env), "cpu")
    run = ParallelRun(dataclasses.replace(found, roles=roles), machine)
    try:
        yield run
    finally:
        run.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_process_computes_alike_from_the_learner_s_parameters(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules 21 and 26: one thread, deterministic kernels, no TF32, set by each process itself
    whatever a simulator does in it, and version 0 is the same bits for whoever acts or learns."""
    for name in VARIABLES:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HTS_TEST_FOLDER", str(tmp_path))
    env, machine, names = LAYOUTS[layout]
    asked = experiment(env, updates=1)
    with running(asked, machine, TELLING) as run:
        list(run)
    told = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert set(told) == names
    first = plan(asked, parse(asked.env), "cpu").first_versions()[0].parameters
    for found in told.values():
        assert found == {
            "threads": [1, 1],
            "deterministic": 2,
            "fills": False,
            "tf32": [False, False],
            "benchmark": False,
            "variables": ["1", "1", ":4096:8"],
            "parameters": hashed(first),
        }


def test_a_simulator_made_of_torch_is_as_good_as_any() -> None:
    """Rule 21: the same world with and without torch in it, in one process: the same bits."""
    runs = [outcome(experiment(env, updates=2)) for env in (GREEDY, "gym:CartPole-v1")]
    made, expected = ([update.link.parameters for update in updates] for updates in runs)
    assert made == expected
    assert torch.get_num_threads() == 1


def parameters_of(env: str, machine: Machine) -> list[str]:
    """The hashes of each update's parameters."""
    with running(experiment(env, updates=2), machine, Roles()) as run:
        return [updated.link.parameters for updated in run]


def test_a_simulator_that_changes_precision_changes_no_result(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Whether the network computes in the simulators' process, another one, or one with everything,
    results are those of the same simulator that changes nothing; and the change is reported once
    by each process, with the replica and the call."""
    expected = parameters_of("gym:CartPole-v1", Machine(executors=1))
    capfd.readouterr()
    for machine in (Machine(executors=1, actors=0), Machine(executors=1, actors=1)):
        assert parameters_of(CARELESS, machine) == expected
        lines = capfd.readouterr().err.splitlines()
        assert [line for line in lines if "float32" in line] == [PRECISION]
        assert [line for line in lines if "denormals" in line] == [ROUNDING]
    assert [each.link.parameters for each in outcome(experiment(CARELESS, updates=2))] == expected
    assert capfd.readouterr().err.splitlines() == [PRECISION, ROUNDING]


def test_a_simulator_beside_a_thread_that_computes_may_not_change_precision() -> None:
    """An answer that another thread computes meanwhile has one precision or the other: no digest
    can be promised, so the run stops, and says how it can go on."""
    machine = Machine(executors=1, actors=0, stepping="threads")
    with pytest.raises(RoleFailed, match="--actors 1") as raised:
        parameters_of(CARELESS, machine)
    assert "torch's float32 matmul precision to medium" in raised.value.short


@pytest.mark.parametrize(("actors", "most"), [(0, 120e6), (1, 60e6)])
def test_what_is_imported_is_shared(actors: int, most: float) -> None:
    """In a real run, after its first update: what each process has for itself alone. An import of
    torch of its own would be 140 MB."""
    with running(experiment(updates=10**6), Machine(executors=2, actors=actors), Roles()) as run:
        next(iter(run))
        own = {child.name: births.own_bytes(child.pid) for child in run.children}
    assert max(own.pop("executor 0"), own.pop("executor 1")) < most
    assert max(own.values()) < 120e6, "actors and the learner compute"


def test_what_an_executor_is_made_of_does_not_import_torch() -> None:
    """The module of its process, and everything that it imports at its top."""
    program = "import sys, hts.runtime.executor_process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_command_that_imports_a_simulator_of_torch_first_is_prepared() -> None:
    """To read its options, before anything else imports torch: the environment is set by then."""
    program = (
        "import sys\n"
        "from hts.cli import shell\n"
        "from hts.determinism import numerics\n"
        "def work():\n"
        "    import tests.fakes.greedy, torch\n"
        "    numerics.prepare()\n"
        "    print(torch.get_num_threads(), torch.get_num_interop_threads())\n"
        "    return 0\n"
        "sys.exit(shell.run('command', work))\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (said.returncode, said.stdout.split()) == (0, ["1", "1"]), said.stderr


def test_an_operation_without_a_deterministic_version_is_named() -> None:
    """Rule 21: torch raises an error with its name, and its line is in the traceback."""
    unsteady = (
        "from hts.determinism import numerics; numerics.prepare(); import torch; "
        "torch.zeros(3).put_(torch.tensor([1, 1]), torch.tensor([1.0, 2.0]))"
    )
    said = subprocess.run([sys.executable, "-c", unsteady], capture_output=True, text=True)
    assert said.returncode == 1
    assert "put_ does not have a deterministic implementation" in said.stderr


def test_a_learner_with_the_wrong_version_is_found_out() -> None:
    """Invariant I3 as the numbers have it: versions 0 and 1 are the same parameters, and the second
    update is the first one that can be made from the wrong ones. Its lag looks right."""
    roles = Roles(learner="tests.fakes.telling_roles:Ahead")
    with (
        running(experiment(updates=3), Machine(executors=1), roles) as run,
        pytest.raises(RoleFailed, match="update 2: the ratios of its first minibatch differ"),
    ):
        list(run)
