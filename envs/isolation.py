"""`?isolate=generators`: global random generators that belong to one replica.

A simulator that draws from the global generators of `random`, `numpy.random` or torch shares them
with every other replica in its process, so what it does depends on which replicas are there and on
their order. An isolated replica has generators of its own. They are installed before each call of
the simulator and saved after it, and they are seeded before it is built and before every reset, so
an episode depends on nothing but its own seed.

Only global generators are isolated. Other state outside the simulator (attributes of classes and
modules, static variables of native code) stays shared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.random.mtrand import get_bit_generator, set_bit_generator

from hts_envs.contract import Array, Observation, Step, World
from hts_envs.options import option
from hts_envs.randomness import fold

_ONE_AT_A_TIME = threading.Lock()
"""There is one set of global generators, so replicas that have a thread each take turns."""


@dataclass(frozen=True)
class Isolation:
    """The option of families whose simulators may draw from global generators."""

    isolate: Literal["none", "generators"] = option(
        "none",
        "generators: random, numpy.random and torch have generators of each replica's own",
        always_spelled=False,
    )


class Generators:
    """The global generators as one replica last left them; torch's once torch is imported."""

    def __init__(self) -> None:
        self._own = np.random.MT19937(0)
        self._numpy: Any = self._own
        self._python: Any = None
        self._torch: Any = None

    @contextlib.contextmanager
    def installed(self, seed: int | None = None) -> Iterator[None]:
        """Make these the global generators, and keep what the calls inside leave of them.

        With a seed they start again from it alone; the first time needs one. NumPy's generator is
        exchanged as an object, which takes 0.2 us; its state takes 50 us to copy. A second normal
        number that NumPy has drawn in advance is dropped with every exchange.
        """
        with _ONE_AT_A_TIME:
            outside = get_bit_generator()
            try:
                self._install() if seed is None else self._seed(seed)
                yield
            finally:
                self._python = random.getstate()
                self._numpy = get_bit_generator()
                set_bit_generator(outside)
                if "torch" in sys.modules:
                    self._torch = _torch_generator().get_state()

    def _install(self) -> None:
        random.setstate(self._python)
        set_bit_generator(self._numpy)
        if self._torch is not None:
            _torch_generator().set_state(self._torch)

    def _seed(self, seed: int) -> None:
        random.seed(fold(seed, 1))
        set_bit_generator(self._own)  # a simulator may have put another kind there
        key = fold(seed, 2)
        np.random.seed([key >> 32, key & 0xFFFFFFFF])
        if "torch" in sys.modules:
            _torch_generator().manual_seed(fold(seed, 3) >> 1)


class IsolatedWorld(World):
    """A world around which global generators are exchanged; in all else it is that world.

    It offers no snapshots, since those of the simulator lack the generators: it is rebuilt from
    seeds and actions.
    """

    def __init__(self, build: Callable[[], World], seed: int) -> None:
        self._generators = Generators()
        with self._generators.installed(seed):
            self._world = build()
        self.spaces = self._world.spaces
        self.traits = dataclasses.replace(self._world.traits, snapshots=False)
        self.frame_rate = self._world.frame_rate
        self.description = getattr(self._world, "description", "")

    def reset(self, seed: int) -> Observation:
        with self._generators.installed(int(seed)):
            return self._world.reset(seed)

    def step(self, action: Array) -> Step:
        with self._generators.installed():
            return self._world.step(action)

    def frame(self) -> Array | None:
        with self._generators.installed():
            return self._world.frame()

    def close(self) -> None:
        with self._generators.installed():
            self._world.close()


def _torch_generator() -> Any:
    return sys.modules["torch"].default_generator
