"""The machine on one page: what is shared, who writes it, who reads it, and what always holds.

    executors  --observation, key-->  storage  <--action, log-prob, value--  actors
                                         |
                                      learner  -->  versions of the parameters  -->  actors

One rollout lives in one storage. Sizes are named: N replicas, T steps of each (`rollout`),
A agents, H older frames that the first stacks still need (`frame_stack` - 1), S numbers of
recurrent state, F places for observations behind truncations. Replicas are the first axis in
memory, so that what one replica did is one piece of memory: it is written by one executor, hashed
in one call, and rebuilt alone.

An executor steps its replicas in *blocks*. A block asks at the *desk*: it writes its observations
and keys into the storage and leaves a ticket (which rollout, which step); an actor writes the
answers beside them and signs the ticket. (Values that share no layer with actions are answered to
the last ticket of a rollout, all of them: until then an older rollout's stand there.) All waiting
is at doorbells: one for each process.

    block      begin of v --ask (v, 0)--> asked --answered--> step --ask (v, 1)--> ...
               ... --ask (v, T)--> asked --answered--> its part of v is done --> begin of v + 1
    begin of v waits until the learner says that rollout v may begin: version v is published

    start      the storages and the desk; then executors, actors and the learner, in any order
    stop       whoever ends the run ends every process; nobody else needs to know

Invariants, cited by number where they are asserted:

I1  A place in a storage has one writer in each round.
I2  The learner reads a rollout only after every replica has filled its part.
I3  The lag is exactly one: D_v is made with version v, and makes version v + 2
    (v + 1 under schedule sync). Versions 0 and 1 are the same parameters.
I4  A published version never changes.
I5  Each replica contributes exactly T steps to each rollout.
I6  A block asks only after its last ticket was answered, and steps only what was answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hts.config import Experiment
from hts.models.spaces import is_image
from hts_envs.contract import Array, Box, Space, Spaces

ALIVE = 3
"""Versions in memory: two that are acted with, and one being published."""

HASH = 16
"""Bytes of the hash of what one replica did in one rollout."""


@dataclass(frozen=True)
class Sizes:
    """The named sizes of every shared array."""

    replicas: int
    steps: int
    agents: int
    history: int
    state: int = 0
    finals: int = 1

    @staticmethod
    def of(experiment: Experiment, spaces: Spaces) -> Sizes:
        return Sizes(
            experiment.replicas,
            experiment.rollout,
            spaces.agents,
            experiment.frame_stack - 1,
            experiment.state_size,
            experiment.rollout if experiment.windows else 1,
        )


@dataclass(frozen=True)
class SharedArray:
    """One shared array: its shape, and the roles at both ends."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    writer: str
    reader: str
    hashed: bool = True
    sparse: bool = False  # it is memory only where it has been written
    apart: bool = False  # each row begins where vectors of floats do


def storage_arrays(sizes: Sizes, spaces: Spaces) -> tuple[SharedArray, ...]:
    """Everything that one storage holds, in the order in which the digest sees it."""
    n, t, a, h = sizes.replicas, sizes.steps, sizes.agents, sizes.history
    f = sizes.finals
    frames = [
        # Frame H + t is what step t was decided on; frame H + T belongs to the next rollout.
        SharedArray(f"frames.{name}", (n, h + t + 1, a, *s.shape), s.dtype, "executor", "all")
        for name, s in spaces.observation.items()
    ]
    finals = [
        # The observation behind a truncation, until its value is known: one place, used again,
        # where actors value it at once, and one for each step where learners do.
        SharedArray(f"finals.{name}", (n, f, a, *s.shape), s.dtype, "executor", "all", hashed=False)
        for name, s in spaces.observation.items()
    ]
    recurrent = [
        # What step t found; zeroed by whoever reads it where an episode begins.
        SharedArray("state", (n, t + 1, a, sizes.state), "float32", "actor", "all")
    ]
    action = spaces.action
    return (
        *frames,
        SharedArray("age", (n, t + 1), "int64", "executor", "all"),
        SharedArray("episode", (n, t + 1), "int64", "executor", "executor", hashed=False),
        SharedArray("key", (n, t), "uint64", "executor", "actor"),
        *(recurrent if sizes.state else ()),
        SharedArray("action", (n, t, a, *action.shape), action.dtype, "actor", "all"),
        SharedArray("log_prob", (n, t, a), "float32", "actor", "learner"),
        SharedArray("value", (n, t, a), "float32", "actor", "learner"),
        SharedArray("reward", (n, t, a), "float32", "executor", "learner"),
        SharedArray("terminated", (n, t), "bool", "executor", "all"),
        SharedArray("truncated", (n, t), "bool", "executor", "all"),
        SharedArray("bootstrap", (n, t, a), "float32", "actor", "learner"),
        *finals,
    )


def normalised(experiment: Experiment, spaces: Spaces) -> dict[str, tuple[int, ...]]:
    """The fields whose running statistics are published with each version, and their shapes."""
    if not experiment.normalise_observations:
        return {}
    return {
        name: space.shape
        for name, space in spaces.observation.items()
        if isinstance(space, Box) and space.dtype.startswith("float")
    }


def version_arrays(parameters: int, scaled: dict[str, tuple[int, ...]]) -> tuple[SharedArray, ...]:
    """What is shared of the versions that are alive: two acted with, one being published."""
    arrays = [
        SharedArray("published", (ALIVE,), "int64", "learner", "actor"),
        # Networks of actors compute with them where they lie.
        SharedArray("parameters", (ALIVE, parameters), "float32", "learner", "actor", apart=True),
    ]
    for name, shape in scaled.items():
        arrays += [
            SharedArray(f"{name}.count", (ALIVE,), "float64", "learner", "actor"),
            SharedArray(f"{name}.mean", (ALIVE, *shape), "float64", "learner", "actor"),
            SharedArray(f"{name}.squares", (ALIVE, *shape), "float64", "learner", "actor"),
        ]
    return tuple(arrays)


def desk_arrays(blocks: int, executors: int, replicas: int) -> tuple[SharedArray, ...]:
    """Who has asked for what, what was answered, and what is complete."""
    return (
        SharedArray("asked", (blocks,), "int64", "executor", "actor"),
        SharedArray("answered", (blocks,), "int64", "actor", "executor"),
        SharedArray("open", (1,), "int64", "learner", "executor"),
        SharedArray("filled", (executors,), "int64", "executor", "learner"),
        SharedArray("hashes", (2, replicas, HASH), "uint8", "executor", "learner"),
    )


def learnt_arrays(kept: Mapping[str, Array]) -> tuple[SharedArray, ...]:
    """How far the learner has come: two places for what it keeps, used in turn."""
    chain = SharedArray("chain", (2, HASH), "uint8", "learner", "learner")
    return (*_turns(kept, "learner"), chain)


def beside_arrays(kept: Mapping[str, Array]) -> tuple[SharedArray, ...]:
    """How far the P-learner has come, with what it keeps, and hands over."""
    return _turns(kept, "P-learner")


def _turns(kept: Mapping[str, Array], writer: str) -> tuple[SharedArray, ...]:
    return (
        SharedArray("learnt", (1,), "int64", writer, "learners"),
        *(
            SharedArray(f"kept.{name}", (2, *array.shape), str(array.dtype), writer, "learners")
            for name, array in kept.items()
        ),
    )


def replay_arrays(
    sizes: Sizes, windows: int, seen: Mapping[str, Space], action: Space
) -> tuple[SharedArray, ...]:
    """The latest windows of an off-policy run, with what its learners see of the observations.

    The learner writes window v in its turn v; nobody reads the place that it stands in then.
    Images stand there compressed (hts.replay.images), all others as they are.
    """
    lead = (windows * sizes.steps, sizes.replicas)
    images = {name: space for name, space in seen.items() if is_image(space)}
    others = [(name, space) for name, space in seen.items() if name not in images]
    shown = [(f"{kind}.{name}", s) for name, s in others for kind in ("seen", "behind")]
    plain = (("reward", "float32"), ("terminated", "bool"), ("truncated", "bool"))
    count = 2 * sizes.steps * sizes.replicas
    return (
        *(
            SharedArray(
                f"images.{name}",
                (windows, count, *space.shape),
                "uint8",
                "learner",
                "learners",
                sparse=True,
            )
            for name, space in images.items()
        ),
        *(SharedArray(f"at.{n}", (*lead, 2, 2), "int64", "learner", "learners") for n in images),
        *(SharedArray(n, (*lead, *s.shape), s.dtype, "learner", "learners") for n, s in shown),
        SharedArray("action", (*lead, *action.shape), action.dtype, "learner", "learners"),
        *(SharedArray(name, lead, dtype, "learner", "learners") for name, dtype in plain),
    )


TIMES = ("worked", "waited for the learner", "for actors", "for executors", "for simulators")
"""Where the time of a process goes: seconds since it began, one column each."""


SINCE, DOING = len(TIMES), len(TIMES) + 1
"""Behind these columns: when the last one was added to, and which one the time since then is."""


def clock_arrays(roles: int) -> tuple[SharedArray, ...]:
    """A row for each executor, each actor, a P-learner, the learner; written by its owner."""
    return (SharedArray("times", (roles, len(TIMES) + 2), "float64", "all", "report"),)
