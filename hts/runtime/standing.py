"""Where a run stands between two updates: everything that the rest of it follows from.

After update u versions u and u + 1 are alive, every replica has done its part of rollout u - 1,
and no rollout from u on has been learnt from. So this is all: those versions, what the learner
keeps, the digest, and of each replica the number and age of its running episode, the actions since
its begin, its recurrent state, and the frames that its next stack needs, which are what a
simulator that is rebuilt from those actions must show; and the snapshots from which that is
shorter. Of an off-policy run it is also what the P-learner keeps, and the windows of the replay
that turn u does not write over.

A run that goes on from here finds its memory as if everybody had died at this boundary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hts.errors import HtsError
from hts.machine import ALIVE
from hts.memory.storage import Storage
from hts.replay.ring import Ring
from hts.roles.rebuilding import Snapshot, latest
from hts.runtime.heard import Heard
from hts.runtime.shared import Shared
from hts_envs.contract import Array


@dataclass(frozen=True)
class Standing:
    """Plain arrays, none of them shared; the same for every machine layout."""

    updates: int
    chain: str
    arrays: Mapping[str, Array]

    def part(self, prefix: str) -> dict[str, Array]:
        """The arrays of one part, by their names in it."""
        return {
            name.removeprefix(prefix): array
            for name, array in self.arrays.items()
            if name.startswith(prefix)
        }


def look(shared: Shared, heard: Heard, alive: int) -> Standing | None:
    """Where a run stands while it goes on; None in the moments when that cannot be seen.

    Nothing that is read here is written before the learner has completed one more update.
    """
    updates = shared.learnt.updates
    if updates != heard.told or not updates:
        return None
    began = [_rollout(shared, block) >= updates for block in range(len(shared.desk.crew.blocks))]
    replicas = _replicas(shared, updates, began)
    found = {
        **{f"kept.{name}": array.copy() for name, array in shared.learnt.kept().items()},
        **{
            f"versions.{name}": array[
                [number % ALIVE for number in range(updates, updates + alive)]
            ]
            for name, array in shared.versions.items()
            if name != "published"
        },
        **{f"replicas.{name}": array for name, array in replicas.items()},
        **_replayed(shared, updates),
    }
    chain = shared.learnt.chain
    # Behind its last question of this rollout a block begins the next one, where the older stood.
    last = (updates, shared.storages[0].sizes.steps)
    ahead = any(shared.desk.question(block) >= last for block, at in enumerate(began) if not at)
    if ahead or shared.learnt.updates != updates:
        return None
    found["actions"] = _actions(shared, heard, updates, replicas["age"])
    found |= _snapshots(heard, replicas)
    return Standing(updates, chain, found)


def misfits(shared: Shared, standing: Standing) -> Iterator[str]:
    """What in it does not belong to a run of this experiment."""
    sizes = shared.storages[0].sizes
    if not 0 < len(standing.arrays.get("versions.parameters", ())) < ALIVE:
        yield "it holds no parameters"
        return
    expected = {f"kept.{name}": array for name, array in shared.learnt.kept().items()}
    alive = len(standing.arrays["versions.parameters"])
    for name, array in shared.versions.items():
        if name != "published":
            expected[f"versions.{name}"] = array[:alive]
    for name in _stood(shared.storages[0]):
        array = shared.storages[0].arrays[name]
        frames = name.startswith("frames.")
        expected[f"replicas.{name}"] = array[:, -sizes.history - 1 :] if frames else array[:, 0]
    ages = standing.arrays.get("replicas.age")
    steps = int(ages.sum()) if ages is not None else 0
    action = shared.storages[0].action
    form = {name: (array.shape, array.dtype) for name, array in expected.items()}
    form["actions"] = ((steps, *action.shape[2:]), action.dtype)
    form |= _snapshots_form(sizes.replicas, standing) | _replayed_form(shared, standing)
    for name in sorted({*form, *standing.arrays}):
        found = standing.arrays.get(name)
        if found is None:
            yield f"{name} is missing"
        elif name not in form:
            yield f"{name} does not belong there"
        elif (found.shape, found.dtype) != form[name]:
            shape, dtype = form[name]
            yield f"{name} is {found.dtype}{found.shape}, and not {dtype}{shape}"


def stand(shared: Shared, heard: Heard, standing: Standing) -> None:
    """Arrange memory in which nothing has happened yet as if everybody had died there."""
    problem = next(misfits(shared, standing), None)
    if problem is not None:
        raise HtsError(f"this checkpoint is of another experiment: {problem}")
    last = standing.updates - 1
    storage, steps = shared.storages[last % 2], shared.storages[0].sizes.steps
    replicas = standing.part("replicas.")
    for name, array in replicas.items():
        if name.startswith("frames."):
            storage.arrays[name][:, steps:] = array
        else:
            storage.arrays[name][:, steps] = array
    trail = _trail(standing.arrays["actions"], replicas["age"], steps)
    storage.action[:] = trail[:, -steps:]
    for block, rows in enumerate(shared.desk.crew.blocks):
        mine = trail[rows.start : rows.stop]
        heard.past[block] = {last - 1: mine[:, :-steps], last: mine[:, -steps:]}
    for snapshot in _taken(standing, replicas["episode"]):
        heard.keep(snapshot)
    for name, array in standing.part("versions.").items():
        for number, version in enumerate(array, standing.updates):
            shared.versions[name][number % ALIVE] = version
            shared.versions["published"][number % ALIVE] = number + 1
    shared.learnt.stand(standing.updates, standing.part("kept."), standing.chain)
    if shared.beside is not None:
        shared.beside.stand(standing.updates, standing.part("beside."))
        ring = _ring(shared)
        ring.paste(_windows(ring, standing.updates), standing.part("replay."))
    shared.desk.stand(standing.updates)
    heard.began = heard.told = standing.updates


def _ring(shared: Shared) -> Ring:
    return Ring(shared.replay, shared.storages[0].sizes.steps)


def _windows(ring: Ring, updates: int) -> range:
    """Those of the replay that may still be drawn from, and are not being written over."""
    return range(max(0, updates - ring.windows + 1), updates)


def _replayed(shared: Shared, updates: int) -> dict[str, Array]:
    """What the P-learner keeps, and the replay; nothing for algorithms without them."""
    if shared.beside is None:
        return {}
    ring, kept = _ring(shared), shared.beside.kept(updates)
    replay = ring.copy(_windows(ring, updates))
    return {
        **{f"beside.{name}": array.copy() for name, array in kept.items()},
        **{f"replay.{name}": array for name, array in replay.items()},
    }


def _replayed_form(shared: Shared, standing: Standing) -> dict[str, tuple[Any, Any]]:
    """The shapes and types of the same."""
    if shared.beside is None:
        return {}
    ring, kept = _ring(shared), shared.beside.kept(standing.updates)
    windows = len(_windows(ring, standing.updates))
    replay = ring.form(windows, standing.part("replay."))
    return {
        **{f"beside.{name}": (array.shape, array.dtype) for name, array in kept.items()},
        **{f"replay.{name}": form for name, form in replay.items()},
    }


def _rollout(shared: Shared, block: int) -> int:
    """The rollout that this block has asked in last."""
    return shared.desk.question(block)[0]


def _stood(storage: Storage) -> list[str]:
    """The arrays that say where a replica stands."""
    frames = [f"frames.{field}" for field in storage.fields]
    return ["age", "episode", *(["state"] if storage.sizes.state else []), *frames]


def _replicas(shared: Shared, updates: int, began: list[bool]) -> dict[str, Array]:
    """Where the replicas stood between the two rollouts, from the storage where it still stands."""
    found: dict[str, list[Array]] = {}
    for rows, begun in zip(shared.desk.crew.blocks, began, strict=True):
        storage = shared.storages[(updates if begun else updates - 1) % 2]
        step = 0 if begun else storage.sizes.steps
        mine = slice(rows.start, rows.stop)
        for name in _stood(storage):
            frames = slice(step, step + storage.sizes.history + 1)
            place = frames if name.startswith("frames.") else step
            found.setdefault(name, []).append(storage.arrays[name][mine, place].copy())
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _actions(shared: Shared, heard: Heard, updates: int, ages: Array) -> Array:
    """The actions of every running episode, one replica's after the other's."""
    action = shared.storages[0].action
    found = []
    for rows, past in zip(shared.desk.crew.blocks, heard.past, strict=True):
        none = np.empty((len(rows), 0, *action.shape[2:]), action.dtype)
        parts = [past[number] for number in sorted(past) if number < updates]
        trail = np.concatenate([none, *parts], axis=1)
        for mine, age in zip(trail, ages[rows.start : rows.stop], strict=True):
            assert age <= len(mine), "every action of a running episode has been heard"
            found.append(mine[len(mine) - age :])
    return np.concatenate(found)


def _snapshots(heard: Heard, replicas: Mapping[str, Array]) -> dict[str, Array]:
    """The state of each replica's running episode where there is one, one behind the other, and
    how old the episode was then."""
    states, sizes, ages = [], [], []
    for replica, at in enumerate(zip(replicas["episode"], replicas["age"], strict=True)):
        found = latest(heard.snapshots.get(replica, ()), *map(int, at))
        states.append(b"" if found is None else found.state)
        ages.append(0 if found is None else found.age)
        sizes.append(len(states[-1]))
    return {
        "snapshots.state": np.frombuffer(b"".join(states), np.uint8),
        "snapshots.size": np.array(sizes, np.int64),
        "snapshots.age": np.array(ages, np.int64),
    }


def _snapshots_form(replicas: int, standing: Standing) -> dict[str, tuple[Any, Any]]:
    """The shapes and types of the same."""
    sizes = standing.arrays.get("snapshots.size")
    each = (replicas,), np.dtype(np.int64)
    state = (0 if sizes is None else int(sizes.sum()),), np.dtype(np.uint8)
    return {"snapshots.state": state, "snapshots.size": each, "snapshots.age": each}


def _taken(standing: Standing, episodes: Array) -> Iterator[Snapshot]:
    """The snapshots that it holds."""
    found = standing.part("snapshots.")
    states = np.split(found["state"], np.cumsum(found["size"])[:-1])
    for replica, (state, age) in enumerate(zip(states, found["age"], strict=True)):
        if len(state):
            yield Snapshot(replica, int(episodes[replica]), int(age), state.tobytes())


def _trail(actions: Array, ages: Array, steps: int) -> Array:
    """The actions of all replicas, aligned at their ends; at least a rollout of each."""
    length = max(steps, int(ages.max()))
    trail = np.zeros((len(ages), length, *actions.shape[1:]), actions.dtype)
    for row, mine in enumerate(np.split(actions, np.cumsum(ages)[:-1])):
        trail[row, length - len(mine) :] = mine
    return trail
