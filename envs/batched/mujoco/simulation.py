"""Many simulations of one MuJoCo model, bit-equal to one `MjData` for each of them.

Problem. Gymnasium keeps an `MjData` for each replica and steps it in one thread. `mujoco.rollout`
steps many states on many threads, but does not return the solver's warm start, so that a second
call is no exact continuation of the first; nor does it return what MuJoCo derives on its way
(`cinert`, `cfrc_ext`, ...). Sensors would not help: Gymnasium reads these arrays as the last stage
of the last Runge-Kutta substep left them, and sensors are read before the first stage.

Here every replica is one row of MuJoCo's integration state, which holds positions, velocities,
controls and the warm start. Whatever steps a row first loads all of it, so that a row's future
depends on nothing else: not on the other rows, the threads, or which `MjData` it passes through.

* `PooledSimulation` is `mujoco.batch`, MuJoCo's own thread pool over such rows. It cannot run
  `mj_rnePostConstraint` after the last substep, and so knows no contact forces.
* `ThreadedSimulation` can: threads of Python, each with an `MjData`, step one row after another.
  MuJoCo lets go of the interpreter's lock while it computes, about 95 % of the time.

MuJoCo meets a state that has blown up with a warning, written to a file in the working directory,
and starts that simulation anew in the middle of its episode. Here nothing is written, and any
warning raises `BrokenSimulator` with the replica's number.
"""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import mujoco
import numpy as np
from mujoco import batch

from hts_envs.contract import Array
from hts_envs.errors import BrokenSimulator

_WHOLE = mujoco.mjtState.mjSTATE_INTEGRATION.value
_SHARES = 4  # pieces of work for each thread, so that a late thread holds nobody up for long


@contextmanager
def _unwritten() -> Iterator[None]:
    """MuJoCo counts its warnings, but writes them neither to a file nor to the terminal."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def load(path: Path) -> mujoco.MjModel:
    """The model in this file, without its notices about deprecated attributes."""
    with _unwritten():
        return mujoco.MjModel.from_xml_path(str(path))


class Simulation(ABC):
    """The rows of all replicas. `qpos` and `qvel` are views of them; read, never keep."""

    def __init__(self, model: mujoco.MjModel, state: Array, derived: dict[str, Array]) -> None:
        self.qpos = _component(model, state, mujoco.mjtState.mjSTATE_QPOS)
        self.qvel = _component(model, state, mujoco.mjtState.mjSTATE_QVEL)
        self.derived = derived
        self._control = _component(model, state, mujoco.mjtState.mjSTATE_CTRL)

    def start(self, rows: Array, qpos: Array, qvel: Array) -> None:
        """Begin anew in `rows`, at these positions and velocities."""
        with _unwritten():
            self._clear(rows)
            self.qpos[rows] = qpos
            self.qvel[rows] = qvel
            self._forward(rows)

    def advance(self, control: Array, substeps: int) -> None:
        """Hold `control` for this many substeps, in every row."""
        self._control[:] = control
        with _unwritten():
            self._step(substeps)

    @abstractmethod
    def _clear(self, rows: Array) -> None:
        """Return `rows` to the model's first state, without warnings."""

    @abstractmethod
    def _forward(self, rows: Array) -> None:
        """Derive what follows from the state of `rows`; no contact forces at an episode's start."""

    @abstractmethod
    def _step(self, substeps: int) -> None:
        """Advance every row."""

    def close(self) -> None:
        """Let the threads end."""
        return None


class PooledSimulation(Simulation):
    """MuJoCo's own batch."""

    def __init__(self, model: mujoco.MjModel, replicas: int, threads: int) -> None:
        self._batch = batch.Batch(model, replicas, threads)
        super().__init__(model, self._batch.state, {})

    def _clear(self, rows: Array) -> None:
        self._batch.reset(_ordered(rows), stage=mujoco.mjtStage.mjSTAGE_NONE.value)

    def _forward(self, rows: Array) -> None:
        self._run(lambda: self._batch.forward(_ordered(rows)))

    def _step(self, substeps: int) -> None:
        self._run(lambda: self._batch.step(nstep=substeps))

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        except batch.SimulationError as error:
            raise _broken(int(error.ids[0]), str(error)) from error
        details, numbers = np.moveaxis(self._batch.warning, 2, 0)  # (replicas, kinds) each
        if np.count_nonzero(numbers):
            row = int(np.argmax(numbers.any(axis=1)))
            raise _warned(row, numbers[row], details[row])


class _Scratch:
    """One `MjData`, and what is read from it; one thread at a time owns it."""

    def __init__(self, model: mujoco.MjModel, derived: dict[str, Array]) -> None:
        self.data = mujoco.MjData(model)
        self.copies = [(rows, getattr(self.data, name)) for name, rows in derived.items()]
        self.warnings = self.data.warning.number


_Work: TypeAlias = Callable[[_Scratch, Array], None]


class ThreadedSimulation(Simulation):
    """Threads of our own, which read the contact forces after the last substep."""

    def __init__(
        self, model: mujoco.MjModel, replicas: int, threads: int, derived: Sequence[str]
    ) -> None:
        self._model = model
        first = mujoco.MjData(model)
        self._first = np.empty(mujoco.mj_stateSize(model, _WHOLE))
        mujoco.mj_getState(model, first, self._first, _WHOLE)
        self._state = np.tile(self._first, (replicas, 1))
        sizes = {name: getattr(first, name).shape for name in derived}
        super().__init__(
            model, self._state, {name: np.zeros((replicas, *sizes[name])) for name in derived}
        )
        self._rows = list(self._state)
        self._threads = threads
        self._shelf: queue.SimpleQueue[_Scratch] = queue.SimpleQueue()
        for _ in range(threads):
            self._shelf.put(_Scratch(model, self.derived))
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def _clear(self, rows: Array) -> None:
        self._state[rows] = self._first

    def _forward(self, rows: Array) -> None:
        self._share(rows, self._forward_rows)

    def _step(self, substeps: int) -> None:
        def step(scratch: _Scratch, rows: Array) -> None:
            self._step_rows(scratch, rows, substeps)

        self._share(np.arange(len(self._rows)), step)

    def _share(self, rows: Array, work: _Work) -> None:
        """Do the work on all rows, in pieces; the first row that broke is the one that raises."""
        if self._pool is None:
            return self._piece(rows, work)
        pieces = np.array_split(rows, min(len(rows), _SHARES * self._threads) or 1)
        futures = [self._pool.submit(self._piece, piece, work) for piece in pieces]
        wait(futures)
        for future in futures:
            future.result()
        return None

    def _piece(self, rows: Array, work: _Work) -> None:
        scratch = self._shelf.get()
        try:
            work(scratch, rows)
        finally:
            scratch.warnings[:] = 0
            self._shelf.put(scratch)

    def _forward_rows(self, scratch: _Scratch, rows: Array) -> None:
        model, data = self._model, scratch.data
        for row in rows.tolist():
            mujoco.mj_setState(model, data, self._rows[row], _WHOLE)
            self._guard(row, scratch, lambda: mujoco.mj_forward(model, data))
            data.cfrc_ext[:] = 0.0  # the forces of the last row to pass through here
            self._keep(row, scratch)

    def _step_rows(self, scratch: _Scratch, rows: Array, substeps: int) -> None:
        model, data = self._model, scratch.data
        for row in rows.tolist():
            mujoco.mj_setState(model, data, self._rows[row], _WHOLE)
            self._guard(row, scratch, lambda: mujoco.mj_step(model, data, substeps))
            mujoco.mj_rnePostConstraint(model, data)
            self._keep(row, scratch)

    def _guard(self, row: int, scratch: _Scratch, call: Callable[[], Any]) -> None:
        try:
            call()
        except mujoco.FatalError as error:
            raise _broken(row, str(error)) from error
        if np.count_nonzero(scratch.warnings):
            raise _warned(row, scratch.warnings, scratch.data.warning.lastinfo)

    def _keep(self, row: int, scratch: _Scratch) -> None:
        mujoco.mj_getState(self._model, scratch.data, self._rows[row], _WHOLE)
        for target, source in scratch.copies:
            target[row] = source

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def simulate(
    model: mujoco.MjModel, replicas: int, threads: int, derived: Sequence[str]
) -> Simulation:
    """The fastest simulation that knows the `derived` arrays."""
    threads = max(1, min(threads, replicas))
    if derived:
        return ThreadedSimulation(model, replicas, threads, derived)
    return PooledSimulation(model, replicas, threads)


def _component(model: mujoco.MjModel, state: Array, component: mujoco.mjtState) -> Array:
    """The columns of one component; components lie in the order of their bits."""
    begin = mujoco.mj_stateSize(model, component.value - 1)
    return state[:, begin : begin + mujoco.mj_stateSize(model, component.value)]


def _ordered(rows: Array) -> Array:
    return np.sort(rows).astype(np.int32)


def _warned(row: int, numbers: Array, details: Array) -> BrokenSimulator:
    kind = int(np.flatnonzero(numbers)[0])
    return _broken(row, mujoco.mju_warningText(kind, int(details[kind])))


def _broken(row: int, why: str) -> BrokenSimulator:
    return BrokenSimulator(f"MuJoCo cannot go on with replica {row} of this world: {why}")
