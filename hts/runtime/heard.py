"""What the processes of a run have said, put in order.

A process that redoes what its predecessor had done says it again: what was heard before is the
same, and is not counted twice.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from hts.determinism.digest import Link
from hts.machine import storage_arrays
from hts.roles.blocks import Episode, Strayed
from hts.roles.rebuilding import Snapshot
from hts.runtime.assemble import Updated
from hts.runtime.shared import Blueprint
from hts_envs.contract import Array

_LATEST = 2  # a checkpoint may need the one before the last


class Heard:
    """Updates, episodes, and the actions that running episodes may have to be rebuilt from."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.past: list[dict[int, Array]] = [{} for _ in blueprint.crew.blocks]
        self.began = 0  # updates that were made before this run went on
        self.snapshots: dict[int, deque[Snapshot]] = {}  # by replica, the latest ones
        self.told = 0  # and those that have been asked for
        self.marks: list[str] = []  # why the digest is not that of an undisturbed run
        self.blueprint = blueprint
        (self._action,) = [
            declared
            for declared in storage_arrays(blueprint.sizes, blueprint.spaces)
            if declared.name == "action"
        ]
        self._updates: dict[int, dict[str, Any]] = {}
        self._episodes: dict[int, dict[tuple[int, int], Episode]] = defaultdict(dict)
        self._ages: dict[int, dict[int, int]] = defaultdict(dict)  # by rollout and block

    def take(self, said: dict[str, Any]) -> None:
        """One message of anybody."""
        if "link" in said and said["link"]["update"] > self.told:
            self._updates.setdefault(said["link"]["update"] - 1, said)
        elif "ended" in said and said["ended"] >= self.told:
            for facts in said["episodes"]:
                episode = Episode(**facts)
                self._episodes[said["ended"]].setdefault(episode.order(), episode)
        elif "strayed" in said:
            self.marks += [str(Strayed(**replica)) for replica in said["strayed"]]
        elif "part" in said and said["part"] >= self.told:
            replicas = len(self.blueprint.crew.blocks[said["block"]])
            actions = np.frombuffer(said["raw"], self._action.dtype)
            actions = actions.reshape(replicas, *self._action.shape[1:])
            self.past[said["block"]][said["part"]] = actions
            self._ages[said["part"]][said["block"]] = said["age"]
        elif "snapshot" in said:
            self.keep(Snapshot(said["snapshot"], said["episode"], said["age"], said["raw"]))

    def keep(self, snapshot: Snapshot) -> None:
        """For whoever has to bring this replica back."""
        self.snapshots.setdefault(snapshot.replica, deque(maxlen=_LATEST)).append(snapshot)

    def snapshots_of(self, replicas: Iterable[int]) -> dict[int, list[Snapshot]]:
        """Those of these replicas."""
        return {each: list(self.snapshots[each]) for each in replicas if each in self.snapshots}

    @property
    def complete(self) -> bool:
        """Everything about the next update and its rollout has been said."""
        parts = self._ages.get(self.told, {})
        return self.told in self._updates and len(parts) == len(self.blueprint.crew.blocks)

    def next(self) -> Updated:
        """The next update, with the episodes that ended in its rollout."""
        rollout = self.told
        said, ended = self._updates.pop(rollout), self._episodes.pop(rollout, {}).values()
        for block, age in self._ages.pop(rollout).items():
            self._forget(block, rollout - -(-age // self.blueprint.sizes.steps))
        self.told += 1
        replicas = [bytes.fromhex(part) for part in said["replicas"]]
        episodes = sorted(ended, key=Episode.order)
        return Updated(
            Link(**said["link"]), said["told"], episodes, replicas, said.get("policies", [])
        )

    def _forget(self, block: int, rollout: int) -> None:
        """No episode that runs now, or behind a later update, was running in this rollout."""
        for old in [number for number in self.past[block] if number <= rollout]:
            del self.past[block][old]
