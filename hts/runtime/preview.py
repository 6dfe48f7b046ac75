"""An environment before a run: what it declares, and what its steps cost, found in a child process.

One process serves both, since it has to import the simulator first.
"""

from __future__ import annotations

import dataclasses
import functools
import io
from typing import Any

import numpy as np

from hts.bench.walks import StepCosts, measure_worlds
from hts.config import Resolved
from hts.models.fit import names_model, with_model
from hts.runtime.process import Pipe
from hts.runtime.simulator_process import SimulatorProcess
from hts_envs.contract import Box, Discrete, MultiDiscrete, Observation, Place, Space, Spaces
from hts_envs.registry import Spec, make, parse

_SPACES = {each.__name__: each for each in (Box, Discrete, MultiDiscrete)}


@dataclasses.dataclass(frozen=True)
class Look:
    """The declarations of one replica of an environment."""

    spaces: Spaces
    description: str = ""  # how it is played, where it says so
    reseeds: bool = True  # replicas can be rebuilt from the seeds of their episodes


class Preview:
    """A process that shows an environment, and measures its steps if it is asked to."""

    def __init__(self, env: str, seed: int, replicas: int = 1) -> None:
        self._replicas = replicas
        self._process = SimulatorProcess(env, _run, env, seed)

    def __enter__(self) -> Preview:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__()

    def look(self) -> Look:
        """Wait until one replica is built, and return what it declares."""
        message = self._process.receive()
        fields = {name: _from_plain(space) for name, space in message["observation"]}
        spaces = Spaces(fields, _from_plain(message["action"]), message["agents"])
        return Look(spaces, message["description"], message["reseeds"])

    def step_costs(self, seconds: float) -> StepCosts:
        """Measure steps for about so long; only once, after `look`."""
        self._process.doing = "its steps were measured"
        self._process.send(replicas=self._replicas, seconds=seconds)
        message = self._process.receive()
        return StepCosts(
            np.array(message["durations"]),
            message["cpu"],
            message["at_once"],
            _unpacked(message["raw"]),
            message["repeats"],
        )


@functools.cache
def look_once(env: str, seed: int) -> Look:
    """Return what the environment declares, found in a process of its own, once."""
    with Preview(env, seed) as preview:
        return preview.look()


def fitted(resolved: Resolved) -> Resolved:
    """Return the configuration with a model that fits its environment, where none was named."""
    experiment = resolved.config.experiment
    if names_model(resolved) or parse(experiment.env).family.name == "remote":
        return resolved
    return with_model(resolved, look_once(experiment.env, experiment.seed).spaces)


def look_here(spec: Spec, seed: int) -> Look:
    """Build one replica in this process, and return what it declares."""
    world = make(spec, Place(0, 1, seed))
    look = Look(world.spaces, getattr(world, "description", ""), world.traits.reseeds)
    world.close()
    return look


def _run(pipe: Pipe, env: str, seed: int) -> None:
    """The child's side: a look, then maybe a measurement, then its end."""
    spec = parse(env)
    look = look_here(spec, seed)
    pipe.send(
        observation=[(name, _plain(space)) for name, space in look.spaces.observation.items()],
        action=_plain(look.spaces.action),
        agents=look.spaces.agents,
        description=look.description,
        reseeds=look.reseeds,
    )
    try:
        wanted = pipe.receive()
    except EOFError:
        return
    costs = measure_worlds(spec, wanted["replicas"], wanted["seconds"])
    pipe.send(
        _packed(costs.seen),
        durations=costs.durations.tolist(),
        cpu=costs.cpu,
        at_once=costs.at_once,
        repeats=costs.repeats,
    )


def _plain(space: Space) -> list[Any]:
    return [type(space).__name__, *(getattr(space, f.name) for f in dataclasses.fields(space))]


def _from_plain(plain: list[Any]) -> Space:
    kind, *values = plain
    return _SPACES[kind](*map(_tuples, values))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _packed(seen: tuple[Observation, ...]) -> bytes:
    """Observations, one array for each field."""
    file = io.BytesIO()
    names = seen[0] if seen else ()
    fields: dict[str, Any] = {name: np.stack([each[name] for each in seen]) for name in names}
    np.savez(file, **fields)
    return file.getvalue()


def _unpacked(raw: bytes) -> tuple[Observation, ...]:
    with np.load(io.BytesIO(raw), allow_pickle=False) as file:
        fields = {name: file[name] for name in file.files}
    count = len(next(iter(fields.values()), ()))
    return tuple({name: array[row] for name, array in fields.items()} for row in range(count))
